/* Threads acquire, release and time out while the main thread forks; every child acquires a lock of its own. A hang
 * anywhere ends in SIGALRM. */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jitlock.h"

enum { THREADS = 8, FORKS = 300 };

static const char *cache;
static volatile int stop;

static void *work(void *argument) {
    (void)argument;
    for (int i = 0; !stop; i++) {
        jitlock_t lock;
        if (jitlock_acquire(cache, i % 3, &lock) == JITLOCK_OK && jitlock_release(lock) != JITLOCK_OK)
            abort();
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    cache = arguments[1];
    alarm(120);
    /* The process's first call must not race with a fork; see the header. */
    jitlock_t first;
    if (jitlock_acquire(cache, 0, &first) != JITLOCK_OK || jitlock_release(first) != JITLOCK_OK)
        return 1;
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, work, NULL);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            char own[4096];
            alarm(60);
            snprintf(own, sizeof own, "%s.%d", cache, i % 4);
            jitlock_t lock;
            jitlock_status_t status = jitlock_acquire(own, 30000, &lock);
            _exit(status == JITLOCK_OK && jitlock_release(lock) == JITLOCK_OK ? 0 : 1);
        }
        int status;
        waitpid(child, &status, 0);
        if (status != 0) {
            printf("child %d: status %x\n", i, (unsigned)status);
            return 1;
        }
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    return 0;
}
