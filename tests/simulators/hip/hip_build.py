"""Builds the software HIP runtime: `python hip_build.py FOLDER` leaves FOLDER/libamdhip64.so.6."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cxx
from cxx import NoCompiler as NoCompiler

HERE = Path(__file__).resolve().parent
FOLDERS = (HERE, HERE.parent / "driver")
ENGINE, DISASSEMBLER = "gfx9-engine", "gfx9-disassembler"
# Not .5, in which Debian's hiprtc is: that one must still be found.
NAME = "libamdhip64.so.6"
# Bits of registers are read as numbers of any type, and a kernel that may not contract does not.
COMPILE = (
    "-std=c++20", "-fPIC", "-fvisibility=hidden", "-pthread", "-fno-strict-aliasing",
    "-ffp-contract=off",
)  # fmt: skip
LINK = ("-shared", "-pthread", "-Wl,-Bsymbolic", f"-Wl,-soname,{NAME}", "-ldl")
TOGETHER = (
    "runtime array context driver event faults graph live memory stream",
    "rows run code decode disassembler metadata",
)


def kept():
    """A folder whose build serves all runs: SIM_HIP_BUILD, or one of this user."""
    return cxx.kept("hip")


def build(folder):
    """The library in `folder`, built where it is not there yet.

    Raises: NoCompiler; subprocess.CalledProcessError with the compiler's text on stderr.
    """
    return _built(folder, cxx.units(FOLDERS, TOGETHER), LINK, NAME)


def build_engine(folder):
    """The engine as a program. Raises: as `build`."""
    alone = [unit for unit in cxx.units([HERE], TOGETHER) if unit[0] != "runtime"]
    main = ("engine_main", [HERE / "engine_main.cpp"])
    return _built(folder, [*alone, main], ("-pthread",), ENGINE)


def _built(folder, units, link, name):
    """A library or program, with the disassembler beside it, which it starts."""
    with cxx.building(folder) as folder:
        named = f'-DGFX9_DISASSEMBLER="{folder / DISASSEMBLER}"'
        command = (*cxx.compiler(), *COMPILE, *cxx.WARN, named)
        helper = (DISASSEMBLER, [HERE / "disassembler_main.cpp"])
        made = cxx.objects(folder, command, [helper, *units], FOLDERS)
        cxx.linked(folder, command, made[:1], ("-ldl",), DISASSEMBLER)
        return cxx.linked(folder, command, made[1:], link, name)


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
