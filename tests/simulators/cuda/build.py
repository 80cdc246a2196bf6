"""Builds the software CUDA driver: `python build.py FOLDER` leaves FOLDER/libcuda.so.1."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cxx
from cxx import NoCompiler as NoCompiler

HERE = Path(__file__).resolve().parent
FOLDERS = (HERE, HERE.parent / "driver")
COMPILE = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-pthread")
NAME = "libcuda.so.1"
LINK = ("-shared", "-pthread", "-Wl,-Bsymbolic", f"-Wl,-soname,{NAME}", "-ldl")
TOGETHER = (
    "driver array context errors event faults graph live memory module stream",
    "parser cursor declaration decoder engine externals lexer machine operand routine types",
    "scheduler barrier control load move surface texture warp",
    "alu atomics",
)
FAST = ("alu", "scheduler")


def kept():
    """A folder whose build serves all runs: SIM_CUDA_BUILD, or one of this user."""
    return cxx.kept("cuda")


def build(folder):
    """The library in `folder`, built where it is not there yet.

    Raises: NoCompiler; subprocess.CalledProcessError with the compiler's text on stderr.
    """
    # Both names: programs are linked against the short one.
    return linked(folder, cxx.units(FOLDERS, TOGETHER), LINK, NAME, "libcuda.so")


def linked(folder, units, link, *names):
    """A library or program of these units."""
    command = (*cxx.compiler(), *COMPILE, *cxx.WARN)
    with cxx.building(folder) as folder:
        made = cxx.objects(folder, command, units, FOLDERS, FAST)
        return cxx.linked(folder, command, made, link, *names)


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
