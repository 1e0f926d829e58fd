/* Preloaded: an flock(2) that no signal can end, and that comes back only when the file named by GATE is there. */

#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int flock(int descriptor, int operation) {
    const char *gate = getenv("GATE");
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    while (!gate || access(gate, F_OK) != 0)
        usleep(1000);
    return (int)syscall(SYS_flock, descriptor, operation);
}
