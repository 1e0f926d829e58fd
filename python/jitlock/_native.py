"""The shared library, by ctypes: what ``jitlock.h`` declares, and nothing more."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from pathlib import Path
from typing import Any

if sys.platform == "win32":
    _NAMES = ("jitlock.dll",)
elif sys.platform == "darwin":
    _NAMES = ("libjitlock.0.dylib", "libjitlock.dylib")
else:
    _NAMES = ("libjitlock.so.0", "libjitlock.so")


def _find() -> str:
    """The environment's choice, the wheel's own copy, a checkout's build, or the system's."""
    chosen = os.environ.get("JITLOCK_LIBRARY")
    if chosen:
        return chosen
    package = Path(__file__).resolve().parent
    places = [package, package.parents[1] / "target" / "release", package.parents[1] / "target" / "debug"]
    for path in (place / name for place in places for name in _NAMES):
        if path.exists():
            return str(path)
    return ctypes.util.find_library("jitlock") or _NAMES[0]


class Options(ctypes.Structure):
    """``jitlock_options_t``"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("timeout_ms", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("progress_interval_ms", ctypes.c_uint32),
        ("lock_path", ctypes.c_char_p),
        ("progress", ctypes.c_void_p),
        ("user", ctypes.c_void_p),
        ("error", ctypes.c_void_p),
        ("error_size", ctypes.c_size_t),
    ]


class Info(ctypes.Structure):
    """``jitlock_info_t``"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("previous_owner", ctypes.c_int32),
        ("lost", ctypes.c_int32),
        ("recorded", ctypes.c_int32),
        ("fd", ctypes.c_int32),
        ("waited_ns", ctypes.c_uint64),
        ("baton", ctypes.c_int32),
        ("scope", ctypes.c_int32),
    ]


class Owner(ctypes.Structure):
    """``jitlock_owner_t``"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("state", ctypes.c_int32),
        ("holders", ctypes.c_uint32),
        ("pid", ctypes.c_int64),
        ("started_unix_ms", ctypes.c_int64),
        ("since_unix_ms", ctypes.c_int64),
        ("record_pid", ctypes.c_int64),
        ("record_agrees", ctypes.c_int32),
        ("is_ancestor", ctypes.c_int32),
        ("host", ctypes.c_char * 256),
        ("command", ctypes.c_char * 512),
        ("baton", ctypes.c_int32),
        ("orphans", ctypes.c_uint32),
        ("baton_pid", ctypes.c_int64),
        ("orphan_pid", ctypes.c_int64),
        ("scope", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class Progress(ctypes.Structure):
    """``jitlock_progress_t``"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("waited_ns", ctypes.c_uint64),
        ("remaining_ns", ctypes.c_int64),
        ("owner", ctypes.POINTER(Owner)),
        ("waiting_for", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


PROGRESS_FN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Progress), ctypes.c_void_p)

WAIT_FOREVER = -1
TIMEOUT_DEFAULT = -2

SHARED = 1 << 0
INHERIT = 1 << 1
ANY_THREAD = 1 << 2
INTERRUPTIBLE = 1 << 3
CLEAR_IF_OWNER_DIED = 1 << 4
KEEP_BATON = 1 << 5
REQUIRE_CLUSTER = 1 << 6

OK = 0
INTERRUPTED = -5

#: The library that was loaded.
LIBRARY = _find()

# CDLL, not PyDLL: other threads run while one waits.
_library = ctypes.CDLL(LIBRARY)


def _function(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(_library, "jitlock_" + name)
    function.restype = result
    function.argtypes = arguments
    return function


_status = ctypes.c_int32
_handle = ctypes.c_uint64

acquire_with = _function("acquire_with", _status, ctypes.c_char_p, ctypes.POINTER(Options), ctypes.POINTER(_handle))
release = _function("release", _status, _handle)
clear_cache = _function("clear_cache", _status, ctypes.c_char_p, ctypes.c_int64)
clear_held = _function("clear_held", _status, _handle)
remove_stale_baton = _function("remove_stale_baton", _status, _handle, ctypes.c_char_p, ctypes.c_int64)
info = _function("info", _status, _handle, ctypes.POINTER(Info))
query = _function("query", _status, ctypes.c_char_p, ctypes.POINTER(Owner))
timeout_ms = _function("timeout_ms", ctypes.c_int64, ctypes.c_double)
last_error_message = _function("last_error_message", ctypes.c_char_p)
_version = _function("version", ctypes.c_char_p)
_abi_version = _function("abi_version", ctypes.c_uint32)


def version() -> str:
    """The version of the shared library."""
    return str(_version().decode())


def abi_version() -> int:
    """The version of the shared library's binary interface."""
    return int(_abi_version())


if abi_version() != 0:
    raise ImportError(f"{LIBRARY} has binary interface {abi_version()}; this package is made for 0")
