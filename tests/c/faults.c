/* Each system call of each operation fails in turn with each of its errors, and nothing may be half done.
 *
 *     faults DIRECTORY OPERATION EACH
 *
 * Every EACHth injection is made, in a process of its own. Prints how many, and a line for each violation; ends with 1 if
 * there was one. */

#include "faults.h"

#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "jitlock.h"

/* Operations that look at every process of the machine make thousands of calls; the first of them will do. */
enum { MOST_CALLS = 160, PATIENCE_MS = 40, HANG_S = 10 };

static char directory[512], cache[600], lock_file[4096], baton[700];
static jitlock_t lock;
static int holder = -1;
static const char *operation;

#define VIOLATION(...) \
    do { \
        printf("violation: %s, call %d (%s) %s %d: ", operation, fault->call, fault->name, \
               fault->lasting ? "and later answer" : "answers", fault->number); \
        printf(__VA_ARGS__); \
        printf(" [%s]\n", jitlock_last_error_message()); \
        fflush(stdout); \
        _exit(1); \
    } while (0)

static void write_file(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CREAT, 0666);
    if (file < 0 || write(file, text, strlen(text)) < 0)
        abort();
    close(file);
}

static int count_entries(const char *path) {
    DIR *entries = opendir(path);
    int count = 0;
    while (entries && readdir(entries))
        count++;
    if (entries)
        closedir(entries);
    return count;
}

static const char *const kernels[] = {"a.so", "b.so", "sub/c.o", "sub/deep/d.o"};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static const char *in_cache(const char *name) {
    static char path[700];
    snprintf(path, sizeof path, "%s/%s", cache, name);
    return path;
}

static void make_cache(void) {
    mkdir(cache, 0777);
    mkdir(in_cache("sub"), 0777);
    mkdir(in_cache("sub/deep"), 0777);
    for (int i = 0; i < KERNELS; i++)
        write_file(in_cache(kernels[i]), "kernel");
}

static int count_kernels(void) {
    int count = 0;
    for (int i = 0; i < KERNELS; i++)
        count += access(in_cache(kernels[i]), F_OK) == 0;
    return count;
}

static int is_free(void) {
    int file = open(lock_file, O_RDWR);
    int answer = file < 0 || !flock(file, LOCK_EX | LOCK_NB);
    if (file >= 0)
        close(file);
    return answer;
}

