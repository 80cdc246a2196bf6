"""Compiles the simulators, which are C++, into folders that are kept.

Nothing is compiled again that was compiled before in the same folder from the same sources, by the
same compiler.
"""

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
from contextlib import contextmanager
from pathlib import Path

WARN = ("-Wall", "-Wextra", "-Werror")


class NoCompiler(Exception):
    """There is no C++ compiler on this machine."""


def compiler():
    """`$CXX`, clang++, which takes half of g++'s time, g++, or the one in the `ziglang` wheel.

    Raises: NoCompiler.
    """
    named = os.environ.get("CXX", "").split()
    if named:
        return tuple(named)
    if found := shutil.which("clang++") or shutil.which("g++"):
        return (found,)
    if importlib.util.find_spec("ziglang"):
        # Without optimisation it would add checks whose library nothing here links.
        return (sys.executable, "-m", "ziglang", "c++", "-fno-sanitize=undefined")
    raise NoCompiler("no g++ on PATH (apt-get install g++), no ziglang, and CXX is not set")


def kept(name):
    """A folder of this user whose build serves all runs; SIM_NAME_BUILD names another one."""
    usual = Path(tempfile.gettempdir()) / f"hal-simulators-{os.getuid()}" / name
    return Path(os.environ.get(f"SIM_{name.upper()}_BUILD", usual))


def units(folders, together=()):
    """The files of those folders; those that begin with words of one line are compiled at once.

    Half of a small file's time goes into headers. Programs, which have a `main`, are left out.
    """
    group = {word: line.split()[0] for line in together for word in line.split()}
    found = {}
    for path in sorted(path for folder in folders for path in folder.glob("*.cpp")):
        if not path.stem.endswith("_main"):
            name = group.get(path.stem.split("_")[0], path.stem)
            found.setdefault(name, []).append(path)
    return sorted(found.items())


@contextmanager
def building(folder):
    """One process at a time builds in the folder; several test processes may start at once.

    The folder comes with its whole path.
    """
    folder = Path(folder).resolve()
    (folder / "objects").mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def objects(folder, command, units, headers, fast=()):
    """Compile what is not there yet; units of the names in `fast` are optimised, others not.

    An optimiser takes longer than the tests then save, but for what runs their instructions.
    `headers` are the folders of headers of ours.

    Raises: subprocess.CalledProcessError with the compiler's text on stderr.
    """
    command = (*command, *(f"-I{header}" for header in headers))
    missing, found = [], []
    for name, paths in units:
        whole = (*command, "-O1" if name in fast else "-O0")
        found.append(_object(folder, whole, name, paths, headers))
        if not found[-1].exists():
            missing.append((whole, found[-1], paths))
    # The largest first, at which one core would work alone at the end.
    missing.sort(key=lambda unit: -sum(path.stat().st_size for path in unit[2]))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda unit: _compile(*unit), missing))
    return found


def _texts(path, headers, seen):
    """A file and all of ours that it includes."""
    if path not in seen and path.exists():
        seen[path] = path.read_bytes()
        for name in re.findall(rb'^#include "([^"]+)"', seen[path], re.MULTILINE):
            for header in (path.parent, *headers):
                _texts(header / name.decode(), headers, seen)
    return seen


def _object(folder, command, name, paths, headers):
    """Return the path of a unit's object, which names the command and all texts."""
    texts = {}
    for path in paths:
        _texts(path, headers, texts)
    key = hashlib.sha256("\0".join(command).encode() + b"\0".join(texts.values())).hexdigest()
    return folder / "objects" / f"{name}-{key[:16]}.o"


def _compile(command, target, paths):
    unit, part = target.with_suffix(".cpp"), target.with_suffix(".part")
    unit.write_text("".join(f'#include "{path}"\n' for path in paths))
    subprocess.run((*command, "-c", str(unit), "-o", str(part)), check=True)
    part.replace(target)


def linked(folder, command, made, flags, *names):
    """Make a library or program of objects, under the first name; the others lead to the same."""
    key = hashlib.sha256("\0".join((*(path.name for path in made), *flags)).encode()).hexdigest()
    target = folder / "objects" / f"{names[0]}-{key[:16]}"
    if not target.exists():
        part = target.with_suffix(".part")
        subprocess.run((*command, *map(str, made), *flags, "-o", str(part)), check=True)
        part.replace(target)
    for name in names:
        fresh = folder / f"{name}.new"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target.relative_to(folder))
        fresh.replace(folder / name)
    return folder / names[0]
