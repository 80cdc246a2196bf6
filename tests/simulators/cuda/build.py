"""Builds the software CUDA driver: `python build.py FOLDER` leaves FOLDER/libcuda.so.1.

Nothing is compiled again that was compiled before in the same folder from the same sources, by the
same compiler.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMPILE = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread")
WARN = ("-Wall", "-Wextra", "-Werror")
LINK = ("-shared", "-pthread", "-Wl,-soname,libcuda.so.1", "-ldl")
NAME = "libcuda.so.1"


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


def sources() -> list[Path]:
    """All of the folder but programs, which have a `main` of their own."""
    return sorted(path for path in HERE.glob("*.cpp") if not path.stem.endswith("_main"))


def build(folder: Path, *, extra: tuple[str, ...] = ()) -> Path:
    """The library in `folder`, built where it is not there yet. `extra` goes to the compiler too.

    Raises: NoCompiler; subprocess.CalledProcessError with the compiler's text on stderr.
    """
    folder = Path(folder)
    objects = folder / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    command = (*compiler(), *COMPILE, *WARN, *extra)
    headers = b"".join(path.read_bytes() for path in sorted(HERE.glob("*.h")))
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may start at once
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made = list(pool.map(lambda path: _object(command, headers, path, objects), sources()))
        return _library(command, made, folder)


def _object(command: tuple[str, ...], headers: bytes, source: Path, objects: Path) -> Path:
    text = "\0".join(command).encode() + headers + source.read_bytes()
    target = objects / f"{source.stem}-{hashlib.sha256(text).hexdigest()[:16]}.o"
    if not target.exists():
        part = target.with_suffix(".part")
        subprocess.run((*command, "-c", str(source), "-o", str(part)), check=True)
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
