/* One of many that want one lock, and a witness of what must not happen.
 *
 *     contender CACHE SCRATCH ROUNDS THREADS SEED
 *
 * In each round a thread acquires, checks, works and releases. It ends with 0 if all went well, with 3 and a line on
 * standard output if it saw two holders. */

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jitlock.h"

static const char *cache, *scratch;
static int rounds;

static void fail(const char *what) {
    printf("violation: %s\n", what);
    fflush(stdout);
    _exit(3);
}

static int open_in_scratch(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        fail("scratch file");
    return file;
}

static long read_number(int file) {
    char text[17] = {0};
    return pread(file, text, 16, 0) > 0 ? atol(text) : 0;
}

static void write_number(int file, long number) {
    char text[18];
    snprintf(text, sizeof text, "%015ld\n", number);
    if (pwrite(file, text, 16, 0) != 16)
        fail("scratch write");
}

static void *contend(void *argument) {
    unsigned seed = (unsigned)(size_t)argument;
    int inside = open_in_scratch("inside"), counter = open_in_scratch("counter");
    for (int round = 0; round < rounds; round++) {
        jitlock_t lock;
        if (jitlock_acquire(cache, 60000, &lock) != JITLOCK_OK)
            fail(jitlock_last_error_message());
        long me = getpid() * 100000L + (long)(seed % 100000);
        write_number(inside, me);
        write_number(counter, read_number(counter) + 1);
        if (rand_r(&seed) % 8 == 0)
            usleep(rand_r(&seed) % 2000);
        if (read_number(inside) != me)
            fail("two holders");
        if (jitlock_release(lock) != JITLOCK_OK)
            fail(jitlock_last_error_message());
    }
    return NULL;
}

static int count_entries(const char *directory) {
    int count = 0;
    DIR *entries = opendir(directory);
    while (entries && readdir(entries))
        count++;
    closedir(entries);
    return count;
}

int main(int count, char **arguments) {
    if (count != 6)
        return 2;
    cache = arguments[1];
    scratch = arguments[2];
    rounds = atoi(arguments[3]);
    int threads = atoi(arguments[4]);
    unsigned seed = (unsigned)atoi(arguments[5]);
    pthread_t thread[64];
    for (int i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, contend, (void *)(size_t)(seed * 64 + (unsigned)i));
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    /* Standard streams, and two scratch files a thread. A helper may take a moment to end. */
    for (int wait = 0; count_entries("/proc/self/task") != 1 + 2; wait++) {
        if (wait == 2000)
            fail("a thread was left behind");
        usleep(1000);
    }
    for (int i = 3; i < 4096; i++) {
        char link[64], target[4096];
        snprintf(link, sizeof link, "/proc/self/fd/%d", i);
        ssize_t length = readlink(link, target, sizeof target - 1);
        if (length > 5 && !strncmp(target + length - 5, ".lock", 5))
            fail("a descriptor was left open");
    }
    return 0;
}
