"""NVRTC and hiprtc: compilers as libraries, with one interface under two prefixes.

As a program, `python rtc.py LIBRARY PREFIX IMAGE` compiles for its parent: it reads pickles of a
text and its options, and writes pickles of what came out. hiprtc is used so: its LLVM and that of
PoCL, in one process, end it, and it ends its process itself where it knows no target.
"""

import ctypes
import pickle
import subprocess
import sys


class RefusedError(Exception):
    """With the compiler's log."""


class Library:
    """`image` is what to ask for: its name in the interface."""

    def __init__(self, path, prefix, image):
        self.library, self.prefix, self.image = ctypes.CDLL(path), prefix, image

    def call(self, name, *arguments):
        return int(getattr(self.library, self.prefix + name)(*arguments))

    def check(self, name, *arguments):
        status = self.call(name, *arguments)
        if status:
            raise RuntimeError(f"{self.prefix}{name}: {status}")

    def compile(self, text, options):
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

    def read(self, what, program):
        nbytes = ctypes.c_size_t()
        self.check(f"Get{what}Size", program, ctypes.byref(nbytes))
        content = ctypes.create_string_buffer(nbytes.value + 1)
        self.check(f"Get{what}", program, content)
        return content.raw[: nbytes.value]


class Child:
    """The same in a process of its own, which is kept and, when it has ended, replaced."""

    def __init__(self, path, prefix, image):
        self.command = (sys.executable, __file__, path, prefix, image)
        self.process = None

    def compile(self, text, options):
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        if self.process.stdin is None or self.process.stdout is None:
            raise AssertionError("the child has no pipes")
        try:
            pickle.dump((text, options), self.process.stdin)
            self.process.stdin.flush()
            image, log = pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError):
            self.process.kill()
            raise RefusedError(f"the compiler ended with {self.process.wait()}") from None
        if image is None:
            raise RefusedError(log)
        return bytes(image)

    def close(self):
        if self.process and self.process.stdin and self.process.stdout:
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()


def serve(library):
    """Answer until standard input ends."""
    while True:
        try:
            text, options = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = (library.compile(text, options), "")
        except RefusedError as refused:
            answer = (None, str(refused))
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve(Library(*sys.argv[1:4]))
