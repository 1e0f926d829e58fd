/* Preloaded: a kernel without leases. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

static int answer(int file, int command, long argument) {
    if (command == F_SETLEASE) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_fcntl, file, command, argument);
}

int fcntl(int file, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    return answer(file, command, argument);
}

int fcntl64(int file, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    return answer(file, command, argument);
}
