"""What the torch extension caches of this machine look like: which are locked, by whom, and which locks are stale."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .. import Baton, JitlockError, Lock, Owner, query

#: Root, build directory of one Python, of one extension.
_DEPTH = 3


def default_root() -> str:
    """Where torch puts its extensions: its environment variable, else its user's cache directory."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("TORCH_EXTENSIONS_DIR") or os.path.join(cache, "torch_extensions")


@dataclass
class Finding:
    """One build directory."""

    path: str
    owner: Owner | None
    error: str = ""

    @property
    def stale(self) -> bool:
        return self.owner is not None and self.owner.baton is Baton.STALE

    def lines(self) -> Iterator[str]:
        if self.owner is None:
            yield self.error
            return
        owner = self.owner
        if owner.held:
            yield f"locked by pid {owner.pid} ({owner.command})" + (f", and {owner.holders - 1} more" * (owner.holders > 1))
        elif owner.orphans:
            yield f"its last builder, pid {owner.record_pid}, died; {owner.orphans} of its processes still work here"
            yield f"the first is pid {owner.orphan_pid}; the next build waits for them"
        elif owner.record_pid:
            yield f"its last builder, pid {owner.record_pid} on {owner.host}, died: it may be half built"
        if owner.baton is Baton.STALE:
            yield "torch's lock is stale: torch before 2.14 would wait for ever"
        elif owner.baton is Baton.IN_USE:
            yield f"torch's lock is in use by {f'pid {owner.baton_pid}' if owner.baton_pid else 'a process not visible here'}"
        elif owner.baton is Baton.UNKNOWN:
            yield "it cannot be told whether torch's lock is in use"

    def json(self) -> dict[str, object]:
        known: dict[str, object] = {"path": self.path, "error": self.error or None}
        if self.owner is not None:
            known.update(vars(self.owner), state=self.owner.state.name.lower(), baton=self.owner.baton.name.lower())
        return known


def build_directories(root: str) -> Iterator[str]:
    """What torch has built in, or was about to."""
    for path, directories, files in os.walk(root):
        depth = os.path.relpath(path, root).count(os.sep) + (path != root)
        if depth >= _DEPTH:
            directories.clear()
        if "build.ninja" in files or "lock" in files:
            directories.clear()
            yield path
        else:
            directories.sort()


def examine(path: str) -> Finding:
    """Looks without touching anything."""
    try:
        return Finding(path, query(path))
    except JitlockError as error:
        return Finding(path, None, str(error))


def remove(finding: Finding) -> str:
    """Removes a stale lock of torch's, under ours: if it is still stale by then."""
    try:
        with Lock(finding.path, timeout=0) as held:
            return "removed" if held.baton is Baton.REMOVED else "gone already"
    except JitlockError as error:
        return f"left alone: {error}"


def doctor(roots: Sequence[str], removes: bool, as_json: bool) -> int:
    findings = [examine(path) for root in roots for path in build_directories(root)]
    stale = [finding for finding in findings if finding.stale]
    if as_json:
        print(json.dumps([finding.json() for finding in findings], indent=2))
    else:
        for finding in findings:
            print(finding.path)
            for line in list(finding.lines()) or ["nobody is in the way"]:
                print("    " + line)
        where = ", ".join(roots)
        print(f"{len(findings)} build directories in {where}, {len(stale)} with a stale lock of torch's")
    if stale and not removes and not as_json and sys.stdin.isatty() and sys.stdout.isatty():
        removes = input("Remove the stale locks, and nothing else? [y/N] ").strip().lower() in ("y", "yes")
    if not removes:
        return 1 if stale else 0
    left = 0
    for finding in stale:
        outcome = remove(finding)
        left += outcome.startswith("left")
        print(f"{os.path.join(finding.path, 'lock')}: {outcome}", file=sys.stderr if as_json else sys.stdout)
    return 1 if left else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m jitlock.torch",
        epilog="Exit status: 0 if no stale lock is left, 1 if there is one, 2 for bad usage.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("doctor", help="show the locks of torch extension caches, and remove stale ones")
    command.add_argument("root", nargs="*", help=f"directory to look in (default: {default_root()})")
    command.add_argument("--remove", action="store_true", help="remove the stale locks without asking")
    command.add_argument("--json", action="store_true", help="for programs")
    chosen = parser.parse_args(arguments)
    roots = chosen.root or [default_root()]
    for root in chosen.root:
        if not os.path.isdir(root):
            parser.error(f"{root} is no directory")
    return doctor(roots, chosen.remove, chosen.json)
