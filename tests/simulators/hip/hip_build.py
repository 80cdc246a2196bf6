"""Builds the software HIP runtime: `python hip_build.py FOLDER` leaves it and its engine there."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cxx
from cxx import NoCompiler as NoCompiler

HERE = Path(__file__).resolve().parent
ENGINE, DISASSEMBLER = "gfx9-engine", "gfx9-disassembler"
# Bits of registers are read as numbers of any type, and a kernel that may not contract does not.
COMPILE = (
    "-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread", "-fno-strict-aliasing",
    "-ffp-contract=off",
)  # fmt: skip


def kept() -> Path:
    """A folder whose build serves all runs: SIM_HIP_BUILD, or one of this user."""
    return cxx.kept("hip")


def build_engine(folder: Path) -> Path:
    """The engine as a program, with the disassembler that it starts beside it.

    Raises: NoCompiler; subprocess.CalledProcessError with the compiler's text on stderr.
    """
    programs = [(name, [HERE / f"{name}.cpp"]) for name in ("engine_main", "disassembler_main")]
    with cxx.building(folder) as folder:
        named = f'-DGFX9_DISASSEMBLER="{folder / DISASSEMBLER}"'
        command = (*cxx.compiler(), *COMPILE, *cxx.WARN, named)
        made = cxx.objects(folder, command, [*cxx.units([HERE]), *programs], [HERE])
        *engine, main, disassembler = made
        cxx.linked(folder, command, [disassembler], ["-ldl"], DISASSEMBLER)
        return cxx.linked(folder, command, [*engine, main], ["-ldl"], ENGINE)


if __name__ == "__main__":
    print(build_engine(Path(sys.argv[1])))
