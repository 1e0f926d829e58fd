/* A process that does to locks what its standard input says, one answer a line. The tests' hands in other processes. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jitlock.h"

static int count_entries(const char *directory) {
    int count = 0;
    DIR *entries = opendir(directory);
    while (entries && readdir(entries))
        count++;
    if (entries)
        closedir(entries);
    return count - 2;
}

/* The answer to a call: its code, what it made, and its message if it failed. */
static void answer(int status, uint64_t value) {
    printf("%d %" PRIu64 " %s\n", status, value, status ? jitlock_last_error_message() : "");
}

/* Runs `call` in a forked child and answers its status; the child's message is lost. */
#define IN_CHILD(call)                                                                                     \
    do {                                                                                                   \
        fflush(stdout);                                                                                    \
        pid_t child = fork();                                                                              \
        if (child == 0)                                                                                    \
            _exit(-(call));                                                                                \
        int status;                                                                                        \
        waitpid(child, &status, 0);                                                                        \
        printf("%d 0\n", WIFEXITED(status) ? -WEXITSTATUS(status) : 1000 + WTERMSIG(status));              \
    } while (0)

static jitlock_status_t acquire_in_child(const char *path, int64_t timeout, jitlock_t parents) {
    jitlock_t lock;
    jitlock_status_t status = jitlock_acquire(path, timeout, &lock);
    if (status)
        return status;
    if (lock == parents)
        return -100;
    return jitlock_release(lock);
}

static jitlock_status_t acquire_with(const char *path, int64_t timeout, uint32_t flags, jitlock_t *lock) {
    jitlock_options_t options = JITLOCK_OPTIONS_INIT;
    options.timeout_ms = timeout;
    options.flags = flags;
    return jitlock_acquire_with(path, &options, lock);
}

/* Keeps what remains at the first call, and ends the wait. */
static int keep_remaining(const jitlock_progress_t *progress, void *user) {
    *(int64_t *)user = progress->remaining_ns / 1000000;
    return 1;
}

static volatile sig_atomic_t signals;

static void count_signal(int signal) {
    (void)signal;
    signals++;
}

