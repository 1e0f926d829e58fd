/* Waits under a rain of signals: they neither end nor shorten it, and are handled on the program's own threads. With
 * JITLOCK_INTERRUPTIBLE the first one ends it, whether system calls are restarted after it or not. */

#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "jitlock.h"

static pthread_t main_thread;
static volatile sig_atomic_t handled, handled_elsewhere;

static void handle(int signal) {
    (void)signal;
    handled++;
    if (!pthread_equal(pthread_self(), main_thread))
        handled_elsewhere++;
}

static void rain(int flags, int microseconds) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    action.sa_flags = flags;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int descriptors(void) {
    int count = 0;
    DIR *entries = opendir("/proc/self/fd");
    while (readdir(entries))
        count++;
    closedir(entries);
    return count;
}

static void expect(int truth, const char *what) {
    if (!truth) {
        printf("%s (%d handled, %d elsewhere)\n", what, (int)handled, (int)handled_elsewhere);
        exit(1);
    }
}

int main(void) {
    char directory[] = "/tmp/jitlock-signals-XXXXXX", cache[64], lock_file[72];
    main_thread = pthread_self();
    expect(mkdtemp(directory) != NULL, "mkdtemp");
    snprintf(cache, sizeof cache, "%s/cache", directory);
    snprintf(lock_file, sizeof lock_file, "%s.lock", cache);

    int ready[2];
    expect(pipe(ready) == 0, "pipe");
    pid_t holder = fork();
    if (holder == 0) {
        jitlock_t lock;
        char byte = (char)jitlock_acquire(cache, 0, &lock);
        expect(write(ready[1], &byte, 1) == 1, "write");
        for (;;)
            pause();
    }
    char byte = 1;
    expect(read(ready[0], &byte, 1) == 1 && byte == 0, "the holder");

    jitlock_t lock;
    const int restarts[] = {0, SA_RESTART};
    for (int i = 0; i < 2; i++) {
        handled = 0;
        rain(restarts[i], 10000);
        double begun = now();
        expect(jitlock_acquire(cache, 500, &lock) == JITLOCK_ERR_TIMEOUT, "a signal ended a plain wait");
        expect(now() - begun >= 0.5, "signals shortened a plain wait");
        expect(handled > 0 && handled_elsewhere == 0, "signals were not handled here");

        int before = descriptors();
        jitlock_options_t options = JITLOCK_OPTIONS_INIT;
        options.timeout_ms = JITLOCK_WAIT_FOREVER;
        options.flags = JITLOCK_INTERRUPTIBLE;
        expect(jitlock_acquire_with(cache, &options, &lock) == JITLOCK_ERR_INTERRUPTED, "nothing ended the wait");
        expect(lock == JITLOCK_NONE && descriptors() == before, "something was left of an interrupted wait");
    }
    rain(0, 0);
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    expect(!sigismember(&mask, SIGALRM), "the signal mask was changed");
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    jitlock_options_t options = JITLOCK_OPTIONS_INIT;
    options.flags = JITLOCK_INTERRUPTIBLE;
    expect(jitlock_acquire_with(cache, &options, &lock) == JITLOCK_OK, "the lock after that");
    expect(jitlock_release(lock) == JITLOCK_OK, "its release");
    unlink(lock_file);
    rmdir(directory);
    return 0;
}
