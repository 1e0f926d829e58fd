/* Preloaded: an flock(2) that answers FLOCK_ERRNO, the first FLOCK_FAILURES times or always. */

#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int flock(int descriptor, int operation) {
    static int failed;
    const char *times = getenv("FLOCK_FAILURES");
    if (times && failed >= atoi(times))
        return (int)syscall(SYS_flock, descriptor, operation);
    failed++;
    errno = atoi(getenv("FLOCK_ERRNO"));
    return -1;
}
