/* The functions through which the library calls the system, each of which can be made to fail: at its Nth call, once or
 * from then on, with each error that its man page or a network file system knows.
 *
 * A program's own functions come before those of libc, for the libraries it is linked with too. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Not an errno: half of what was to be written is. */
enum { SHORT = 1000 };

/* Shared with the process that does the work, which may be killed. */
static struct fault {
    int call, error, lasting; /* which call of all, which of its errors, and whether all later calls of that function too */
    int reached, exhausted;   /* there was such a call; it knows no such error */
    char name[32];
    int number; /* the error itself */
} *fault;

static atomic_int armed, calls;

/* Rust's standard library repeats these for as long as they answer EINTR, which no signal does for ever. */
static int repeated(const char *name) {
    return !strcmp(name, "open64") || !strcmp(name, "read") || !strcmp(name, "pread64") || !strcmp(name, "pwrite64");
}

static int lasts(const char *name) {
    return fault->lasting && fault->reached && !strcmp(fault->name, name) && !(fault->number == EINTR && repeated(name));
}

static int fails(const char *name, const int *errors, size_t count) {
    if (!atomic_load(&armed))
        return 0;
    int call = atomic_fetch_add(&calls, 1) + 1;
    if (call < fault->call || (call > fault->call && !lasts(name)))
        return 0;
    if ((size_t)fault->error >= count) {
        fault->exhausted = 1;
        return 0;
    }
    strcpy(fault->name, name);
    fault->number = errors[fault->error];
    fault->reached = 1;
    errno = fault->number;
    return 1;
}

