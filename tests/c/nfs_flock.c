/* Preloaded: an flock(2) as NFS has it, where an exclusive lock is for writers and a shared one for readers (flock(2), NFS
 * details). */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

int flock(int descriptor, int operation) {
    int refused = operation & LOCK_EX ? O_RDONLY : operation & LOCK_SH ? O_WRONLY : -1;
    if ((fcntl(descriptor, F_GETFL) & O_ACCMODE) == refused) {
        errno = EBADF;
        return -1;
    }
    return (int)syscall(SYS_flock, descriptor, operation);
}
