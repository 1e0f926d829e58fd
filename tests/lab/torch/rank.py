"""A process that loads a torch extension when its standard input says so, one answer a line.

python rank.py SOURCE

protect SECONDS        jitlock.torch.protect
undo                   and back
load BUILD_DIR         torch.utils.cpp_extension.load: what the extension computes
inline BUILD_DIR       load_inline
late BUILD_DIR SECONDS load, and as soon as our lock is had, a stranger takes torch's and is killed after so long
under BUILD_DIR        load, with jitlock.torch.build_lock around it
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
import warnings

warnings.filterwarnings("ignore")

import jitlock  # noqa: E402
import jitlock.torch  # noqa: E402
import torch  # noqa: E402
from torch.utils import cpp_extension  # noqa: E402

SOURCE = sys.argv[1]
VERBOSE = "VERBOSE" in os.environ


def load(build_dir: str) -> int:
    cpp_extension.load("plain", [SOURCE], build_directory=build_dir, is_python_module=False, verbose=VERBOSE)
    return ctypes.CDLL(os.path.join(build_dir, "plain.so")).add(40, 2)


def inline(build_dir: str) -> int:
    with open(SOURCE) as file:
        source = file.read()
    named = {"no_implicit_headers": True} if hasattr(cpp_extension, "FileLock") else {}
    cpp_extension.load_inline("inline", [source], build_directory=build_dir, is_python_module=False, **named)
    return ctypes.CDLL(os.path.join(build_dir, "inline.so")).add(40, 2)


STRANGER = """
import fcntl, os, sys
flags = os.O_CREAT | (os.O_RDWR if sys.argv[2] == "new" else os.O_EXCL)
file = os.open(sys.argv[1], flags)
fcntl.flock(file, fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""


def late(build_dir: str, seconds: str) -> int:
    generation = "new" if hasattr(cpp_extension, "FileLock") else "old"
    command = [sys.executable, "-c", STRANGER, os.path.join(build_dir, "lock"), generation]
    versioner = cpp_extension.JIT_EXTENSION_VERSIONER
    strangers = []

    def get_version(name: str) -> int:
        # Torch calls it between the two locks.
        stranger = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        stranger.stdout.readline()
        strangers.append(stranger)
        threading.Timer(float(seconds), stranger.kill).start()
        return type(versioner).get_version(versioner, name)

    versioner.get_version = get_version
    try:
        return load(build_dir)
    finally:
        del versioner.get_version
        for stranger in strangers:
            stranger.kill()
            stranger.wait()


def under(build_dir: str) -> int:
    with jitlock.torch.build_lock(build_dir, timeout=30):
        return load(build_dir)


def protect(seconds: str) -> int:
    jitlock.torch.protect(timeout=float(seconds))
    return 0


def undo() -> int:
    jitlock.torch.unprotect()
    return 0


print("0", torch.__version__, flush=True)
for line in sys.stdin:
    verb, *words = line.split()
    begun = time.monotonic()
    try:
        value = globals()[verb](*words)
        print("0", value, f"{time.monotonic() - begun:.3f}", flush=True)
    except jitlock.JitlockError as error:
        print(error.code, 0, error, flush=True)
    except Exception as error:
        print("-1000", 0, type(error).__name__, " ".join(str(error).split()), flush=True)
