"""Lets a CUDA build of torch be imported where there is no CUDA.

    python stand_ins.py

For each CUDA library that torch's libraries want and this machine has not, an empty one is compiled to where they look
for it. Its functions answer "no device" (100), but for the hooks that register kernels (0).
"""

from __future__ import annotations

import collections
import ctypes.util
import subprocess
import sysconfig
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

SITE = Path(sysconfig.get_paths()["purelib"])
#: Where the run path of torch's libraries leads to.
PLACE = SITE / "nvidia" / "cu13" / "lib"
#: Loaded when a GPU is first used, and wanting libraries of its own.
LAZY = {"libtorch_cuda_linalg.so"}


def section(elf: ELFFile, kind: type):
    return next((found for found in elf.iter_sections() if isinstance(found, kind)), None)


def is_of_system(name: str) -> bool:
    stem = name.split(".so")[0]
    return not stem.startswith(("libcu", "libnv", "libnccl")) and (
        ctypes.util.find_library(stem[3:]) is not None or stem.startswith(("libc", "libm", "ld-", "libgcc", "libstdc"))
    )


def main() -> None:
    libraries = [path for path in (SITE / "torch" / "lib").glob("*.so*") if path.name not in LAZY]
    own = {path.name for path in libraries}
    wanted: set[str] = set()
    versions: dict[str, set[str]] = collections.defaultdict(set)
    functions: dict[str, set[tuple[str, str]]] = collections.defaultdict(set)
    defined: set[str] = set()
    homeless: set[str] = set()
    for path in libraries:
        with path.open("rb") as file:
            elf = ELFFile(file)
            wanted |= {tag.needed for tag in section(elf, DynamicSection).iter_tags("DT_NEEDED")}
            origin = {}
            for needed, requirements in section(elf, GNUVerNeedSection).iter_versions():
                for requirement in requirements:
                    versions[needed.name].add(requirement.name)
                    origin[requirement["vna_other"]] = (needed.name, requirement.name)
            symbols = elf.get_section_by_name(".dynsym")
            assert isinstance(symbols, SymbolTableSection)
            numbers = section(elf, GNUVerSymSection)
            for index, symbol in enumerate(symbols.iter_symbols()):
                if symbol["st_shndx"] != "SHN_UNDEF":
                    defined.add(symbol.name)
                elif symbol.name and symbol["st_info"]["bind"] == "STB_GLOBAL":
                    home = origin.get(numbers.get_symbol(index)["ndx"])
                    if home:
                        functions[home[0]].add((symbol.name, home[1]))
                    else:
                        homeless.add(symbol.name)
    missing = sorted(name for name in wanted - own if not is_of_system(name))
    # A symbol without a version is looked for in every library.
    plain = {name for name in homeless - defined if not name.startswith(("_Z", "Py", "_Py"))}
    PLACE.mkdir(parents=True, exist_ok=True)
    functions[missing[0]] |= {(name, "") for name in plain}
    for name in missing:
        build(name, functions[name], versions[name])
    print(f"{len(missing)} stand-ins in {PLACE}")


def build(name: str, functions: set[tuple[str, str]], versions: set[str]) -> None:
    body = "".join(
        f"int {function}(void) {{ return {0 if function.startswith('__') else 100}; }}\n" for function, _ in sorted(functions)
    )
    script = "".join(
        f"{version} {{ {' '.join(f'{function};' for function, of in sorted(functions) if of == version)} }};\n"
        for version in sorted(versions)
    )
    map_file = PLACE / f"{name}.map"
    map_file.write_text(script or "{ global: *; };")
    command = ["cc", "-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{name}", f"-Wl,--version-script={map_file}"]
    subprocess.run([*command, "-x", "c", "-", "-o", PLACE / name], input=(body or "int nothing;").encode(), check=True)
    map_file.unlink()


main()
