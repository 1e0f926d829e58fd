/* libFuzzer's inputs as records of a dead or lying owner, as paths, and as sequences of calls that a model foresees. */

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jitlock.h"

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: not %s: %s\n", __LINE__, #condition, jitlock_last_error_message());              \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static int count_descriptors(void) {
    int count = 0;
    DIR *entries = opendir("/proc/self/fd");
    while (entries && readdir(entries))
        count++;
    closedir(entries);
    return count;
}

static int32_t state_of(const char *cache) {
    jitlock_owner_t owner = {.struct_size = sizeof owner};
    CHECK(jitlock_query(cache, &owner) == JITLOCK_OK);
    CHECK(memchr(owner.command, 0, sizeof owner.command) && memchr(owner.host, 0, sizeof owner.host));
    return owner.state;
}

/* Whatever a lock file says, its lock can be had, and says afterwards that it was released. */
static void record(const uint8_t *data, size_t size) {
    static const char text[] = "jitlock 1 free\n";
    char first[sizeof text - 1];
    jitlock_t lock;
    int file = open("record.lock", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && write(file, data, size) == (ssize_t)size);
    CHECK(state_of("record") == JITLOCK_OWNER_NONE);
    CHECK(jitlock_acquire("record", 0, &lock) == JITLOCK_OK);
    CHECK(state_of("record") == JITLOCK_OWNER_EXCLUSIVE);
    CHECK(jitlock_release(lock) == JITLOCK_OK);
    CHECK(pread(file, first, sizeof first, 0) == sizeof first && !memcmp(first, text, sizeof first));
    close(file);
}

/* Any bytes below the working directory are a cache, or refused in words. */
static void path(const uint8_t *data, size_t size) {
    char cache[5000] = "paths/";
    jitlock_t lock;
    if (size >= sizeof cache - 8 || memmem(data, size, "..", 2))
        return;
    memcpy(cache + strlen(cache), data, size);
    jitlock_status_t status = jitlock_acquire(cache, 0, &lock);
    CHECK((status == JITLOCK_OK) == (lock != JITLOCK_NONE));
    if (status) {
        CHECK(*jitlock_last_error_message() && !strpbrk(jitlock_last_error_message(), "\n\r\033"));
        return;
    }
    CHECK(state_of(cache) == JITLOCK_OWNER_EXCLUSIVE);
    CHECK(jitlock_release(lock) == JITLOCK_OK);
    CHECK(jitlock_clear_cache(cache, 0) != JITLOCK_ERR_INTERNAL);
}

enum { CACHES = 3, LOCKS = 6 };

typedef struct {
    jitlock_t handle;
    int cache, shared;
} held_t;

/* One thread's calls: each is answered as a list of its locks foresees. */
static void calls(const uint8_t *data, size_t size) {
    static const char *const names[CACHES] = {"a", "./b/", "c/d"};
    static const char *const batons[CACHES] = {"a/lock", "b/lock", "c/d/lock"};
    held_t held[LOCKS] = {0};
    for (; size >= 2; data += 2, size -= 2) {
        int cache = data[1] % CACHES, slot = data[1] / CACHES % LOCKS, readers = 0, writers = 0;
        for (int other = 0; other < LOCKS; other++)
            if (held[other].handle && held[other].cache == cache)
                *(held[other].shared ? &readers : &writers) += 1;
        held_t *mine = &held[slot];
        jitlock_options_t options = JITLOCK_OPTIONS_INIT;
        jitlock_info_t info = {.struct_size = sizeof info};
        options.timeout_ms = 0;
        switch (data[0] % 7) {
        case 0:
        case 1:
            if (mine->handle)
                break;
            mine->shared = data[0] % 7;
            mine->cache = cache;
            options.flags = mine->shared ? JITLOCK_SHARED : 0;
            CHECK(jitlock_acquire_with(names[cache], &options, &mine->handle) ==
                  (writers || (readers && !mine->shared) ? JITLOCK_ERR_DEADLOCK : JITLOCK_OK));
            if (mine->handle && !mine->shared)
                CHECK(access(batons[cache], F_OK) != 0);
            break;
        case 2:
            CHECK(jitlock_release(mine->handle) == (mine->handle ? JITLOCK_OK : JITLOCK_ERR_INVALID_HANDLE));
            mine->handle = JITLOCK_NONE;
            break;
        case 3:
            CHECK(jitlock_clear_cache(names[cache], 0) == (readers || writers ? JITLOCK_ERR_DEADLOCK : JITLOCK_OK));
            if (!readers && !writers)
                CHECK(access(batons[cache], F_OK) != 0);
            break;
        case 4:
            CHECK(jitlock_clear_held(mine->handle) == (!mine->handle  ? JITLOCK_ERR_INVALID_HANDLE
                                                       : mine->shared ? JITLOCK_ERR_INVALID_ARGUMENT
                                                                      : JITLOCK_OK));
            break;
        case 5:
            CHECK(jitlock_info(mine->handle, &info) == (mine->handle ? JITLOCK_OK : JITLOCK_ERR_INVALID_HANDLE));
            CHECK(!info.lost && info.previous_owner == JITLOCK_PREVIOUS_CLEAN);
            CHECK(state_of(names[cache]) == (writers ? JITLOCK_OWNER_EXCLUSIVE : readers ? JITLOCK_OWNER_SHARED : JITLOCK_OWNER_NONE));
            break;
        default:
            mkdir("c", 0700);
            mkdir(names[cache], 0700);
            close(open(batons[cache], O_CREAT | O_WRONLY, 0600));
        }
    }
    for (int slot = 0; slot < LOCKS; slot++)
        if (held[slot].handle)
            CHECK(jitlock_release(held[slot].handle) == JITLOCK_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int descriptors;
    if (!descriptors)
        descriptors = count_descriptors();
    if (size) {
        void (*const targets[])(const uint8_t *, size_t) = {record, path, calls};
        targets[data[0] % 3](data + 1, size - 1);
    }
    /* A helper may be about to close its own. */
    for (int patience = 10000; count_descriptors() != descriptors; patience--) {
        CHECK(patience);
        usleep(1000);
    }
    return 0;
}
