"""C compilers: programs on the machine that make ELF objects."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from hal_core.compiler import Module
from hal_core.errors import CompileError, CompilerUnavailable
from hal_core.source import Source
from hal_cpu import __version__, processor
from hal_cpu.compilers import files
from hal_cpu.compilers.objects import ObjectCompiler
from hal_cpu.compilers.seal import sealed
from hal_cpu.compilers.source import (
    WRAPPER,
    arguments_of,
    complete_all,
    declared_text,
    nearly_kernels,
    reading_of,
    text_of,
)
from hal_kernel.c_texts.folders import temporary_folder
from hal_kernel.c_texts.included import digest_of_headers
from hal_kernel.c_texts.prototypes import Reading


class CCompiler(NamedTuple):
    """A row of data about one C compiler: how to find, call and install it."""

    name: str
    command: Callable[[], tuple[str, ...] | None]  # None: it is not installed
    native: dict[str, str]  # machine -> the option for this very processor
    install: str
    flags: tuple[str, ...] = ()  # of this compiler only
    flags_uint64: tuple[str, ...] = ()  # for kernels that may make floats of such numbers


def _find(name: str, *arguments: str) -> tuple[str, ...] | None:
    path = shutil.which(name)
    return None if path is None else (os.path.abspath(path), *arguments)


def _find_zig() -> tuple[str, ...] | None:
    """Find zig as a package of this Python (ziglang), else as a program."""
    from importlib.util import find_spec

    if find_spec("ziglang") is not None:
        return sys.executable, "-m", "ziglang", "cc"
    return _find("zig", "cc")


_MARCH = {"x86-64": "-march=native", "aarch64": "-mcpu=native"}
_ROUND = ("-frounding-math",)  # else gcc 12 turns 0 - x into -x, whose zero has the other sign
_TO_FLOAT = re.compile(r"\((float|double)\)")
_NO_SLP = ("-fno-slp-vectorize",)  # `llvm.py` says what newer LLVMs mistake
C_COMPILERS = {
    row.name: row
    for row in (
        CCompiler("clang", partial(_find, "clang"), _MARCH, "apt-get install clang", (), _NO_SLP),
        CCompiler("gcc", partial(_find, "gcc"), _MARCH, "apt-get install gcc", _ROUND),
        CCompiler(
            "zig",
            _find_zig,
            dict.fromkeys(_MARCH, "-mcpu=native"),
            "pip install ziglang",
            ("-UNDEBUG",),  # zig defines it where it optimises, and a user's assert() would be lost
            flags_uint64=_NO_SLP,
        ),
    )
}

_FLAGS = (
    "-c", "-x", "c", "-std=gnu11", "-O3",
    "-fPIC", "-fno-semantic-interposition",  # loaded anywhere; no function is replaced
    "-fwrapv",  # integers wrap, as the kernel language says
    "-fno-math-errno", "-fno-trapping-math",  # nothing reads errno or traps; results are the same
    "-fno-stack-protector", "-fno-sanitize=all",  # some distributions switch them on
    "-fno-asynchronous-unwind-tables",
    "-Werror=incompatible-pointer-types", "-Werror=implicit-function-declaration",
)  # fmt: skip
# Options of clang, by system. `LLVMCompiler` says why code for macOS has to hold whole addresses.
LARGE = ("-Xclang", "-mcmodel=large")  # as an option of clang itself it is refused on aarch64
ELF_ON_WINDOWS = ("-Xclang", "-triple", "-Xclang", "x86_64-pc-windows-msvc-elf")


def _options(row: CCompiler) -> tuple[str, ...]:
    """Return the options of this system. Raises: CompilerUnavailable."""
    if processor.object_format() == "macho":  # on a Mac gcc is a clang too
        return (*_FLAGS, *LARGE, *row.flags)
    if not processor.is_windows():
        return (*_FLAGS, *row.flags)
    if row.name == "gcc":
        raise CompilerUnavailable(
            "compiler gcc",
            "on Windows it makes COFF objects, and hal-cpu loads ELF objects",
            device="CPU",
            fix="Use the compiler llvm, which is the default, or CPU_CC=clang.",
        )
    # All code may lie anywhere on Windows, so clang has no option for that.
    flags = (flag for flag in _FLAGS if flag not in ("-fPIC", "-fno-semantic-interposition"))
    return (*flags, *ELF_ON_WINDOWS, *row.flags)


class CCompilerProgram(ObjectCompiler):
    """One of `C_COMPILERS`, run as a program for each kernel.

    Raises: CompilerUnavailable that says what to install.
    """

    language = "c"

    def __init__(self, row: CCompiler) -> None:
        super().__init__()
        command = row.command()
        if command is None:
            raise CompilerUnavailable(
                f"compiler {row.name}", "not installed", device="CPU", fix=row.install
            )
        self.name, self._flags_uint64 = row.name, row.flags_uint64
        self._command = (*command, *_options(row), row.native[self.target])
        version = _run([*command, "--version"])
        if version.returncode:
            raise CompilerUnavailable(
                f"compiler {row.name}",
                f"{' '.join(command)} --version fails: {version.stderr.strip()[:200]}",
                device="CPU",
                fix=row.install,
            )
        fixed = " ".join(self._command)  # `native` has the meaning that cpu_identity() tells
        self.identity = (
            f"{fixed} {row.flags_uint64} {version.stdout.strip()} {processor.cpu_identity()} "
            f"{self.system} sealed hal-cpu {__version__} "
            f"{hashlib.sha256(WRAPPER.encode()).hexdigest()}"
        )

    def _compile(self, source: Source) -> bytes:
        dtypes = source.signature.dtypes
        if not source.interface.rendered and any(dtype.kind in ("c", "V") for dtype in dtypes):
            return self._compile_module(source).image
        try:
            return self._compile_text(source, text_of(source))
        except CompileError as error:
            if source.interface.rendered or "signature of" not in error.log:
                raise
        # Types are compared as they are read, which names the argument that does not fit.
        return self._compile_module(source).image

    def _read(self, source: Source[Any]) -> Reading:
        """Preprocess the text and read its kernels. Raises: CompileError."""
        operation = f"compile {source.name}"
        with temporary_folder(operation, "CPU") as folder:
            path = os.path.join(folder, "kernel.c")
            with open(path, "w", encoding="utf-8") as file:
                file.write(declared_text(source))
            done = _run([*self._command, *arguments_of(source), path, "-E", "-P"])
        if done.returncode:
            raise self.refusal(source, done.stderr.strip(), f"{source.name}.c")
        return reading_of(source, done.stdout)

    def _compile_module(self, source: Source[Any]) -> Module:
        reading = self._read(source)
        for one in nearly_kernels(reading):
            self._compile(one)  # raises: the error has the line to write
        kernels = reading.compare()
        try:
            return Module(self._compile_text(source, complete_all(reading)), kernels)
        except CompileError as error:
            raise reading.misfit(error.log) or error from None

    def _headers(self, source: Source[Any]) -> str:
        return digest_of_headers(source)

    def _compile_text(self, source: Source[Any], text: str) -> bytes:
        arguments = arguments_of(source)
        if source.interface.rendered and "uint64_t" in text and _TO_FLOAT.search(text):
            arguments += self._flags_uint64
        with temporary_folder(f"compile {source.name}", "CPU") as folder:
            text_path, object_path, rule_path = (
                os.path.join(folder, f"kernel.{end}") for end in "cod"
            )
            with open(text_path, "w", encoding="utf-8") as file:
                file.write(text)
            # Besides the object a rule for make, with the files that the compiler read.
            written = "-o", object_path, "-MD", "-MF", rule_path, "-MT", "object"
            done = _run([*self._command, *arguments, text_path, *written])
            if done.returncode or not os.path.exists(object_path):
                log = done.stderr.strip() or f"exit status {done.returncode}"
                raise self.refusal(source, log, f"{source.name}.c")
            with open(object_path, "rb") as image:
                return sealed(files.with_files(image.read(), text_path, rule_path))

    def _is_current(self, image: bytes) -> bool:
        return files.is_current(image)


# Compilers read folders and options from these variables too, and no cache key has them.
_NOT_PASSED = {
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "SDKROOT",
    "GCC_EXEC_PREFIX", "COMPILER_PATH", "LIBRARY_PATH", "CCC_OVERRIDE_OPTIONS",
    "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES",
}  # fmt: skip


def _run(command: list[str]) -> Any:
    """Run a compiler, with messages in English."""
    import subprocess

    passed = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED}
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        env={**passed, "LC_ALL": "C"},
    )  # fmt: skip
