#define _GNU_SOURCE
#include "kernel_cache.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jitlock.h>

extern char **environ;

static const char *const FLAGS[] = {"-O3", "-shared", "-fPIC"};

struct load {
    char directory[PATH_MAX - 64]; /* one kernel's; its lock is beside it */
    char library[PATH_MAX];        /* appears there whole or not at all */
    kernel_watcher *watcher;
    void *user;
    char *message;
    size_t message_size;
};

static void tell(const struct load *load, enum kernel_event event, pid_t pid) {
    if (load->watcher)
        load->watcher(load->user, event, pid);
}

static void explain(const struct load *load, const char *what, const char *why) {
    snprintf(load->message, load->message_size, "%s: %s", what, why);
}

/* FNV-1a over the source and the flags: another source is another kernel. 0 if it cannot be read. */
static uint64_t fingerprint(const char *source) {
    uint64_t hash = 0xcbf29ce484222325;
    FILE *file = fopen(source, "r");
    if (!file)
        return 0;
    for (int c; (c = getc(file)) != EOF;)
        hash = (hash ^ (uint64_t)c) * 0x100000001b3;
    fclose(file);
    for (size_t i = 0; i < sizeof FLAGS / sizeof *FLAGS; i++)
        for (const char *c = FLAGS[i]; *c; c++)
            hash = (hash ^ (uint64_t)*c) * 0x100000001b3;
    return hash;
}

static int locate(struct load *load, const char *cache, const char *source) {
    const char *name = strrchr(source, '/') ? strrchr(source, '/') + 1 : source;
    uint64_t hash = fingerprint(source);
    int length = snprintf(load->directory, sizeof load->directory, "%s/%.*s-%016llx", cache,
                          (int)strcspn(name, "."), name, (unsigned long long)hash);
    if (!hash || length >= (int)sizeof load->directory)
        return -1;
    snprintf(load->library, sizeof load->library, "%s/kernel.so", load->directory);
    return 0;
}

/* Compiles beside the library and renames: who looks without the lock sees all of it or none. */
static int compile(const struct load *load, const char *source) {
    char partial[PATH_MAX + 32];
    snprintf(partial, sizeof partial, "%s.%d", load->library, (int)getpid());
    const char *arguments[] = {"cc", FLAGS[0], FLAGS[1], FLAGS[2], "-o", partial, source, "-lm", NULL};
    if (mkdir(load->directory, 0777) != 0 && errno != EEXIST) {
        explain(load, load->directory, strerror(errno));
        return -1;
    }
    pid_t compiler;
    int status = posix_spawnp(&compiler, "cc", NULL, NULL, (char **)arguments, environ);
    if (status != 0) {
        explain(load, "cc", strerror(status));
        return -1;
    }
    tell(load, KERNEL_BUILDING, compiler);
    while (waitpid(compiler, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0 || rename(partial, load->library) != 0) {
        explain(load, source, "cannot be compiled");
        return -1;
    }
    tell(load, KERNEL_BUILT, 0);
    return 0;
}

static int on_progress(const jitlock_progress_t *progress, void *user) {
    tell(user, KERNEL_WAITING, (pid_t)progress->owner->pid);
    return 0;
}

/* Under the lock: looks again, since another process may have built it while we waited. */
static int build(struct load *load, const char *source, int64_t timeout_ms) {
    jitlock_options_t options = JITLOCK_OPTIONS_INIT;
    options.timeout_ms = timeout_ms;
    /* INHERIT: a compiler that outlives us keeps the lock, so nobody builds beside it. CLEAR: what a dead builder left
       is deleted before we look at it. */
    options.flags = JITLOCK_INHERIT | JITLOCK_CLEAR_IF_OWNER_DIED;
    options.progress = on_progress;
    options.progress_interval_ms = 50;
    options.user = load;
    options.error = load->message;
    options.error_size = load->message_size;
    jitlock_t lock;
    if (jitlock_acquire_with(load->directory, &options, &lock) != JITLOCK_OK)
        return -1;
    jitlock_info_t info = {.struct_size = sizeof info};
    if (jitlock_info(lock, &info) == JITLOCK_OK && info.previous_owner == JITLOCK_PREVIOUS_DIED)
        tell(load, KERNEL_RECOVERING, 0);
    int failed = access(load->library, R_OK) != 0 && compile(load, source) != 0;
    if (jitlock_release(lock) != JITLOCK_OK && !failed) {
        /* Somebody deleted the lock file, so somebody else may have built at the same time. */
        explain(load, load->directory, jitlock_last_error_message());
        failed = 1;
    }
    return failed ? -1 : 0;
}

kernel_function *kernel_load(const char *cache, const char *source, int64_t timeout_ms, kernel_watcher *watcher,
                             void *user, char *message, size_t message_size) {
    struct load load = {.watcher = watcher, .user = user, .message = message, .message_size = message_size};
    if (locate(&load, cache, source) != 0) {
        explain(&load, source, strerror(errno));
        return NULL;
    }
    if (access(load.library, R_OK) != 0 && build(&load, source, timeout_ms) != 0)
        return NULL;
    void *library = dlopen(load.library, RTLD_NOW | RTLD_LOCAL);
    kernel_function *run = NULL;
    if (library)
        *(void **)&run = dlsym(library, "run");
    if (run)
        tell(&load, KERNEL_LOADED, 0);
    else
        explain(&load, load.library, dlerror());
    return run;
}

int kernel_is_built(const char *cache, const char *source) {
    struct load load;
    return locate(&load, cache, source) == 0 && access(load.library, R_OK) == 0;
}
