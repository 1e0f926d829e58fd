"""The Python package, by its promises."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import jitlock
from jitlock import _native

CHILD = """
import sys, jitlock
with jitlock.lock(sys.argv[1], timeout=30):
    print("held", flush=True)
    sys.stdin.readline()
"""


def is_free(cache):
    """Asked in a child of multiprocessing's."""
    try:
        with jitlock.lock(cache, timeout=0):
            return True
    except jitlock.Timeout:
        return False


class LockTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="jitlock-test-")
        self.addCleanup(directory.cleanup)
        self.cache = os.path.join(directory.name, "cache")

    def other(self, program=CHILD, *arguments):
        """Another process, which holds the lock once it has said so."""
        command = [sys.executable, "-c", program, self.cache, *arguments]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stdin.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def eventually(self, condition):
        limit = time.monotonic() + 10
        while not condition():
            self.assertLess(time.monotonic(), limit, "never happened")
            time.sleep(0.002)

    def test_with_holds_and_releases(self):
        with jitlock.lock(self.cache, timeout=1) as held:
            self.assertTrue(held.held and held.recorded and not held.lost)
            self.assertIs(held.previous_owner_died, False)
            self.assertEqual(jitlock.query(self.cache).pid, os.getpid())
            self.assertGreaterEqual(held.waited, 0)
        self.assertFalse(held.held)
        with held:
            pass

    def test_a_timeout_is_a_timeout_error_and_names_the_holder(self):
        child = self.other()
        child.stdout.readline()
        with self.assertRaises(TimeoutError) as caught:
            jitlock.Lock(self.cache, timeout=0.05).acquire()
        error = caught.exception
        self.assertIsInstance(error, jitlock.Timeout)
        self.assertEqual((error.code, error.holder.pid), (-3, child.pid))
        self.assertIn(f"pid {child.pid}", str(error))

    def test_a_killed_holder_is_told(self):
        child = self.other()
        child.stdout.readline()
        child.kill()
        with jitlock.lock(self.cache, timeout=10) as held:
            self.assertIs(held.previous_owner_died, True)

    def test_errors_are_of_their_kind(self):
        for refused in (-1, math.nan, -math.inf):
            with self.assertRaises(ValueError):
                jitlock.Lock(self.cache, timeout=refused).acquire()
        with self.assertRaises(jitlock.InvalidArgument):
            jitlock.Lock("").acquire()
        with jitlock.lock(self.cache), self.assertRaises(jitlock.Deadlock):
            jitlock.Lock(self.cache).acquire()
        with self.assertRaises(jitlock.InvalidHandle):
            jitlock.Lock(self.cache).release()
        with open(self.cache, "w"):
            pass
        with self.assertRaises(NotADirectoryError):
            jitlock.clear_cache(self.cache)
        with self.assertRaises(NotADirectoryError):
            jitlock.Lock(os.path.join(self.cache, "below")).acquire()
        with self.assertRaises(jitlock.Lost), jitlock.lock(self.cache):
            os.unlink(self.cache + ".lock")

    def test_other_threads_run_during_a_wait(self):
        child = self.other()
        child.stdout.readline()
        waiter = threading.Thread(target=lambda: jitlock.Lock(self.cache, timeout=20).acquire())
        waiter.start()
        child.stdin.write("\n")
        child.stdin.flush()
        waiter.join(20)
        self.assertFalse(waiter.is_alive())

    def test_ctrl_c_ends_a_wait_and_loses_no_lock(self):
        holder = self.other()
        holder.stdout.readline()
        waiter = self.other(
            """
import signal, sys, jitlock
# Shells have their background jobs ignore it, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("waiting", flush=True)
    jitlock.Lock(sys.argv[1], timeout=float("inf")).acquire()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.readline()
"""
        )
        waiter.stdout.readline()
        self.eventually(lambda: is_waiting(waiter.pid))
        waiter.send_signal(signal.SIGINT)
        self.assertEqual(waiter.stdout.readline(), "interrupted\n")
        holder.kill()
        with jitlock.lock(self.cache, timeout=10):
            pass

    def test_a_handler_that_does_not_raise_runs_and_the_wait_goes_on(self):
        seen = []
        before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        holder = self.other()
        holder.stdout.readline()

        def disturb():
            self.eventually(lambda: is_waiting(os.getpid()))
            os.kill(os.getpid(), signal.SIGUSR1)
            self.eventually(lambda: seen)
            holder.stdin.write("\n")
            holder.stdin.flush()

        thread = threading.Thread(target=disturb)
        thread.start()
        with jitlock.lock(self.cache, timeout=20):
            self.assertEqual(seen, [1])
        thread.join()

    def test_a_wait_can_be_watched_cancelled_and_ended_by_an_exception(self):
        child = self.other()
        child.stdout.readline()
        seen = []

        def watch(progress):
            # At first nobody may have looked yet.
            seen.extend([progress] if progress.owner.pid else [])
            return len(seen) < 3

        with self.assertRaises(jitlock.Cancelled):
            jitlock.Lock(self.cache, timeout=20, progress=watch, progress_interval=0.001).acquire()
        self.assertEqual([look.owner.pid for look in seen], [child.pid] * 3)
        self.assertTrue(all(look.waiting_for is jitlock.WaitingFor.HOLDER for look in seen))
        self.assertTrue(0 < seen[-1].remaining < 20)

        def fail(progress):
            raise LookupError("enough")

        with self.assertRaisesRegex(LookupError, "enough"):
            jitlock.Lock(self.cache, timeout=20, progress=fail, progress_interval=0.001).acquire()

    def test_a_forgotten_lock_is_given_back(self):
        jitlock.Lock(self.cache).acquire()
        gc.collect()  # PyPy's
        with jitlock.lock(self.cache, timeout=0):
            pass

    def test_a_forked_child_owns_nothing(self):
        with jitlock.lock(self.cache) as held:
            child = os.fork()
            if child == 0:
                status = 1
                with contextlib.suppress(BaseException):
                    try:
                        held.release()
                    except jitlock.NotOwner:
                        status = 0
                os._exit(status)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertFalse(held.lost)

    def test_multiprocessing_children_own_nothing_however_they_start(self):
        for method in multiprocessing.get_all_start_methods():
            with self.subTest(method), multiprocessing.get_context(method).Pool(2) as pool:
                with jitlock.lock(self.cache) as held:
                    self.assertEqual(pool.map(is_free, [self.cache] * 4), [False] * 4)
                    self.assertFalse(held.lost)
                # One of them may be met by another.
                self.assertIn(True, pool.map(is_free, [self.cache] * 4))
            with jitlock.lock(self.cache), multiprocessing.get_context(method).Pool(2) as pool:
                self.assertEqual(pool.map(is_free, [self.cache] * 4), [False] * 4)

    def test_clear(self):
        os.makedirs(os.path.join(self.cache, "a", "b"))
        with jitlock.lock(self.cache) as held:
            held.clear()
            self.assertFalse(os.path.exists(self.cache))
        os.makedirs(self.cache)
        jitlock.clear_cache(self.cache, timeout=1)
        self.assertFalse(os.path.exists(self.cache))

    def test_a_local_lock_is_this_hosts(self) -> None:
        self.assertIs(jitlock.query(self.cache).scope, jitlock.Scope.HOST)
        with jitlock.lock(self.cache) as held:
            self.assertIs(held.scope, jitlock.Scope.HOST)
        with self.assertRaisesRegex(jitlock.Unsupported, "this host's own"):
            jitlock.Lock(self.cache, require_cluster=True).acquire()

    def test_torchs_lock_goes_or_is_waited_for(self):
        build_dir = os.path.join(self.cache, "kernel")
        os.makedirs(build_dir)
        baton = os.path.join(build_dir, "lock")
        with jitlock.lock(self.cache) as held, open(baton, "w") as file:
            self.assertIs(jitlock.query(build_dir).baton, jitlock.Baton.IN_USE)
            with self.assertRaises(jitlock.Timeout):
                held.remove_stale_baton(build_dir, timeout=0.01)
            file.close()
            self.assertIs(held.remove_stale_baton(build_dir, timeout=1), jitlock.Baton.REMOVED)

    def test_gptqmodels_lock_and_ours_exclude_each_other_also_when_either_is_killed(self):
        theirs = """
import fcntl, os, sys
file = os.open(sys.argv[1] + ".lock", os.O_CREAT | os.O_RDWR, 0o666)
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""
        for kill in (False, True):
            child = self.other(theirs)
            child.stdout.readline()
            with self.assertRaises(jitlock.Timeout) as caught:
                jitlock.Lock(self.cache, timeout=0.05).acquire()
            self.assertEqual(caught.exception.holder.pid, child.pid)
            self.end(child, kill)
            with jitlock.lock(self.cache, timeout=10):
                pass
            child = self.other()
            child.stdout.readline()
            with open(self.cache + ".lock", "r+") as file:
                with self.assertRaises(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.end(child, kill)
                fcntl.flock(file, fcntl.LOCK_EX)

    def end(self, child, kill):
        if kill:
            child.kill()
        else:
            child.stdin.write("\n")
            child.stdin.flush()
        child.wait()

    def test_structures_and_numbers_are_those_of_the_library(self):
        described = os.path.join(os.path.dirname(__file__), "..", "abi", f"{jitlock.abi_version()}.txt")
        ours = {"options": _native.Options, "info": _native.Info, "owner": _native.Owner, "progress": _native.Progress}
        structure, seen = None, 0
        with open(described) as file:
            for line in file:
                name, *numbers = line.split() or [""]
                if line.startswith("    "):
                    field = getattr(structure, name)
                    self.assertEqual([field.offset, field.size], [int(number) for number in numbers], line)
                    seen += 1
                elif name.startswith("jitlock_") and name.endswith("_t") and len(numbers) == 1:
                    structure = ours[name[len("jitlock_") : -len("_t")]]
                    self.assertEqual(ctypes.sizeof(structure), int(numbers[0]), line)
                elif hasattr(_native, name.replace("JITLOCK_", "", 1)):
                    self.assertEqual(getattr(_native, name.replace("JITLOCK_", "", 1)), int(numbers[0]), line)
        self.assertGreater(seen, 30)
        self.assertEqual(jitlock.__version__, jitlock.version())


def is_waiting(pid):
    """Whether a thread of the process stands in the kernel's queue for an flock."""
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/wchan") as file:
            if "lock_inode" in file.read():
                return True
    return False


if __name__ == "__main__":
    unittest.main()
