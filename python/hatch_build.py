"""Puts the shared library into the wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

#: What cargo calls the library, and what the package looks for.
NAMES = {
    "darwin": ("libjitlock.dylib", "libjitlock.0.dylib"),
    "win32": ("jitlock.dll", "jitlock.dll"),
}


class CargoHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            # A checkout's own build is found beside the package.
            return
        # Of a source distribution, or of a checkout.
        crates = (Path(self.root) / "crate", Path(self.root).parent)
        crate = next(crate for crate in crates if (crate / "Cargo.toml").exists())
        target = Path(self.directory) / "cargo"
        command = ["cargo", "build", "--release", "--lib", "--locked", "--target-dir", str(target)]
        subprocess.run(command, cwd=crate, check=True)
        built, name = NAMES.get(sys.platform, ("libjitlock.so", "libjitlock.so.0"))
        build_data["force_include"][str(target / "release" / built)] = f"jitlock/{name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{next(platform_tags())}"
