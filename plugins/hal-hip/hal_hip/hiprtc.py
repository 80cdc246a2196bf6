"""hiprtc, AMD's compiler as a library, and comgr, its disassembler: in a process of their own.

hiprtc 5.2 ends its process for an architecture that it does not know, and the LLVM inside of it and
that of PoCL end a process that has both. `answer` runs in that process, the rest in ours.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from hal_core.errors import CompilerUnavailable
from hal_hip import comgr
from hal_streams.helper_process import HelperDied, HelperProcess
from hal_streams.runtime_compiler import CompilerRefused, RuntimeCompiler, first_of

if os.name == "nt":  # `hiprtc0602.dll` is that of 6.2
    _folder = Path(os.environ.get("HIP_PATH", "C:/Windows"), "bin")
    _LIBRARIES = sorted(map(str, _folder.glob("hiprtc[0-9]*.dll")), reverse=True)
else:  # the first versions have it inside of the runtime
    _LIBRARIES = [f"lib{name}.so.{n}" for name in ("hiprtc", "amdhip64") for n in (7, 6, 5)]
# A kernel may include this header, whose contents hiprtc has built in. 5.2 does not find the file,
# so it is given one: a comment, as an empty one is refused.
_HEADERS = {"hip/hip_runtime.h": "// built in\n"}
_ISA = "amdgcn-amd-amdhsa--"
_INSTALL = "Install ROCm's hiprtc; Debian and Ubuntu have it in libamdhip64-5 or newer."

_helper = HelperProcess(__name__)


class Found(NamedTuple):
    """The library that compiles, and its version with the file's, which says more."""

    path: str
    version: str


@functools.cache
def find() -> Found:
    """Load hiprtc. Raises: CompilerUnavailable."""
    try:
        return Found(*_ask({"do": "find"}, b"").decode().splitlines())
    except CompilerRefused as error:
        problem = f"hiprtc cannot be loaded: {error}"
        raise CompilerUnavailable("hiprtc", problem, fix=_INSTALL) from None


def compile(text: str, options: tuple[str, ...]) -> bytes:
    """Compile a text to a code object. Raises: CompilerRefused, also where the compiler dies."""
    return _ask({"do": "compile", "options": options}, text.encode())


def disassemble(code: bytes, target: str) -> str:
    """Return the instructions of a code object as text. Raises: CompilerRefused."""
    return _ask({"do": "disassemble", "isa": _ISA + target}, code).decode(errors="replace")


def _ask(question: dict[str, Any], content: bytes) -> bytes:
    try:
        answer, result = _helper.ask(question, content)
    except HelperDied as died:
        raise CompilerRefused(f"the compiler died: {died}", died.log) from None
    if "refused" in answer:
        raise CompilerRefused(answer["refused"], answer["log"])
    return result


@functools.cache
def header_folders(library: str) -> tuple[str, ...]:
    """Return the folder of ROCm's headers, which hiprtc 5 does not find by itself."""
    named = [os.environ[name] for name in ("ROCM_PATH", "HIP_PATH") if os.environ.get(name)]
    beside = os.path.dirname(os.path.dirname(library))
    for root in (*named, beside, "/opt/rocm", "/usr"):
        folder = Path(root, "include")
        if (folder / "hip" / "hip_runtime.h").is_file():
            return (str(folder),)
    return ()


# -- in the process of the compiler


def answer(question: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
    """Answer a question of `find`, `compile` or `disassemble`."""
    try:
        if question["do"] == "disassemble":
            return {}, comgr.disassemble(question["isa"], content)
        library = _load()
        if question["do"] == "compile":
            options, text = tuple(question["options"]), content.decode()
            return {}, library.compile(text, "kernel.hip", options, "Code", _HEADERS)
    except (OSError, CompilerRefused) as error:
        return {"refused": str(error), "log": getattr(error, "log", "")}, b""
    path = _file_of(library.path)
    version = ".".join(map(str, library.version))
    return {}, f"{path}\n{version} ({Path(path).name})".encode()


@functools.cache
def _load() -> RuntimeCompiler:
    return first_of(_LIBRARIES, lambda name: RuntimeCompiler(name, "hiprtc"))


def _file_of(library: str) -> str:
    """Return the file that a library was loaded from; its name where the system does not tell."""
    maps = Path("/proc/self/maps")
    stem = re.escape(library.partition(".so")[0])
    found = maps.exists() and re.search(rf"(?m)/\S*/{stem}\.so\S*$", maps.read_text())
    return found[0] if found else library
