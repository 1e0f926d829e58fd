"""The lock."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Callable

from . import _native
from ._errors import JitlockError, Timeout, check
from ._query import Baton, Owner, Path, Scope, WaitingFor, owner_of, query


@dataclass(frozen=True)
class Progress:
    """A look at a wait that lasts: seconds so far, seconds until the deadline (``None`` without one), and for whom."""

    waited: float
    remaining: float | None
    waiting_for: WaitingFor
    owner: Owner


def timeout_for(compile_baseline: float = 0.0) -> float:
    """Seconds to wait for a kernel whose compilation once took so many: ``JITLOCK_TIMEOUT`` if it is set, else 600 s or
    five times the baseline, whichever is more.

    >>> import jitlock
    >>> jitlock.timeout_for(1000.0)
    5000.0
    """
    return float(_native.timeout_ms(compile_baseline)) / 1000


def _milliseconds(timeout: float | None) -> int:
    if timeout is None:
        return _native.TIMEOUT_DEFAULT
    if timeout == math.inf:
        return _native.WAIT_FOREVER
    if not timeout >= 0:
        raise ValueError(f"timeout of {timeout} s: neither None, nor 0, nor a positive number of seconds")
    return min(math.ceil(timeout * 1000), 2**63 - 1)


class Lock:
    """The lock of a cache directory, as a context manager.

    ``timeout`` is in seconds: ``None`` is the library's default (``JITLOCK_TIMEOUT``, else 600 s), 0 tries once,
    ``math.inf`` waits without bound. Threads exclude each other like processes do. An object may be used again after a
    release, and not by two threads at once. Ctrl-C ends a wait.

    ``progress`` is called on the waiting thread after ``progress_interval`` seconds and at that interval; it ends the wait
    by answering ``False`` (:class:`Cancelled`) or by raising.

    >>> import jitlock, tempfile
    >>> held = jitlock.Lock(tempfile.mkdtemp(), timeout=0)
    >>> held.acquire()
    >>> try:
    ...     held.previous_owner_died, held.lost
    ... finally:
    ...     held.release()
    (False, False)
    """

    def __init__(
        self,
        cache_dir: Path,
        timeout: float | None = None,
        *,
        shared: bool = False,
        inherit: bool = False,
        any_thread: bool = False,
        clear_if_owner_died: bool = False,
        require_cluster: bool = False,
        keep_baton: bool = False,
        lock_path: Path | None = None,
        progress: Callable[[Progress], bool | None] | None = None,
        progress_interval: float = 1.0,
    ) -> None:
        self.cache_dir = os.fsencode(cache_dir)
        self.timeout = timeout
        self.progress = progress
        self.progress_interval = progress_interval
        self._lock_path = None if lock_path is None else os.fsencode(lock_path)
        self._flags = (
            _native.SHARED * shared
            | _native.INHERIT * inherit
            | _native.ANY_THREAD * any_thread
            | _native.CLEAR_IF_OWNER_DIED * clear_if_owner_died
            | _native.REQUIRE_CLUSTER * require_cluster
            | _native.KEEP_BATON * keep_baton
            | _native.INTERRUPTIBLE * (sys.platform != "win32")
        )
        self._handle = ctypes.c_uint64(0)

    def acquire(self) -> None:
        """Takes the lock, or raises: :class:`Timeout`, :class:`Deadlock` and so on."""
        if self.held:
            raise RuntimeError("this object holds the lock already")
        millis = _milliseconds(self.timeout)
        if millis == _native.TIMEOUT_DEFAULT:
            limit = time.monotonic() + timeout_for()
        else:
            limit = math.inf if millis < 0 else time.monotonic() + millis / 1000
        raised: list[BaseException] = []

        def watch(raw: Any, _user: Any) -> int:
            try:
                return int(self._show(raw.contents) is False)
            except BaseException as error:
                raised.append(error)
                return 1

        callback = _native.PROGRESS_FN(watch) if self.progress else _native.PROGRESS_FN()
        options = _native.Options(
            struct_size=ctypes.sizeof(_native.Options),
            timeout_ms=millis,
            flags=self._flags,
            progress_interval_ms=max(1, round(self.progress_interval * 1000)),
            lock_path=self._lock_path,
            progress=ctypes.cast(callback, ctypes.c_void_p),
        )
        try:
            while True:
                status = _native.acquire_with(self.cache_dir, ctypes.byref(options), ctypes.byref(self._handle))
                # Python runs its handlers now. If none of them raises, the wait goes on (PEP 475).
                if status != _native.INTERRUPTED:
                    break
                if limit != math.inf:
                    options.timeout_ms = max(0, math.ceil((limit - time.monotonic()) * 1000))
            if raised:
                raise raised[0]
            if status == Timeout.code:
                raise Timeout(os.fsdecode(_native.last_error_message()), holder=self._holder())
            check(status)
        except BaseException:
            # A signal that came just after the grant must not lose the lock.
            self._give_back()
            raise

    def _show(self, raw: _native.Progress) -> bool | None:
        assert self.progress is not None
        return self.progress(
            Progress(
                waited=raw.waited_ns / 1e9,
                remaining=None if raw.remaining_ns < 0 else raw.remaining_ns / 1e9,
                waiting_for=WaitingFor(raw.waiting_for),
                owner=owner_of(raw.owner.contents),
            )
        )

    def _holder(self) -> Owner | None:
        try:
            return query(self.cache_dir)
        except JitlockError:
            return None

    def release(self) -> None:
        """Gives the lock back. :class:`Lost` if somebody deleted the lock file meanwhile: throw away what was built."""
        handle, self._handle = self._handle, ctypes.c_uint64(0)
        check(_native.release(handle))

    def clear(self) -> None:
        """Deletes the cache directory, and goes on holding its lock."""
        check(_native.clear_held(self._handle))

    def remove_stale_baton(self, build_dir: Path, timeout: float | None = None) -> Baton:
        """Removes torch's own lock from a build directory in the cache, if it is stale, and waits while it is in use."""
        check(_native.remove_stale_baton(self._handle, os.fsencode(build_dir), _milliseconds(timeout)))
        return self.baton

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._handle.value != 0

    @property
    def previous_owner_died(self) -> bool | None:
        """Whether the last owner ended without releasing, so that the cache may be half built; ``None``: not known."""
        return (False, True, None)[self._info().previous_owner]

    @property
    def lost(self) -> bool:
        """Whether the lock file was deleted since, so that the lock excludes nobody any more."""
        return bool(self._info().lost)

    @property
    def recorded(self) -> bool:
        """Whether others can see who holds the lock, and will be told should this process die."""
        return bool(self._info().recorded)

    @property
    def waited(self) -> float:
        """Seconds that the acquire took."""
        return float(self._info().waited_ns / 1e9)

    @property
    def baton(self) -> Baton:
        """What became of torch's own lock in the cache."""
        return Baton(self._info().baton)

    @property
    def scope(self) -> Scope:
        """Whom the lock excludes. ``require_cluster`` refuses one that other hosts may not see, with :class:`Unsupported`."""
        return Scope(self._info().scope)

    def fileno(self) -> int:
        """The descriptor of the lock file. It is the library's: not to be closed."""
        return int(self._info().fd)

    def _info(self) -> _native.Info:
        info = _native.Info(struct_size=ctypes.sizeof(_native.Info))
        check(_native.info(self._handle, ctypes.byref(info)))
        return info

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def __del__(self) -> None:
        # A Ctrl-C between acquire and the body of a `with` loses the object, not the lock.
        if getattr(self, "_handle", None):
            self._give_back()

    def _give_back(self) -> None:
        if self._handle.value:
            _native.release(self._handle)
            self._handle = ctypes.c_uint64(0)

    def __repr__(self) -> str:
        return f"<jitlock.Lock of {os.fsdecode(self.cache_dir)!r}{', held' if self.held else ''}>"


def lock(cache_dir: Path, timeout: float | None = None, **options: Any) -> Lock:
    """``with jitlock.lock(cache_dir, timeout=60):``; the options are those of :class:`Lock`.

    >>> import jitlock, tempfile
    >>> with jitlock.lock(tempfile.mkdtemp(), timeout=1) as held:
    ...     held.held
    True
    """
    return Lock(cache_dir, timeout, **options)


def clear_cache(cache_dir: Path, timeout: float | None = None) -> None:
    """Takes the lock, deletes the cache directory, gives the lock back. A crash leaves the cache whole or gone.

    >>> import jitlock, os, tempfile
    >>> cache = tempfile.mkdtemp()
    >>> jitlock.clear_cache(cache)
    >>> os.path.exists(cache)
    False
    """
    check(_native.clear_cache(os.fsencode(cache_dir), _milliseconds(timeout)))
