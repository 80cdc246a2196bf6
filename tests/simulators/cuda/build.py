"""Builds the software CUDA driver: `python build.py FOLDER` leaves FOLDER/libcuda.so.1.

Nothing is compiled again that was compiled before in the same folder from the same sources, by the
same compiler.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMPILE = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread")
WARN = ("-Wall", "-Wextra", "-Werror")
LINK = ("-shared", "-pthread", "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1", "-ldl")
NAME = "libcuda.so.1"
TOGETHER = ("context", "driver", "memory", "module", "stream")


class NoCompiler(Exception):
    """There is no C++ compiler on this machine."""


def compiler() -> tuple[str, ...]:
    """`$CXX`, g++, or the one in the `ziglang` wheel.

    Raises: NoCompiler.
    """
    named = os.environ.get("CXX", "").split()
    if named:
        return tuple(named)
    if found := shutil.which("g++"):
        return (found,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "c++")
    raise NoCompiler("no g++ on PATH, no ziglang installed, and CXX is not set")


def units() -> list[tuple[str, list[Path]]]:
    """What is compiled at once: half of a small file's time goes into the standard headers.

    Programs, which have a `main` of their own, are left out.
    """
    found: dict[str, list[Path]] = {}
    for path in sorted(HERE.glob("*.cpp")):
        noun = path.stem.split("_")[0]
        if not path.stem.endswith("_main"):
            found.setdefault(noun if noun in TOGETHER else path.stem, []).append(path)
    return sorted(found.items())


def kept() -> Path:
    """A folder whose build serves all runs: SIM_CUDA_BUILD, or one of this user."""
    usual = Path(tempfile.gettempdir()) / f"hal-simulators-{os.getuid()}" / "cuda"
    return Path(os.environ.get("SIM_CUDA_BUILD", usual))


def build(folder: Path, *, extra: tuple[str, ...] = ()) -> Path:
    """The library in `folder`, built where it is not there yet. `extra` goes to the compiler too.

    Raises: NoCompiler; subprocess.CalledProcessError with the compiler's text on stderr.
    """
    folder = Path(folder).resolve()
    objects = folder / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    command = (*compiler(), *COMPILE, *WARN, *extra)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may start at once
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made = list(pool.map(lambda unit: _object(command, unit[0], unit[1], objects), units()))
        return _library(command, made, folder)


def _texts(path: Path, seen: dict[Path, bytes]) -> dict[Path, bytes]:
    """A file and all of ours that it includes."""
    if path not in seen and path.exists():
        seen[path] = path.read_bytes()
        for name in re.findall(rb'^#include "([^"]+)"', seen[path], re.MULTILINE):
            _texts(HERE / name.decode(), seen)
    return seen


def _object(command: tuple[str, ...], name: str, paths: list[Path], objects: Path) -> Path:
    texts: dict[Path, bytes] = {}
    for path in paths:
        _texts(path, texts)
    key = hashlib.sha256("\0".join(command).encode() + b"\0".join(texts.values())).hexdigest()
    target = objects / f"{name}-{key[:16]}.o"
    if not target.exists():
        unit, part = target.with_suffix(".cpp"), target.with_suffix(".part")
        unit.write_text("".join(f'#include "{path}"\n' for path in paths))
        subprocess.run((*command, "-c", str(unit), "-o", str(part)), check=True)
        part.replace(target)
    return target


def _library(command: tuple[str, ...], objects: list[Path], folder: Path) -> Path:
    key = hashlib.sha256("\0".join(path.name for path in objects).encode()).hexdigest()[:16]
    target, linked = folder / NAME, folder / "objects" / f"{key}.so"
    if not linked.exists():
        part = linked.with_suffix(".part")
        subprocess.run((*command, *map(str, objects), *LINK, "-o", str(part)), check=True)
        part.replace(linked)
    # Both names: programs are linked against the short one.
    for name in (NAME, "libcuda.so"):
        fresh = folder / f"{name}.new"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(linked.relative_to(folder))
        fresh.replace(folder / name)
    return target


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
