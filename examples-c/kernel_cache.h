/*
 * Kernels compiled when they are first needed, into a cache that any number of processes share.
 *
 * Copy kernel_cache.c and this file as the start of a loader of your own: exchange compile() for your compiler, and
 * keep the order of kernel_load().
 */

#ifndef KERNEL_CACHE_H
#define KERNEL_CACHE_H

#include <stdint.h>
#include <sys/types.h>

enum kernel_event {
    KERNEL_WAITING,    /* for `pid`, which builds the same kernel */
    KERNEL_RECOVERING, /* the last builder died, and what it left is gone */
    KERNEL_BUILDING,   /* `pid` is the compiler */
    KERNEL_BUILT,
    KERNEL_LOADED
};

/* Told what happens, on the thread that loads; may be NULL. */
typedef void kernel_watcher(void *user, enum kernel_event event, pid_t pid);

typedef void kernel_function(const float *x, float *y, int n);

/*
 * The function `run` of the C source, built if no process has built it yet.
 *
 * Returns NULL when there is none, and then `message` says why: take a path that needs no compiler. With
 * JITLOCK_TIMEOUT_DEFAULT that is at most ten minutes later.
 */
kernel_function *kernel_load(const char *cache, const char *source, int64_t timeout_ms, kernel_watcher *watcher,
                             void *user, char *message, size_t message_size);

/* Whether the kernel is there already. */
int kernel_is_built(const char *cache, const char *source);

#endif
