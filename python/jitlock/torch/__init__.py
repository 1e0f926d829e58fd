"""Torch's JIT extensions, safe from killed builders on any torch version.

:func:`protect` does it for every ``torch.utils.cpp_extension.load`` and ``load_inline`` of the process, and
:func:`build_lock` for a loader of one's own. ``python -m jitlock.torch doctor`` shows what a machine's caches look like.

Nothing here imports torch until it has to.
"""

from __future__ import annotations

from ._protect import Protection, build_lock, protect, unprotect

__all__ = ["Protection", "build_lock", "protect", "unprotect"]
