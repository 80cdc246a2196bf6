"""Drivers: those of the machine, those that PyPI brings, and those in software."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

import nox

from sessions import one_run, tools
from sessions.distributions import ROOT

SIMULATORS = ROOT / "tests" / "simulators"
_COUNT = "import pyopencl as cl; print(len(cl.get_platforms()))"
_BUILD = f"{_COUNT}; cl.Program(cl.create_some_context(False), '__kernel void f() {{}}').build()"
_FORGET = (
    "import importlib.metadata as m\n"
    "for one in m.files('pocl-binary-distribution'): one.suffix != '.icd' or one.locate().unlink()"
)


def nvidia() -> bool:
    """Tell whether this machine has NVIDIA's driver."""
    try:
        ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return False
    return True


def required(family: str) -> bool:
    """Tell whether HAL_REQUIRE says that this machine has a driver of the family."""
    return family in os.environ.get("HAL_REQUIRE", "").split(",")


def opencl(session: nox.Session) -> tuple[str, ...]:
    """Find the machine's OpenCL platform, or bring PoCL from PyPI; ("OPENCL",) if there is one.

    With HAL_REQUIRE=OPENCL it must be the machine's: what CI counts on is not replaced in silence.
    """
    if _has_opencl_platform(session):
        return ("OPENCL",)
    if required("OPENCL"):
        session.error("HAL_REQUIRE=OPENCL, and there is no OpenCL platform on this machine")
    session.install(tools.POCL)
    if not (shutil.which("ld") and shutil.which("cc")):
        _bring_linker(session)
    found = _has_opencl_platform(session, _BUILD)
    if not found:  # it knows no processor newer than itself, and would be a device that never opens
        session.run("python", "-c", _FORGET, silent=True, success_codes=[0, 1])
    what = "OPENCL on a driver of this machine" + (" (it ran on PoCL from PyPI)" if found else "")
    with one_run.left_out().open("a", encoding="utf-8") as file:
        file.write(f"pocl-opencl-icd {what}\n")
    return ("OPENCL",) if found else ()


def _has_opencl_platform(session: nox.Session, code: str = _COUNT) -> bool:
    found = session.run("python", "-c", code, silent=True, success_codes=[0, 1])
    return str(found).strip().isdigit() and int(str(found)) > 0


def _bring_linker(session: nox.Session) -> None:
    """Put an `ld` on the session's path, zig's: PoCL calls it for the machine code of each kernel.

    PoCL asks for libraries of a C compiler, too, which the machine lacks and kernels do not need.
    """
    session.install("ziglang")
    where = "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / 'zig')"
    zig = str(session.run("python", "-c", where, silent=True)).strip()
    linker = Path(session.bin, "ld")
    others = 'for one; do\nshift\ncase $one in -l*) ;; *) set -- "$@" "$one" ;; esac\ndone'
    linker.write_text(f'#!/bin/sh\n{others}\nexec "{zig}" ld.lld "$@"\n', encoding="utf-8")
    linker.chmod(0o755)


def shared_builds() -> dict[str, str]:
    """Return the folders in which all sessions of this run build the drivers in software, once."""
    families = ("CUDA", "HIP", "METAL")
    return {f"SIM_{name}_BUILD": str(one_run.folder() / f"software-{name}") for name in families}


def in_software(session: nox.Session, family: str, folder: Path) -> dict[str, str]:
    """Build a family's driver in software, and return the variables with which a process loads it.

    A family that needs none has no variables.
    """
    if family == "METAL":
        return {"PYTHONPATH": str(SIMULATORS / "metal" / "pyobjc"), **shared_builds()}
    builds = {"CUDA": "cuda/build.py", "HIP": "hip/hip_build.py"}
    if family not in builds:
        return {}
    place = str(folder / family.lower())
    session.run("python", str(SIMULATORS / builds[family]), place)
    # A CUDA driver that is newer than any compiler.
    version = {"SIM_CUDA_DRIVER": "99.0"} if family == "CUDA" else {}
    return {"LD_LIBRARY_PATH": place, **version}
