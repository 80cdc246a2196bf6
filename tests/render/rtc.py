"""NVRTC and hiprtc: compilers as libraries, with one interface under two prefixes.

As a program: `python rtc.py LIBRARY PREFIX IMAGE OPTION...` compiles its input; exit status 1 and
the log when it is refused or warned of. hiprtc is used so: its LLVM and that of PoCL, in one
process, end it.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any


class RefusedError(Exception):
    """With the compiler's log."""


class Library:
    """`image` is what to ask for: its name in the interface."""

    def __init__(self, path: str, prefix: str, image: str) -> None:
        self.library, self.prefix, self.image = ctypes.CDLL(path), prefix, image

    def call(self, name: str, *arguments: Any) -> int:
        return int(getattr(self.library, self.prefix + name)(*arguments))

    def check(self, name: str, *arguments: Any) -> None:
        status = self.call(name, *arguments)
        if status:
            raise RuntimeError(f"{self.prefix}{name}: {status}")

    def compile(self, text: str, options: list[str]) -> bytes:
        program = ctypes.c_void_p()
        place = ctypes.byref(program)
        self.check("CreateProgram", place, text.encode(), b"kernel.txt", 0, None, None)
        try:
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            status = self.call("CompileProgram", program, len(options), given)
            log = self.read("ProgramLog", program).rstrip(b"\0").decode().strip()
            if status or log:
                raise RefusedError(f"status {status}\n{log}")
            return self.read(self.image, program)
        finally:
            self.check("DestroyProgram", place)

    def read(self, what: str, program: ctypes.c_void_p) -> bytes:
        nbytes = ctypes.c_size_t()
        self.check(f"Get{what}Size", program, ctypes.byref(nbytes))
        content = ctypes.create_string_buffer(nbytes.value + 1)
        self.check(f"Get{what}", program, content)
        return content.raw[: nbytes.value]


if __name__ == "__main__":
    try:
        sys.stdout.buffer.write(Library(*sys.argv[1:4]).compile(sys.stdin.read(), sys.argv[4:]))
    except RefusedError as refused:
        sys.exit(str(refused))
