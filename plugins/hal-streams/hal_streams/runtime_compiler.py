"""Compilers in a library, from C++ to machine code, with one interface under two prefixes: NVRTC
and hiprtc.

Imports nothing of hal-core: a process that only compiles starts the sooner.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from hal_core.concurrency import suppress

T = TypeVar("T")


class CompilerRefused(Exception):
    """The compiler refused a text or a call; `log` is all that it said of the text."""

    def __init__(self, status: str, log: str) -> None:
        super().__init__(status)
        self.log = log


def first_of(libraries: Iterable[str], load: Callable[[str], T]) -> T:
    """Load the first library that is there and has what is looked for in it. Raises: OSError."""
    names = list(libraries)
    for name in names:
        with suppress(OSError, AttributeError):
            return load(name)
    raise OSError(f"none of {', '.join(names)} is found")


class RuntimeCompiler:
    """The loaded library at `path`, whose functions begin with `prefix`.

    Raises: OSError where it cannot be loaded; AttributeError where it is no such compiler.
    """

    def __init__(self, path: str, prefix: str) -> None:
        self.path, self.prefix = path, prefix
        self.library = ctypes.CDLL(path)
        self._function("GetErrorString").restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("Version", ctypes.byref(major), ctypes.byref(minor))
        self.version = major.value, minor.value

    def compile(
        self, text: str, name: str, options: tuple[str, ...], image: str,
        headers: dict[str, str] | None = None,
    ) -> bytes:  # fmt: skip
        """Compile a text to an image, named as in the interface: "CUBIN", "PTX", "Code".

        `headers` are texts by the names that `#include` has for them; others are found in the
        folders of the options. Raises: CompilerRefused.
        """
        known = headers or {}
        texts, names = (
            (ctypes.c_char_p * len(known))(*map(str.encode, part))
            for part in (known.values(), known)
        )
        program = ctypes.c_void_p()
        handle = ctypes.byref(program)
        described = text.encode(), name.encode(), len(known), texts, names
        self.call("CreateProgram", handle, *described)
        try:
            given = (ctypes.c_char_p * len(options))(*map(os.fsencode, options))
            status = self._function("CompileProgram")(program, len(options), given)
            if status:
                log = self._read("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
                raise CompilerRefused(self._name(status), log.strip())
            return self._read(image, program)
        finally:
            self.call("DestroyProgram", handle)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function, named without its prefix. Raises: CompilerRefused."""
        status = self._function(name)(*arguments)
        if status:
            raise CompilerRefused(f"{self.prefix}{name}: {self._name(status)}", "")

    def _function(self, name: str) -> Any:
        return getattr(self.library, self.prefix + name)

    def _read(self, what: str, program: ctypes.c_void_p) -> bytes:
        nbytes = ctypes.c_size_t()
        self.call(f"Get{what}Size", program, ctypes.byref(nbytes))
        content = ctypes.create_string_buffer(max(1, nbytes.value))
        self.call(f"Get{what}", program, content)
        return content.raw[: nbytes.value]

    def _name(self, status: int) -> str:
        return str(self._function("GetErrorString")(status).decode())
