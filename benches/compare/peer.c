/* The locks of this field, side by side, behind one set of commands on standard input. Each peer's rule is our own few
 * lines of it; py-filelock itself is in peer.py.
 *
 *     uncontended KIND PATH COUNT        nanoseconds of each acquire+release
 *     hold KIND PATH                     acquires and answers the time
 *     release KIND PATH                  answers the time just before, and gives it back
 *     wait KIND PATH MILLIS              CPU microseconds and context switches of a wait that times out
 *     convoy KIND PATH COUNT             nanoseconds from a release until the last of COUNT waiting processes had it
 *     threads KIND PATH COUNT            the same for threads of one process
 *
 * All times are of CLOCK_MONOTONIC, which processes share. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jitlock.h>

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void die(const char *what) {
    printf("error %s\n", what);
    exit(1);
}

union lock {
    jitlock_t handle;
    int descriptor;
};

/* Each acquire waits up to `millis` and answers whether it has the lock; a path is that of the cache. */
typedef int acquire(const char *path, int64_t millis, union lock *lock);
typedef void release(const char *path, union lock *lock);

static int jitlock_get(const char *path, int64_t millis, union lock *lock) {
    return jitlock_acquire(path, millis, &lock->handle) == JITLOCK_OK;
}

static void jitlock_give(const char *path, union lock *lock) {
    (void)path;
    if (jitlock_release(lock->handle) != JITLOCK_OK)
        die(jitlock_last_error_message());
}

static const char *beside(const char *path, const char *suffix) {
    static __thread char result[4096];
    snprintf(result, sizeof result, "%s%s", path, suffix);
    return result;
}

static int open_lock(const char *path) {
    int descriptor = open(beside(path, ".lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0)
        die("open");
    return descriptor;
}

/* flock(2) alone: the floor. */
static int raw_get(const char *path, int64_t millis, union lock *lock) {
    (void)millis;
    lock->descriptor = open_lock(path);
    return flock(lock->descriptor, LOCK_EX) == 0;
}

static void raw_give(const char *path, union lock *lock) {
    (void)path;
    flock(lock->descriptor, LOCK_UN);
    close(lock->descriptor);
}

/* The system calls of jitlock's protocol, each of which PROTOCOL.md gives a reason for, and nothing else: its floor. */
#define LOOKED_AT (STATX_TYPE | STATX_MODE | STATX_INO | STATX_UID | STATX_NLINK)

static int protocol_get(const char *path, int64_t millis, union lock *lock) {
    static const char held[512] = "jitlock 1 held\n";
    char record[512];
    struct statx found;
    (void)millis;
    statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, LOOKED_AT, &found);
    lock->descriptor = open(beside(path, ".lock"), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOATIME);
    if (lock->descriptor < 0 || flock(lock->descriptor, LOCK_EX | LOCK_NB) != 0)
        die("protocol");
    statx(lock->descriptor, "", AT_EMPTY_PATH, LOOKED_AT, &found);
    if (pread(lock->descriptor, record, sizeof record, 0) < 0)
        die("pread");
    statx(AT_FDCWD, beside(path, "/lock"), AT_SYMLINK_NOFOLLOW, LOOKED_AT, &found);
    return pwrite(lock->descriptor, held, sizeof held, 0) == sizeof held;
}

static void protocol_give(const char *path, union lock *lock) {
    struct statx found;
    statx(AT_FDCWD, beside(path, ".lock"), AT_SYMLINK_NOFOLLOW, LOOKED_AT, &found);
    if (pwrite(lock->descriptor, "free", 4, 10) != 4)
        die("pwrite");
    flock(lock->descriptor, LOCK_UN);
    close(lock->descriptor);
}

/* A wait with a deadline, in plain C: flock(2) has none, so a helper thread blocks in it, and wakes the caller. */
struct helped {
    pthread_mutex_t mutex;
    pthread_cond_t had;
    int descriptor;
    int done;
};

static void *help(void *argument) {
    struct helped *helped = argument;
    flock(helped->descriptor, LOCK_EX);
    pthread_mutex_lock(&helped->mutex);
    helped->done = 1;
    pthread_cond_signal(&helped->had);
    pthread_mutex_unlock(&helped->mutex);
    return NULL;
}

static int helper_get(const char *path, int64_t millis, union lock *lock) {
    struct helped helped = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, open_lock(path), 0};
    struct timespec limit;
    pthread_t thread;
    lock->descriptor = helped.descriptor;
    if (flock(lock->descriptor, LOCK_EX | LOCK_NB) == 0)
        return 1;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += millis / 1000 + 1;
    if (pthread_create(&thread, NULL, help, &helped) != 0)
        die("pthread_create");
    pthread_mutex_lock(&helped.mutex);
    while (!helped.done && pthread_cond_timedwait(&helped.had, &helped.mutex, &limit) == 0)
        ;
    pthread_mutex_unlock(&helped.mutex);
    pthread_join(thread, NULL);
    return 1;
}

static int poll_flock(const char *path, int64_t millis, union lock *lock, int interval) {
    int64_t limit = now() + millis * 1000000;
    lock->descriptor = open_lock(path);
    while (flock(lock->descriptor, LOCK_EX | LOCK_NB) != 0) {
        if (now() >= limit) {
            close(lock->descriptor);
            return 0;
        }
        usleep((useconds_t)interval * 1000);
    }
    return 1;
}