/* As another program's flock. */
static void hold(void) {
    holder = open(lock_file, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (flock(holder, LOCK_EX))
        abort();
}

static int let_go(const jitlock_progress_t *progress, void *user) {
    (void)progress;
    (void)user;
    int now = atomic_exchange(&armed, 0);
    if (holder >= 0)
        close(holder);
    holder = -1;
    atomic_store(&armed, now);
    return 0;
}

static jitlock_status_t acquire_with(uint32_t flags, jitlock_progress_fn progress) {
    jitlock_options_t options = JITLOCK_OPTIONS_INIT;
    options.timeout_ms = PATIENCE_MS;
    options.flags = flags;
    options.progress = progress;
    options.progress_interval_ms = 1;
    return jitlock_acquire_with(cache, &options, &lock);
}

static void nothing(void) {}

static void warm(void) {
    if (jitlock_acquire(cache, 1000, &lock) || jitlock_release(lock))
        abort();
}

static void take(void) {
    if (jitlock_acquire(cache, 1000, &lock))
        abort();
}

static void died(void) {
    pid_t child = fork();
    if (child == 0) {
        take();
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
}

static void plant_baton(void) { write_file(baton, ""); }

static void use_baton(void) {
    plant_baton();
    holder = open(baton, O_RDONLY | O_CLOEXEC);
}

static void take_and_plant(void) {
    take();
    plant_baton();
}

static void make_link(void) {
    char target[700];
    snprintf(target, sizeof target, "%s.real", cache);
    if (rename(cache, target) || symlink(target, cache))
        abort();
    snprintf(lock_file, sizeof lock_file, "%s.lock", target);
}

static void be_mount_point(void) { mount_point = "cache"; }

static void leave_trash(void) {
    /* Of a clear that was killed: by the same rule, for the name "cache". */
    jitlock_clear_cache(cache, 1000);
    make_cache();
}

static void use_lock_dir(void) {
    char path[600], *to = lock_file;
    snprintf(path, sizeof path, "%s/locks", directory);
    setenv("JITLOCK_LOCK_DIR", path, 1);
    to += sprintf(to, "%s/", path);
    for (const char *from = cache; *from; from++)
        to += *from == '/' ? sprintf(to, "%%2F") : sprintf(to, "%c", *from);
    strcpy(to, ".lock");
}

static void use_relative_path(void) {
    if (chdir(directory))
        abort();
    strcpy(cache, "cache");
}

static jitlock_status_t acquire(void) { return jitlock_acquire(cache, PATIENCE_MS, &lock); }
static jitlock_status_t try_once(void) { return jitlock_acquire(cache, 0, &lock); }
static jitlock_status_t acquire_shared(void) { return acquire_with(JITLOCK_SHARED, NULL); }
static jitlock_status_t acquire_inherited(void) { return acquire_with(JITLOCK_INHERIT, NULL); }
static jitlock_status_t acquire_cleared(void) { return acquire_with(JITLOCK_CLEAR_IF_OWNER_DIED, NULL); }
static jitlock_status_t wait_for_it(void) { return acquire_with(0, let_go); }
static jitlock_status_t wait_interruptibly(void) { return acquire_with(JITLOCK_INTERRUPTIBLE, let_go); }
static jitlock_status_t release(void) { return jitlock_release(lock); }
static jitlock_status_t clear(void) { return jitlock_clear_cache(cache, PATIENCE_MS); }
static jitlock_status_t clear_held(void) { return jitlock_clear_held(lock); }
static jitlock_status_t remove_baton(void) { return jitlock_remove_stale_baton(lock, cache, PATIENCE_MS); }

static jitlock_status_t info(void) {
    jitlock_info_t info = {.struct_size = sizeof info};
    return jitlock_info(lock, &info);
}

static jitlock_status_t query(void) {
    jitlock_owner_t owner = {.struct_size = sizeof owner};
    return jitlock_query(cache, &owner);
}

static const struct {
    const char *name;
    void (*prepare)(void);
    jitlock_status_t (*run)(void);
} operations[] = {
    {"acquire", nothing, acquire},
    {"acquire-again", warm, acquire},
    {"try", warm, try_once},
    {"try-held", hold, try_once},
    {"time-out", hold, acquire},
    {"wait", hold, wait_for_it},
    {"wait-interruptibly", hold, wait_interruptibly},
    {"share", warm, acquire_shared},
    {"inherit", warm, acquire_inherited},
    {"relative", use_relative_path, acquire},
    {"link", make_link, acquire},
    {"lock-dir", use_lock_dir, acquire},
    {"after-death", died, acquire},
    {"clear-after-death", died, acquire_cleared},
    {"stale-baton", plant_baton, acquire},
    {"baton-in-use", use_baton, acquire},
    {"remove-baton", take_and_plant, remove_baton},
    {"release", take, release},
    {"info", take, info},
    {"query", warm, query},
    {"query-held", hold, query},
    {"clear", nothing, clear},
    {"clear-held", take, clear_held},
    {"clear-mount-point", be_mount_point, clear},
    {"clear-again", leave_trash, clear},
};

static void check_and_end(jitlock_status_t (*run)(void), jitlock_status_t status, int files, int threads) {
    int cleared = run == clear || run == clear_held || run == acquire_cleared;
    int acquires = !(run == release || run == clear || run == clear_held || run == info || run == query || run == remove_baton);
    if (status == JITLOCK_ERR_INTERNAL || status < JITLOCK_ERR_INTERNAL || status > JITLOCK_OK)
        VIOLATION("status %d", status);
    if (status && !strstr(jitlock_last_error_message(), directory) && !strstr(jitlock_last_error_message(), "cache"))
        VIOLATION("status %d, and the message names no path", status);
    if (status && acquires && lock != JITLOCK_NONE)
        VIOLATION("status %d, and a handle", status);
    /* Where there is nothing there is nothing to clear. */
    int left = count_kernels(), must_be_gone = !status && (run == clear || run == clear_held) && fault->number != ENOENT;
    if (must_be_gone ? left : left != KERNELS && !(cleared && left == 0))
        VIOLATION("status %d, and %d of %d kernels are left", status, left, KERNELS);
    if (holder >= 0 && access(baton, F_OK) && !strcmp(operation, "baton-in-use"))
        VIOLATION("a lock of torch's that is in use is gone");
    if (holder >= 0 && !strcmp(operation, "time-out") && !status)
        VIOLATION("two holders");
    if (acquires && !status) {
        /* A link that is not there is no link. */
        int other_name = !strcmp(operation, "link") && fault->number == ENOENT;
        if (is_free() && run != acquire_shared && !other_name)
            VIOLATION("acquired, and free");
        files++;
    }
    /* Whatever came before, it can be given back, and had again. */
    if ((acquires && !status) || run == clear_held || run == remove_baton || run == info) {
        jitlock_status_t released = jitlock_release(lock);
        if (released)
            VIOLATION("it cannot be released: %d", released);
        files--;
    } else if (run == release)
        files--;
    if (holder >= 0)
        close(holder);
    holder = -1;
    for (int waited = 0; !is_free() || count_entries("/proc/self/fd") != files || count_entries("/proc/self/task") != threads;
         waited++) {
        if (waited > 5000)
            VIOLATION("status %d, then free: %d, descriptors too many: %d, threads too many: %d", status, is_free(),
                      count_entries("/proc/self/fd") - files, count_entries("/proc/self/task") - threads);
        usleep(1000);
    }
    mount_point = NULL;
    unlink(baton);
    if (jitlock_acquire(cache, 5000, &lock) || is_free() || jitlock_release(lock))
        VIOLATION("it cannot be had any more");
    if (jitlock_clear_cache(cache, 5000) || access(cache, F_OK) == 0)
        VIOLATION("it cannot be cleared any more");
    _exit(0);
}

/* One injection, in a process that has never called the library. True if there was anything to inject. */
static void inject(size_t index) {
    size_t end = strlen(directory);
    snprintf(directory + end, sizeof directory - end, "/%d.XXXXXX", fault->call);
    if (!mkdtemp(directory))
        abort();
    snprintf(cache, sizeof cache, "%s/cache", directory);
    snprintf(lock_file, sizeof lock_file, "%s.lock", cache);
    snprintf(baton, sizeof baton, "%s/lock", cache);
    make_cache();
    operations[index].prepare();
    /* The helper of what came before, if there was one, comes to its end. */
    while (count_entries("/proc/self/task") != 3)
        usleep(100);
    int files = count_entries("/proc/self/fd") - (holder >= 0);
    atomic_store(&armed, 1);
    jitlock_status_t status = operations[index].run();
    atomic_store(&armed, 0);
    check_and_end(operations[index].run, status, files, 3);
}

static void remove_tree(const char *path) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'/*", path);
    if (system(command))
        abort();
}

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    snprintf(directory, sizeof directory, "%s", arguments[1]);
    fault = mmap(NULL, sizeof *fault, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    operation = arguments[2];
    int each = atoi(arguments[3]), made = 0, violations = 0, skipped = 0;
    size_t index = 0;
    while (strcmp(operations[index].name, operation))
        if (++index == sizeof operations / sizeof *operations)
            return 2;
    for (int call = 1; call <= MOST_CALLS; call++) {
        int reached = 0;
        for (int error = 0, more = 1; more; error++) {
            for (int lasting = 0; lasting < 2 && more; lasting++) {
                /* At least the first of each call, which tells whether there is one. */
                if (error + lasting && (call * 7 + error * 3 + lasting) % each) {
                    skipped++;
                    more = error < 40;
                    continue;
                }
                *fault = (struct fault){.call = call, .error = error, .lasting = lasting};
                fflush(stdout);
                pid_t child = fork();
                if (child == 0) {
                    alarm(HANG_S);
                    inject(index);
                }
                int status;
                waitpid(child, &status, 0);
                reached |= fault->reached;
                made += fault->reached;
                violations += status != 0;
                if (WIFSIGNALED(status))
                    printf("violation: %s, call %d (%s) error %d, lasting %d: ended by signal %d\n", operation, call,
                           fault->name, fault->number, lasting, WTERMSIG(status));
                more = fault->reached;
            }
        }
        if (call % 16 == 0)
            remove_tree(directory);
        if (!reached)
            break;
    }
    remove_tree(directory);
    printf("%d injections\n", made);
    return violations > 0;
}
