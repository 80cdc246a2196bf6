"""This machine as one without root, an OpenCL driver and compilers."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import nox

from sessions.distributions import ROOT
from sessions.kit import CORE_CHAPTERS

# In five minutes: kit and examples on what wheels bring.
_SHORT = (
    ("conformance(CPU-llvm)", "conformance(CPU-zig)", "conformance(PYTHON-uops)",
     "conformance(OPENCL-driver)", "--", "--chapter", *CORE_CHAPTERS),
    ("together", "--", str(ROOT / "tests" / "repository" / "test_examples.py")),
    ("demo",),
)  # fmt: skip
_COMPILERS = re.compile(
    r"(.+-)?(gcc|g\+\+|cc|c\+\+|cpp|c89|c99|clang(\+\+|-cpp)?|tcc|zig|nvcc|hipcc|gcc-(ar|nm|ranlib)"
    r"|ld(\..+)?|gold|lld|as|ar|nm|ranlib|objdump|objcopy|readelf|strip)(-[\d.]+)?"
    r"|(spirv|glslang|llvm|oclgrind).*"
)


def run(session: nox.Session, noxfile: str) -> None:
    """Run the second command, or a short part of it, without drivers and compilers."""
    folder = Path(session.create_tmp()).resolve()
    env = _variables(folder)
    command = (sys.executable, "-m", "nox", "-f", noxfile, "--envdir", str(folder / "sessions"))
    for chosen in _SHORT if "--short" in session.posargs else ((),):
        named = ("-s", *chosen) if chosen else ()
        session.run(*command, *named, env=env, external=True)


def _variables(folder: Path) -> dict[str, str]:
    """Return the variables of a process that finds neither drivers nor compilers."""
    for name in ("no-drivers", "programs"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    for place in os.get_exec_path():
        for path in Path(place).glob("*"):
            link = folder / "programs" / path.name
            if not _COMPILERS.fullmatch(path.name) and not link.is_symlink():
                link.symlink_to(path)
    return {
        "OCL_ICD_VENDORS": str(folder / "no-drivers"), "PATH": str(folder / "programs"),
        "HAL_REQUIRE": "", "CC": "", "CXX": "",
    }  # fmt: skip