/* GPTQModel's loop: a try each 100 ms. py-filelock's, for as many processes as Python would be too many: each 50 ms. */
static int poll100_get(const char *path, int64_t millis, union lock *lock) {
    return poll_flock(path, millis, lock, 100);
}

static int poll50_get(const char *path, int64_t millis, union lock *lock) {
    return poll_flock(path, millis, lock, 50);
}

/* FileBaton: the lock is that the file exists; looks each 100 ms. */
static int baton_get(const char *path, int64_t millis, union lock *lock) {
    int64_t limit = now() + millis * 1000000;
    while ((lock->descriptor = open(beside(path, ".baton"), O_CREAT | O_EXCL | O_CLOEXEC, 0755)) < 0) {
        if (now() >= limit)
            return 0;
        usleep(100000);
    }
    return 1;
}

static void baton_give(const char *path, union lock *lock) {
    close(lock->descriptor);
    unlink(beside(path, ".baton"));
}

static const struct kind {
    const char *name;
    acquire *get;
    release *give;
} kinds[] = {
    {"jitlock", jitlock_get, jitlock_give}, {"raw", raw_get, raw_give},      {"poll100", poll100_get, raw_give},
    {"protocol", protocol_get, protocol_give}, {"helper", helper_get, raw_give},
    {"poll50", poll50_get, raw_give},       {"baton", baton_get, baton_give},
};

static const struct kind *find(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name))
            return &kinds[i];
    die("no such kind");
    return NULL;
}

enum { LONG = 600000 };

static void uncontended(const struct kind *kind, const char *path, int count) {
    int64_t *times = malloc(sizeof *times * (size_t)count);
    union lock lock;
    for (int i = 0; i < count; i++) {
        int64_t begun = now();
        if (!kind->get(path, LONG, &lock))
            die("uncontended");
        kind->give(path, &lock);
        times[i] = now() - begun;
    }
    for (int i = 0; i < count; i++)
        printf("%lld ", (long long)times[i]);
    puts("");
    free(times);
}

static void cost_of_a_wait(const struct kind *kind, const char *path, int64_t millis) {
    struct rusage before, after;
    union lock lock;
    getrusage(RUSAGE_SELF, &before);
    if (kind->get(path, millis, &lock))
        die("the lock was free");
    getrusage(RUSAGE_SELF, &after);
#define MICROS(member) ((after.member.tv_sec - before.member.tv_sec) * 1000000 + after.member.tv_usec - before.member.tv_usec)
    printf("%ld %ld\n", (long)(MICROS(ru_utime) + MICROS(ru_stime)),
           after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw - before.ru_nivcsw);
}

struct shared {
    int ready, done;
    int64_t last;
};

struct waiter {
    const struct kind *kind;
    const char *path;
    struct shared *shared;
    int count;
};

static void *take_a_turn(void *argument) {
    struct waiter *waiter = argument;
    union lock lock;
    __atomic_add_fetch(&waiter->shared->ready, 1, __ATOMIC_SEQ_CST);
    if (!waiter->kind->get(waiter->path, LONG, &lock))
        die("convoy");
    waiter->kind->give(waiter->path, &lock);
    if (__atomic_add_fetch(&waiter->shared->done, 1, __ATOMIC_SEQ_CST) == waiter->count)
        waiter->shared->last = now();
    return NULL;
}

static void convoy(const struct kind *kind, const char *path, int count, int threads) {
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct waiter waiter = {kind, path, shared, count};
    pthread_t *thread = calloc((size_t)count, sizeof *thread);
    union lock lock;
    if (!kind->get(path, LONG, &lock))
        die("convoy");
    fflush(stdout);
    for (int i = 0; i < count; i++) {
        if (threads) {
            pthread_create(&thread[i], NULL, take_a_turn, &waiter);
        } else if (fork() == 0) {
            take_a_turn(&waiter);
            _exit(0);
        }
    }
    while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < count)
        usleep(1000);
    usleep(300000); /* until each is in its queue, or in its loop */
    int64_t begun = now();
    kind->give(path, &lock);
    for (int i = 0; i < count; i++)
        if (threads)
            pthread_join(thread[i], NULL);
        else
            wait(NULL);
    printf("%lld\n", (long long)(shared->last - begun));
    munmap(shared, sizeof *shared);
    free(thread);
}

int main(void) {
    static char line[8192], verb[32], name[4096], path[4096];
    union lock held = {0};
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    while (fgets(line, sizeof line, stdin)) {
        long long number = 0;
        if (sscanf(line, "%31s %4095s %4095s %lld", verb, name, path, &number) < 2)
            die("no such command");
        const struct kind *kind = find(name);
        if (!strcmp(verb, "uncontended")) {
            uncontended(kind, path, (int)number);
        } else if (!strcmp(verb, "hold")) {
            puts("waiting");
            fflush(stdout);
            if (!kind->get(path, LONG, &held))
                die("hold");
            printf("%lld\n", (long long)now());
        } else if (!strcmp(verb, "release")) {
            printf("%lld\n", (long long)now());
            kind->give(path, &held);
        } else if (!strcmp(verb, "wait")) {
            cost_of_a_wait(kind, path, number);
        } else if (!strcmp(verb, "convoy") || !strcmp(verb, "threads")) {
            convoy(kind, path, (int)number, verb[0] == 't');
        } else {
            die("no such command");
        }
        fflush(stdout);
    }
    return 0;
}
