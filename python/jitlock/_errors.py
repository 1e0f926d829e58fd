"""One exception for each code of the library."""

from __future__ import annotations

import os
from typing import Any

from . import _native
from ._query import Owner


class JitlockError(Exception):
    """A failure of the library: ``code`` is its number, the message names the path and what the system said."""

    #: The code that each class stands for.
    code = 0

    def __init__(self, message: str = "", code: int | None = None, holder: Owner | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        #: Who holds the lock, for a timeout.
        self.holder = holder


class InvalidArgument(JitlockError, ValueError):
    """An empty or too long path, a directory that is never cleared."""

    code = -1


class InvalidHandle(JitlockError):
    """The lock was released already."""

    code = -2


class Timeout(JitlockError, TimeoutError):
    """The lock could not be had in time: take the path that needs no cache. ``holder`` says who has it."""

    code = -3


class Deadlock(JitlockError):
    """The calling thread holds this lock itself and would wait for ever."""

    code = -4


class Cancelled(JitlockError):
    """The progress callback answered ``False``."""

    code = -6


class PermissionDenied(JitlockError, PermissionError):
    """The lock file or the cache may not be touched by this user."""

    code = -7


class NotADirectory(JitlockError, NotADirectoryError):
    """A parent of the cache, or the cache that is to be cleared, is a file."""

    code = -8


class Unsupported(JitlockError):
    """The file system has no locks, or the platform lacks what was asked for."""

    code = -9


class Limit(JitlockError):
    """No descriptor, thread or memory is left."""

    code = -10


class NotOwner(JitlockError):
    """The lock belongs to the process that this one was forked from."""

    code = -11


class Lost(JitlockError):
    """Released, but the lock file had been deleted meanwhile: throw away what was built."""

    code = -12


class IoError(JitlockError, OSError):
    """Any other error of the system."""

    code = -13


class InternalError(JitlockError):
    """A bug of the library."""

    code = -14


def _by_code(base: type[JitlockError]) -> dict[int, type[JitlockError]]:
    return {kind.code: kind for kind in base.__subclasses__()}


_KINDS = _by_code(JitlockError)


def check(status: int, **details: Any) -> None:
    """Raises what the status of a call stands for, with this thread's message."""
    if status != _native.OK:
        kind = _KINDS.get(status, JitlockError)
        raise kind(os.fsdecode(_native.last_error_message()), code=status, **details)