int main(void) {
    char line[8192], verb[32], path[4096];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        int64_t number = 0;
        uint32_t flags = 0;
        jitlock_t lock = JITLOCK_NONE;
        path[0] = 0;
        int words = sscanf(line, "%31s %4095s %" SCNd64 " %" SCNu32, verb, path, &number, &flags);
        jitlock_t handle = strtoull(path, NULL, 10);
        if (words < 1)
            continue;
        if (!strcmp(verb, "acquire")) {
            jitlock_status_t status = acquire_with(path, number, flags, &lock);
            answer(status, lock);
        } else if (!strcmp(verb, "release")) {
            answer(jitlock_release(handle), 0);
        } else if (!strcmp(verb, "clear")) {
            answer(jitlock_clear_cache(path, number), 0);
        } else if (!strcmp(verb, "clear-held")) {
            answer(jitlock_clear_held(handle), 0);
        } else if (!strcmp(verb, "info")) {
            jitlock_info_t info = {.struct_size = sizeof info};
            jitlock_status_t status = jitlock_info(handle, &info);
            printf("%d %d %d %d %d %d\n", status, info.previous_owner, info.lost, info.recorded, info.fd, info.baton);
        } else if (!strcmp(verb, "query")) {
            jitlock_owner_t owner = {.struct_size = sizeof owner};
            jitlock_status_t status = jitlock_query(path, &owner);
            printf("%d %d %u %" PRId64 " %" PRId64 " %d %d %s\n", status, owner.state, owner.holders, owner.pid,
                   owner.record_pid, owner.record_agrees, owner.is_ancestor, owner.command);
        } else if (!strcmp(verb, "obstacles")) {
            jitlock_owner_t owner = {.struct_size = sizeof owner};
            jitlock_status_t status = jitlock_query(path, &owner);
            printf("%d %d %" PRId64 " %u %" PRId64 "\n", status, owner.baton, owner.baton_pid, owner.orphans,
                   owner.orphan_pid);
        } else if (!strcmp(verb, "filebaton")) {
            /* Torch before 2.14, with the flags and the mode of Python's os.open. */
            printf("0 %d\n", open(path, O_CREAT | O_EXCL | O_CLOEXEC, 0777));
        } else if (!strcmp(verb, "filelock")) {
            /* Torch from 2.14 on. */
            int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
            printf("0 %d\n", flock(file, LOCK_EX | LOCK_NB) ? -1 : file);
        } else if (!strcmp(verb, "open")) {
            printf("0 %d\n", open(path, O_RDONLY | O_CLOEXEC));
        } else if (!strcmp(verb, "close")) {
            printf("0 %d\n", close((int)handle));
        } else if (!strcmp(verb, "count-signals")) {
            struct sigaction action = {.sa_handler = count_signal};
            for (int signal = 1; signal < NSIG; signal++)
                if (signal != SIGCHLD && signal != SIGCONT)
                    sigaction(signal, &action, NULL);
            printf("0 0\n");
        } else if (!strcmp(verb, "signals")) {
            printf("0 %d\n", (int)signals);
        } else if (!strcmp(verb, "timeout-ms")) {
            printf("0 %" PRId64 "\n", jitlock_timeout_ms(strtod(path, NULL)));
        } else if (!strcmp(verb, "remaining")) {
            int64_t remaining = -2;
            jitlock_options_t options = JITLOCK_OPTIONS_INIT;
            options.timeout_ms = number;
            options.progress_interval_ms = 1;
            options.progress = keep_remaining;
            options.user = &remaining;
            jitlock_status_t status = jitlock_acquire_with(path, &options, &lock);
            printf("%d %" PRId64 "\n", status, remaining);
        } else if (!strcmp(verb, "message")) {
            printf("0 0 %s\n", jitlock_last_error_message());
        } else if (!strcmp(verb, "descriptors")) {
            printf("0 %d\n", count_entries("/proc/self/fd"));
        } else if (!strcmp(verb, "threads")) {
            printf("0 %d\n", count_entries("/proc/self/task"));
        } else if (!strcmp(verb, "fork-release")) {
            IN_CHILD(jitlock_release(handle));
        } else if (!strcmp(verb, "fork-acquire")) {
            /* The handle that the child must not be given is in the flags' place. */
            IN_CHILD(acquire_in_child(path, number, strtoull(strrchr(line, ' '), NULL, 10)));
        } else if (!strcmp(verb, "fork-info")) {
            jitlock_info_t info = {.struct_size = sizeof info};
            IN_CHILD(jitlock_info(handle, &info));
        } else if (!strcmp(verb, "fork-sleep") || !strcmp(verb, "clone-sleep")) {
            /* A child that lives until it is killed: through the fork handlers, or past them. */
            pid_t child = verb[0] == 'f' ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
            if (child == 0)
                for (;;)
                    pause();
            printf("0 %d\n", child);
        } else if (!strcmp(verb, "exec-sleep")) {
            pid_t child = fork();
            if (child == 0) {
                execlp("sleep", "sleep", "1000", (char *)NULL);
                _exit(127);
            }
            printf("0 %d\n", child);
        } else if (!strcmp(verb, "spawn-sleep") || !strcmp(verb, "vfork-sleep")) {
            char *arguments[] = {"sleep", "1000", NULL};
            pid_t child;
            if (verb[0] == 's')
                posix_spawnp(&child, "sleep", NULL, NULL, arguments, environ);
            else if ((child = vfork()) == 0) {
                execvp("sleep", arguments);
                _exit(127);
            }
            printf("0 %d\n", child);
        } else if (!strcmp(verb, "system")) {
            /* Everything after the verb, by a shell; its exit status is the answer. */
            fflush(stdout);
            int status = system(strchr(line, ' ') + 1);
            printf("%d 0\n", WEXITSTATUS(status));
        } else if (!strcmp(verb, "reap")) {
            kill((pid_t)handle, SIGKILL);
            waitpid((pid_t)handle, NULL, 0);
            printf("0 0\n");
        } else if (!strcmp(verb, "exit")) {
            return 0;
        } else {
            printf("-1000 0 unknown verb %s\n", verb);
        }
    }
    return 0;
}
