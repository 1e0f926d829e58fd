"""A crash-safe, cross-process lock around a JIT build cache.

    >>> import jitlock, tempfile
    >>> cache = tempfile.mkdtemp()
    >>> with jitlock.lock(cache, timeout=60) as held:
    ...     if held.previous_owner_died:
    ...         held.clear()  # it may be half built
    ...     # look whether the kernel is there, build it if not, load it
    >>> held.held
    False

The lock is an flock(2) on ``<cache_dir>.lock``, beside the cache: the kernel drops it when its holder dies, so there are
no stale locks, and processes of any language that use the library, flock(1) or ``fcntl.flock`` exclude each other.
"""

from __future__ import annotations

from ._errors import (
    Cancelled,
    Deadlock,
    InternalError,
    InvalidArgument,
    InvalidHandle,
    IoError,
    JitlockError,
    Limit,
    Lost,
    NotADirectory,
    NotOwner,
    PermissionDenied,
    Timeout,
    Unsupported,
)
from ._lock import Lock, Progress, clear_cache, lock, timeout_for
from ._native import LIBRARY, abi_version, version
from ._query import Baton, Owner, OwnerState, Scope, WaitingFor, query

__all__ = [
    "LIBRARY",
    "Baton",
    "Cancelled",
    "Deadlock",
    "InternalError",
    "InvalidArgument",
    "InvalidHandle",
    "IoError",
    "JitlockError",
    "Limit",
    "Lock",
    "Lost",
    "NotADirectory",
    "NotOwner",
    "Owner",
    "OwnerState",
    "PermissionDenied",
    "Progress",
    "Scope",
    "Timeout",
    "Unsupported",
    "WaitingFor",
    "abi_version",
    "clear_cache",
    "lock",
    "query",
    "timeout_for",
    "version",
]

__version__ = "0.1.0"
