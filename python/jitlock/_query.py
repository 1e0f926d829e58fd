"""Who holds a lock, and what else is in the way of a cache."""

from __future__ import annotations

import ctypes
import enum
import os
from dataclasses import dataclass
from typing import Union

from . import _native

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class OwnerState(enum.IntEnum):
    """Whether a lock is held, as far as can be seen without taking it."""

    NONE = 0
    EXCLUSIVE = 1
    SHARED = 2
    #: Nobody can be seen, which says nothing: only a try can tell.
    NOT_VISIBLE = 3


class Baton(enum.IntEnum):
    """What became of torch's own lock, or what it is."""

    NONE = 0
    REMOVED = 1
    WAITED_FOR = 2
    STALE = 3
    IN_USE = 4
    #: It cannot be told whether anybody has it open.
    UNKNOWN = 5


class Scope(enum.IntEnum):
    """Whom a lock excludes."""

    #: This host's processes; whether other hosts' too cannot be known from here.
    UNKNOWN = 0
    HOST = 1
    #: Those of every host that has the file system.
    CLUSTER = 2


class WaitingFor(enum.IntEnum):
    """What a wait waits for."""

    HOLDER = 0
    ORPHANS = 1
    BATON = 2


@dataclass(frozen=True)
class Owner:
    """An answer of :func:`query`. Times are seconds since 1970; what is not known is ``None``."""

    state: OwnerState
    #: The process that has the lock, by the kernel's word, and how many have.
    pid: int | None
    holders: int
    command: str
    started: float | None
    #: When the lock was acquired, if the holder wrote that down.
    since: float | None
    #: Who wrote the owner record last without marking it as released.
    record_pid: int | None
    record_agrees: bool
    host: str
    #: The holder is this process or one that it descends from.
    is_ancestor: bool
    #: Torch's own lock in the cache, and a process that has it open.
    baton: Baton
    baton_pid: int | None
    #: Processes that a dead owner started and that still work in the cache.
    orphans: int
    orphan_pid: int | None
    #: By :func:`query` only.
    scope: Scope

    @property
    def held(self) -> bool:
        """Whether somebody is seen to have the lock."""
        return self.state in (OwnerState.EXCLUSIVE, OwnerState.SHARED)


def owner_of(raw: _native.Owner) -> Owner:
    """The library's structure in Python's types."""
    return Owner(
        state=OwnerState(raw.state),
        pid=raw.pid or None,
        holders=raw.holders,
        command=raw.command.decode(errors="replace"),
        started=raw.started_unix_ms / 1000 or None,
        since=raw.since_unix_ms / 1000 or None,
        record_pid=raw.record_pid or None,
        record_agrees=bool(raw.record_agrees),
        host=raw.host.decode(errors="replace"),
        is_ancestor=bool(raw.is_ancestor),
        baton=Baton(raw.baton),
        baton_pid=raw.baton_pid or None,
        orphans=raw.orphans,
        orphan_pid=raw.orphan_pid or None,
        scope=Scope(raw.scope),
    )


def query(cache_dir: Path) -> Owner:
    """Who holds the lock of a cache now, asked without taking it.

    >>> import jitlock, os, tempfile
    >>> cache = tempfile.mkdtemp()
    >>> jitlock.query(cache).held
    False
    >>> with jitlock.lock(cache):
    ...     jitlock.query(cache).pid == os.getpid()
    True
    """
    from ._errors import check

    raw = _native.Owner(struct_size=ctypes.sizeof(_native.Owner))
    check(_native.query(os.fsencode(cache_dir), ctypes.byref(raw)))
    return owner_of(raw)
