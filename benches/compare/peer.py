"""py-filelock, and jitlock through ctypes, behind the commands of peer.c."""

import ctypes
import os
import resource
import sys
import time

now = time.monotonic_ns


class Jitlock:
    def __init__(self, path):
        self.path = os.fsencode(path)
        self.handle = ctypes.c_uint64()

    def acquire(self, timeout=600):
        if library.jitlock_acquire(self.path, int(timeout * 1000), ctypes.byref(self.handle)) != 0:
            raise TimeoutError

    def release(self):
        library.jitlock_release(self.handle)


library = ctypes.CDLL(sys.argv[1])
library.jitlock_acquire.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_uint64)]
library.jitlock_release.argtypes = [ctypes.c_uint64]


def make(kind, path):
    if kind == "jitlock":
        return Jitlock(path)
    from filelock import FileLock

    return FileLock(path + ".lock")


def say(*words):
    print(*words, flush=True)


held = None
for line in sys.stdin:
    verb, kind, path, *number = line.split()
    if verb == "uncontended":
        lock, times = make(kind, path), []
        for _ in range(int(number[0])):
            begun = now()
            lock.acquire()
            lock.release()
            times.append(now() - begun)
        say(*times)
    elif verb == "hold":
        held = make(kind, path)
        say("waiting")
        held.acquire()
        say(now())
    elif verb == "release":
        say(now())
        held.release()
    elif verb == "wait":
        before = resource.getrusage(resource.RUSAGE_SELF)
        try:
            make(kind, path).acquire(timeout=int(number[0]) / 1000)
        except TimeoutError:
            pass
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        switches = after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw
        say(int(cpu * 1e6), switches)