#define FAILS(name, ...) \
    ({ \
        static const int errors[] = {__VA_ARGS__}; \
        fails(#name, errors, sizeof errors / sizeof *errors); \
    })
#define REAL(name) \
    static __typeof__(name) *real_##name; \
    if (!real_##name) \
        real_##name = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define PATH_ERRORS EACCES, EIO, ELOOP, ENAMETOOLONG, ENOENT, ENOMEM, ENOTDIR, ESTALE, EINTR
#define OPEN_ERRORS PATH_ERRORS, EMFILE, ENFILE, EPERM, EROFS, ENOSPC, EDQUOT, EEXIST, EISDIR, EBUSY, EWOULDBLOCK, ENXIO, \
        EOVERFLOW
#define DIRECTORY_ERRORS PATH_ERRORS, EPERM, EROFS, ENOSPC, EDQUOT, EEXIST, ENOTEMPTY, EBUSY, EXDEV, EINVAL, EMLINK, EISDIR

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return FAILS(open64, OPEN_ERRORS) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int openat(int directory, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return FAILS(openat, OPEN_ERRORS) ? -1 : (int)syscall(SYS_openat, directory, path, flags, mode);
}

int flock(int file, int operation) {
    if (FAILS(flock, EBADF, EINTR, EINVAL, ENOLCK, EWOULDBLOCK, EOPNOTSUPP, ENOSYS, ESTALE, EIO))
        return -1;
    return (int)syscall(SYS_flock, file, operation);
}

int statx(int directory, const char *restrict path, int flags, unsigned mask, struct statx *restrict answer) {
    if (FAILS(statx, PATH_ERRORS, EBADF, EINVAL, ENOSYS, EPERM, EOVERFLOW))
        return -1;
    return (int)syscall(SYS_statx, directory, path, flags, mask, answer);
}

int fstat(int file, struct stat *answer) {
    REAL(fstat);
    return FAILS(fstat, EBADF, EIO, ENOMEM, EOVERFLOW, ESTALE) ? -1 : real_fstat(file, answer);
}

int fstatfs(int file, struct statfs *answer) {
    REAL(fstatfs);
    return FAILS(fstatfs, EBADF, EINTR, EIO, ENOMEM, ENOSYS, EOVERFLOW, ESTALE) ? -1 : real_fstatfs(file, answer);
}

ssize_t pread64(int file, void *to, size_t size, off64_t offset) {
    if (FAILS(pread64, EAGAIN, EBADF, EINTR, EINVAL, EIO, EISDIR, ENXIO, EOVERFLOW, ESTALE))
        return -1;
    return syscall(SYS_pread64, file, to, size, offset);
}

ssize_t pwrite64(int file, const void *from, size_t size, off64_t offset) {
    if (FAILS(pwrite64, EAGAIN, EBADF, EDQUOT, EFBIG, EINTR, EINVAL, EIO, ENOSPC, EPERM, ESTALE, SHORT)) {
        if (fault->number != SHORT)
            return -1;
        size /= 2;
    }
    return syscall(SYS_pwrite64, file, from, size, offset);
}

ssize_t read(int file, void *to, size_t size) {
    return FAILS(read, EAGAIN, EBADF, EINTR, EINVAL, EIO, EISDIR, ESRCH) ? -1 : syscall(SYS_read, file, to, size);
}

/* An error of close has closed all the same. */
int close(int file) {
    int failed = FAILS(close, EINTR, EIO, ENOSPC, EDQUOT), error = errno;
    int answer = (int)syscall(SYS_close, file);
    if (failed)
        errno = error;
    return failed ? -1 : answer;
}

int unlink(const char *path) {
    return FAILS(unlink, DIRECTORY_ERRORS) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int unlinkat(int directory, const char *path, int flags) {
    return FAILS(unlinkat, DIRECTORY_ERRORS) ? -1 : (int)syscall(SYS_unlinkat, directory, path, flags);
}

int mkdir(const char *path, mode_t mode) {
    return FAILS(mkdir, DIRECTORY_ERRORS) ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int mkdirat(int directory, const char *path, mode_t mode) {
    return FAILS(mkdirat, DIRECTORY_ERRORS) ? -1 : (int)syscall(SYS_mkdirat, directory, path, mode);
}

/* Every rename of the cache itself, if it is to look like a mount point. */
static const char *mount_point;

int renameat(int from, const char *name, int to, const char *new_name) {
    if (FAILS(renameat, DIRECTORY_ERRORS))
        return -1;
    if (mount_point && !strcmp(name, mount_point)) {
        errno = EBUSY;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from, name, to, new_name, 0);
}

DIR *fdopendir(int file) {
    REAL(fdopendir);
    return FAILS(fdopendir, EBADF, ENOMEM, ENOTDIR) ? NULL : real_fdopendir(file);
}

struct dirent *readdir(DIR *directory) {
    REAL(readdir);
    return FAILS(readdir, EBADF, EIO, ENOENT, ESTALE, ENOMEM) ? NULL : real_readdir(directory);
}

int fchmod(int file, mode_t mode) {
    return FAILS(fchmod, EPERM, EROFS, EIO, EBADF, ENOMEM) ? -1 : (int)syscall(SYS_fchmod, file, mode);
}

int chmod(const char *path, mode_t mode) {
    REAL(chmod);
    return FAILS(chmod, PATH_ERRORS, EPERM, EROFS) ? -1 : real_chmod(path, mode);
}

int fcntl(int file, int command, ...) {
    va_list rest;
    va_start(rest, command);
    long argument = va_arg(rest, long);
    va_end(rest);
    /* Asked by Rust's own checks of a descriptor that it closes, which take an error for a bug. */
    if (command != F_GETFD && FAILS(fcntl, EACCES, EAGAIN, EBADF, EBUSY, EINTR, EINVAL, EMFILE, ENOLCK, EPERM))
        return -1;
    return (int)syscall(SYS_fcntl, file, command, argument);
}

int pipe2(int ends[2], int flags) {
    return FAILS(pipe2, EMFILE, ENFILE, EINVAL) ? -1 : (int)syscall(SYS_pipe2, ends, flags);
}

int ppoll(struct pollfd *files, nfds_t count, const struct timespec *limit, const sigset_t *mask) {
    REAL(ppoll);
    return FAILS(ppoll, EFAULT, EINTR, EINVAL, ENOMEM) ? -1 : real_ppoll(files, count, limit, mask);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    REAL(pthread_create);
    return FAILS(pthread_create, EAGAIN, EINVAL, EPERM) ? errno : real_pthread_create(thread, attributes, run, argument);
}

ssize_t readlink(const char *path, char *to, size_t size) {
    return FAILS(readlink, PATH_ERRORS, EINVAL) ? -1 : syscall(SYS_readlinkat, AT_FDCWD, path, to, size);
}

char *realpath(const char *path, char *to) {
    REAL(realpath);
    return FAILS(realpath, PATH_ERRORS) ? NULL : real_realpath(path, to);
}

char *getcwd(char *to, size_t size) {
    REAL(getcwd);
    return FAILS(getcwd, EACCES, ENAMETOOLONG, ENOENT, ENOMEM) ? NULL : real_getcwd(to, size);
}

void *mmap64(void *at, size_t size, int protection, int flags, int file, off64_t offset) {
    REAL(mmap64);
    return FAILS(mmap64, ENOMEM, EAGAIN, EPERM) ? MAP_FAILED : real_mmap64(at, size, protection, flags, file, offset);
}

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    REAL(mmap);
    return FAILS(mmap, ENOMEM, EAGAIN, EPERM) ? MAP_FAILED : real_mmap(at, size, protection, flags, file, offset);
}

int madvise(void *at, size_t size, int advice) {
    return FAILS(madvise, EINVAL, ENOMEM, EAGAIN) ? -1 : (int)syscall(SYS_madvise, at, size, advice);
}

/* Some of the calls that have no function of their own: futex is not for us to break. */
long syscall(long number, ...) {
    va_list rest;
    va_start(rest, number);
    long word[6];
    for (int i = 0; i < 6; i++)
        word[i] = va_arg(rest, long);
    va_end(rest);
    if ((number == SYS_openat2 && FAILS(openat2, OPEN_ERRORS, ENOSYS, EXDEV, EAGAIN)) ||
        (number == SYS_pidfd_open && FAILS(pidfd_open, EMFILE, ENFILE, ENODEV, ENOMEM, ESRCH, ENOSYS)))
        return -1;
    REAL(syscall);
    return real_syscall(number, word[0], word[1], word[2], word[3], word[4], word[5]);
}
