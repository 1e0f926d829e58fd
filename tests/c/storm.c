/* One of many in a storm: takes a lock in every way, does under it what builders do, and testifies when it had it.
 *
 *     storm CACHE SCRATCH SEED
 *
 * A testimony in SCRATCH/testimony says: from BEGIN to END I was a holder, and the lock file was still in its place after
 * that. Two of them that overlap are two holders. Ends with 0, or with 3 and a line in SCRATCH/violations. It may be killed or
 * stopped at any moment, the lock file be deleted, the cache cleared. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "jitlock.h"

enum { FILES = 12, ROUNDS = 30, LONG_MS = 60000 };

struct testimony {
    uint64_t begin, end; /* CLOCK_MONOTONIC, ns */
    uint64_t pid, kind;  /* of the one that acquired, though a child of its may be the witness */
};

enum { WRITER = 'W', READER = 'R', COMPILER = 'C' };

static const char *cache, *scratch;
static char lock_file[4096];

static void violation(const char *what, ...) {
    char text[4096], path[4200];
    va_list arguments;
    va_start(arguments, what);
    int length = vsnprintf(text, sizeof text - 1, what, arguments);
    va_end(arguments);
    strcat(text, "\n");
    snprintf(path, sizeof path, "%s/violations", scratch);
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (write(file, text, (size_t)length + 1) < 0)
        abort();
    _exit(3);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void pause_up_to(unsigned *seed, unsigned us) {
    usleep(rand_r(seed) % us);
}

/* One that is held by this process, or was when it forked. */
struct hold {
    jitlock_t lock;
    jitlock_info_t info;
    struct testimony testimony;
    ino_t inode;
};

static int testimonies;

static int in_place(const struct hold *hold) {
    struct stat stat_;
    return !stat(lock_file, &stat_) && stat_.st_ino == hold->inode;
}

/* A record never crosses a page, so that a kill cannot cut it in two. */
static void testify(struct hold *hold) {
    hold->testimony.end = now();
    if (in_place(hold) && write(testimonies, &hold->testimony, sizeof hold->testimony) != sizeof hold->testimony)
        violation("cannot testify: %m");
}

static const char *unfinished(const struct hold *hold) {
    static __thread char path[4200];
    snprintf(path, sizeof path, "%s/unfinished.%lu", cache, (unsigned long)hold->inode);
    return path;
}

/* Who died at work, on this lock file and in this cache, has to be told of. */
static void check_news(const struct hold *hold) {
    if (!access(unfinished(hold), F_OK) && hold->info.previous_owner == JITLOCK_PREVIOUS_CLEAN && in_place(hold))
        violation("a death at work was told as a release");
}

/* Whole or gone, unless a holder who lost its lock moved it meanwhile. */
static void check_cache(const struct hold *hold) {
    DIR *entries = opendir(cache);
    if (!entries)
        return;
    int count = 0;
    struct dirent *entry;
    while ((entry = readdir(entries)))
        count += !strncmp(entry->d_name, "kernel.", 7);
    struct stat opened, named;
    int moved = fstat(dirfd(entries), &opened) || stat(cache, &named) || opened.st_ino != named.st_ino;
    closedir(entries);
    if (count != FILES && !moved && in_place(hold))
        violation("%d of %d files are in the cache", count, FILES);
}

static void build(unsigned *seed) {
    char path[4200], name[4300];
    snprintf(path, sizeof path, "%s/new.%d.%d", scratch, getpid(), rand_r(seed));
    mkdir(path, 0777);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%s/kernel.%d.o", path, i);
        close(open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
    }
    if (rename(path, cache)) {
        for (int i = 0; i < FILES; i++) {
            snprintf(name, sizeof name, "%s/kernel.%d.o", path, i);
            unlink(name);
        }
        rmdir(path);
    }
}

/* A compiler: works in the cache and has no descriptor of the lock. Once it was there with its parent alive, whoever comes after
 * the parent waits for it. */
static void compile(struct hold *hold, unsigned *seed, pid_t parent) {
    struct stat here, named;
    if (chdir(cache) || getppid() != parent)
        return;
    hold->testimony.kind = COMPILER;
    for (int i = 0; i < 4; i++) {
        close(open("output.o", O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
        pause_up_to(seed, 1500);
        hold->testimony.end = now();
        struct testimony seen = hold->testimony;
        if (stat(".", &here) || stat(cache, &named) || here.st_ino != named.st_ino || !in_place(hold))
            return;
        if (write(testimonies, &seen, sizeof seen) != sizeof seen)
            return;
    }
}

/* Has an inherited lock for as long as it lives. */
static void inherit(struct hold *hold, unsigned *seed) {
    for (int i = 0; i < 3; i++) {
        pause_up_to(seed, 1000);
        testify(hold);
    }
}

static void fork_while_holding(struct hold *hold, unsigned *seed, int inherits) {
    pid_t parent = getpid();
    int kind = (int)(rand_r(seed) % 5);
    pid_t child = fork();
    if (child < 0)
        violation("cannot fork: %m");
    if (child > 0) {
        /* Like make for its compilers, unless it is killed first. */
        while (kind == 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
        return;
    }
    *seed += (unsigned)getpid();
    jitlock_t own;
    jitlock_options_t options = JITLOCK_OPTIONS_INIT;
    switch (kind) {
    case 0:
        compile(hold, seed, parent);
        break;
    case 1:
        if (jitlock_release(hold->lock) != JITLOCK_ERR_NOT_OWNER)
            violation("a child could release its parent's lock");
        break;
    case 2:
        /* One that inherits the lock waits for itself. A reader leaves the news of a death alone. */
        options.timeout_ms = rand_r(seed) % 3;
        options.flags = JITLOCK_SHARED;
        if (jitlock_acquire_with(cache, &options, &own) == JITLOCK_OK)
            _exit(jitlock_release(own));
        break;
    case 3:
        execlp("sleep", "sleep", "0.002", (char *)NULL);
        break;
    case 4:
        if (inherits)
            inherit(hold, seed);
    }
    _exit(0);
}

static void work(struct hold *hold, unsigned *seed, uint32_t flags) {
    if (flags & JITLOCK_SHARED) {
        check_cache(hold);
        pause_up_to(seed, 500);
        return;
    }
    check_news(hold);
    close(open(unfinished(hold), O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
    check_cache(hold);
    switch (rand_r(seed) % 7) {
    case 0:
        if (jitlock_clear_held(hold->lock) != JITLOCK_OK)
            violation("clear_held: %s", jitlock_last_error_message());
        break;
    case 1:
    case 2:
        build(seed);
        break;
    case 3:
    case 4:
        fork_while_holding(hold, seed, (flags & JITLOCK_INHERIT) != 0);
        break;
    case 5:
        pause_up_to(seed, 2000);
    }
    testify(hold);
    check_cache(hold);
    unlink(unfinished(hold));
}

static void *weather(void *argument) {
    unsigned seed = (unsigned)(size_t)argument;
    static const uint32_t choices[] = {0, 0, 0, JITLOCK_SHARED, JITLOCK_INHERIT, JITLOCK_INTERRUPTIBLE, JITLOCK_CLEAR_IF_OWNER_DIED};
    for (int round = 0; round < ROUNDS; round++) {
        jitlock_options_t options = JITLOCK_OPTIONS_INIT;
        options.flags = choices[(unsigned)rand_r(&seed) % (sizeof choices / sizeof *choices)];
        int impatient = rand_r(&seed) % 3 == 0;
        options.timeout_ms = impatient ? rand_r(&seed) % 4 : LONG_MS;
        if (rand_r(&seed) % 20 == 0) {
            jitlock_status_t status = jitlock_clear_cache(cache, options.timeout_ms);
            if (status != JITLOCK_OK && status != JITLOCK_ERR_LOST && !(impatient && status == JITLOCK_ERR_TIMEOUT))
                violation("clear_cache: %s", jitlock_last_error_message());
            continue;
        }
        struct hold hold;
        memset(&hold, 0, sizeof hold);
        jitlock_status_t status = jitlock_acquire_with(cache, &options, &hold.lock);
        if ((impatient && status == JITLOCK_ERR_TIMEOUT) || (options.flags & JITLOCK_INTERRUPTIBLE && status == JITLOCK_ERR_INTERRUPTED))
            continue;
        if (status != JITLOCK_OK)
            violation("acquire with %x: %s", options.flags, jitlock_last_error_message());
        hold.testimony.begin = now();
        hold.testimony.pid = (uint32_t)getpid();
        hold.testimony.kind = options.flags & JITLOCK_SHARED ? READER : WRITER;
        hold.info.struct_size = sizeof hold.info;
        struct stat locked;
        if (jitlock_info(hold.lock, &hold.info) != JITLOCK_OK || fstat(hold.info.fd, &locked))
            violation("info: %s", jitlock_last_error_message());
        hold.inode = locked.st_ino;
        work(&hold, &seed, options.flags);
        int was_in_place = in_place(&hold);
        testify(&hold);
        status = jitlock_release(hold.lock);
        if (status != JITLOCK_OK && status != JITLOCK_ERR_LOST)
            violation("release: %s", jitlock_last_error_message());
        if (status == JITLOCK_OK && !was_in_place)
            violation("a lost lock was released as if it had been kept");
    }
    return NULL;
}

static int count_descriptors_of_locks(void) {
    int count = 0;
    DIR *entries = opendir("/proc/self/fd");
    struct dirent *entry;
    while ((entry = readdir(entries))) {
        char target[4096];
        ssize_t length = readlinkat(dirfd(entries), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        count += strstr(target, ".lock") != NULL;
    }
    closedir(entries);
    return count;
}

static int count_threads(void) {
    int count = 0;
    DIR *entries = opendir("/proc/self/task");
    while (readdir(entries))
        count++;
    closedir(entries);
    return count - 2;
}

static void handle(int signal) {
    (void)signal;
}

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    cache = arguments[1];
    scratch = arguments[2];
    unsigned seed = (unsigned)atoi(arguments[3]);
    snprintf(lock_file, sizeof lock_file, "%s.lock", cache);
    char path[4200];
    snprintf(path, sizeof path, "%s/testimony", scratch);
    testimonies = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGWINCH, &action, NULL);
    pthread_t thread[2];
    int threads = 1 + (int)(seed % 2);
    for (int i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, weather, (void *)(size_t)(seed * 2 + (unsigned)i));
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    /* Whoever had the lock when the last wait was given up may keep its helper for a while. */
    for (int wait = 0; count_threads() != 1 || count_descriptors_of_locks() != 0; wait++) {
        if (wait == 30000)
            violation("%d threads and %d descriptors were left", count_threads() - 1, count_descriptors_of_locks());
        usleep(1000);
    }
    return 0;
}
