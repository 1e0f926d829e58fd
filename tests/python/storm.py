"""One of many in a storm, in Python: by the package, or, as a stranger, by a plain flock. See ``tests/c/storm.c``.

python3 storm.py CACHE SCRATCH SEED ours|stranger
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import jitlock

CACHE, SCRATCH, SEED, WHO = sys.argv[1:]
ROUNDS = 30
chance = random.Random(int(SEED))
testimonies = os.open(f"{SCRATCH}/testimony", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)


def in_place(descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(f"{CACHE}.lock"))
    except FileNotFoundError:
        return False


def testify(begin: int, descriptor: int, kind: str) -> None:
    end = time.monotonic_ns()
    if in_place(descriptor):
        os.write(testimonies, struct.pack("=QQQQ", begin, end, os.getpid(), ord(kind)))


@contextlib.contextmanager
def by_flock() -> Iterator[int]:
    with open(f"{CACHE}.lock", "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


@contextlib.contextmanager
def by_jitlock(timeout: float, shared: bool) -> Iterator[int]:
    lock = jitlock.Lock(CACHE, timeout, shared=shared)
    with contextlib.suppress(jitlock.Lost), lock:
        yield lock.fileno()
        if not shared:
            # The news of a death ends with the first owner that releases.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{CACHE}/unfinished.{os.fstat(lock.fileno()).st_ino}")


def work() -> None:
    if chance.random() < 0.2:
        # Our own descriptors stay ours, however many children there are.
        subprocess.run(["true"], check=False)
    else:
        time.sleep(chance.random() / 1000)


def main() -> None:
    signal.signal(signal.SIGWINCH, lambda _signal, _frame: None)
    for _ in range(ROUNDS):
        shared = WHO == "ours" and chance.random() < 0.2
        timeout = chance.choice([60.0, 60.0, 0.002])
        held = by_jitlock(timeout, shared) if WHO == "ours" else by_flock()
        try:
            with held as descriptor:
                begin = time.monotonic_ns()
                work()
                testify(begin, descriptor, "R" if shared else "W" if WHO == "ours" else "S")
        except jitlock.Timeout as error:
            if timeout > 1:
                raise SystemExit(str(error)) from error


try:
    main()
except BaseException as error:
    with open(f"{SCRATCH}/violations", "a", encoding="utf-8") as file:
        print(f"{WHO}: {error!r}", file=file)
    raise
