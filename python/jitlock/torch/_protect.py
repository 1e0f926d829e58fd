"""Torch's own loader under our lock."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import threading
import time
from collections.abc import Iterator
from types import ModuleType, TracebackType
from typing import Any, Callable

from .. import Lock, Timeout, timeout_for
from .._errors import Deadlock
from .._lock import Progress
from .._query import Path


def build_lock(build_dir: Path, timeout: float | None = None, **options: Any) -> Lock:
    """The lock of one extension's build directory: whoever has it builds or loads, and torch's own lock in there is not in
    the way, be it a stale one or that of a process that builds without us.

    >>> import jitlock.torch, os, tempfile
    >>> build_dir = tempfile.mkdtemp()
    >>> open(os.path.join(build_dir, "lock"), "w").close()  # what a killed torch leaves behind
    >>> with jitlock.torch.build_lock(build_dir, timeout=60) as held:
    ...     held.baton.name, os.listdir(build_dir)
    ('REMOVED', [])
    """
    return Lock(build_dir, timeout, **options)


class _Held(threading.local):
    """The build directories whose lock this thread holds in a protected load, and when each has to be done waiting."""

    def __init__(self) -> None:
        self.locks: dict[str, tuple[Lock, float]] = {}


_held = _Held()


def _remaining(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


class Protection:
    """What :func:`protect` changed: :meth:`undo` changes it back, and so does the end of a ``with``."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._changed: list[tuple[str, Any, Any]] = []

    def _replace(self, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(self._module, name, None)
        if original is not None:
            ours = make(original)
            setattr(self._module, name, ours)
            self._changed.append((name, original, ours))

    def undo(self) -> None:
        """Gives torch its own loader back. What somebody else has put in its place meanwhile stays."""
        global _protection
        for name, original, ours in self._changed:
            if getattr(self._module, name) is ours:
                setattr(self._module, name, original)
        self._changed = []
        if _protection is self:
            _protection = None

    def __enter__(self) -> Protection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.undo()


# A comment, since PyPy takes no annotated name for a global one.
_protection = None  # type: Protection | None


def protect(
    timeout: float | None = None,
    progress: Callable[[Progress], bool | None] | None = None,
) -> Protection:
    """Makes every ``load`` and ``load_inline`` of this process crash-safe and bounded, whoever calls them.

    Each takes the lock of its build directory first: what killed builders left behind is removed, their compilers and
    builds by plain torch are waited for, and after ``timeout`` seconds (``None``: ``JITLOCK_TIMEOUT``, else 600) the load
    raises :class:`jitlock.Timeout` instead of hanging. A second call changes nothing.
    """
    global _protection
    if _protection is not None:
        return _protection
    from torch.utils import cpp_extension

    made = Protection(cpp_extension)
    made._replace("_jit_compile", lambda original: _locked(cpp_extension, original, timeout, progress))
    # Torch's own lock is taken inside ours. Plain torch may have got there first: up to 2.13 by a FileBaton, ...
    made._replace("FileBaton", _waiting_baton)
    # ... and by an flock since.
    made._replace("FileLock", _bounded_filelock)
    _protection = made
    return made


def unprotect() -> None:
    """Undoes :func:`protect`, if it was called."""
    if _protection is not None:
        _protection.undo()


def _locked(
    module: ModuleType,
    original: Callable[..., Any],
    timeout: float | None,
    progress: Callable[[Progress], bool | None] | None,
) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def _jit_compile(*arguments: Any, **named: Any) -> Any:
        known = signature.bind(*arguments, **named).arguments
        build_dir = os.path.realpath(known["build_directory"])
        limit = timeout_for() if timeout is None else timeout
        deadline = time.monotonic() + limit
        held = Lock(build_dir, limit, progress=progress)
        try:
            held.acquire()
        except Deadlock:
            # The caller has it: by build_lock(), or by a load that this one is part of.
            return original(*arguments, **named)
        try:
            _held.locks[build_dir] = (held, deadline)
            with _version_kept_on_timeout(module, known["name"]):
                return original(*arguments, **named)
        finally:
            del _held.locks[build_dir]
            held.release()

    return _jit_compile


@contextlib.contextmanager
def _version_kept_on_timeout(module: ModuleType, name: str) -> Iterator[None]:
    """Torch notes what it is about to build before it waits. After a timeout it would take that for built."""
    entries = getattr(getattr(module, "JIT_EXTENSION_VERSIONER", None), "entries", {})
    before = entries.get(name)
    try:
        yield
    except TimeoutError as error:
        if before is None:
            entries.pop(name, None)
        else:
            entries[name] = before
        if isinstance(error, Timeout):
            raise
        # By the filelock package, in the words of ours.
        raise Timeout(f"{error}: a torch build without jitlock runs in the same directory") from error


def _waiting_baton(original: type[Any]) -> type[Any]:
    class WaitingBaton(original):  # type: ignore[misc]
        """A FileBaton whose try does not fail while we hold the lock around it. If it did, torch would wait for ever for a
        holder that is killed, and then load what nobody has built."""

        def try_acquire(self) -> bool:
            build_dir = os.path.realpath(os.path.dirname(self.lock_file_path))
            lock, deadline = _held.locks.get(build_dir, (None, 0.0))
            while not super().try_acquire():
                if lock is None:
                    return False
                lock.remove_stale_baton(build_dir, _remaining(deadline))
            return True

    return WaitingBaton


def _bounded_filelock(original: type[Any]) -> Callable[..., Any]:
    def filelock(path: str, *arguments: Any, **named: Any) -> Any:
        _, deadline = _held.locks.get(os.path.realpath(os.path.dirname(path)), (None, None))
        if deadline is not None:
            named.setdefault("timeout", _remaining(deadline))
        return original(path, *arguments, **named)

    return filelock
