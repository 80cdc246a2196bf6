"""What the compilers of this backend share: they make ELF objects, which `loader` loads."""

from __future__ import annotations

import os
import tempfile

from hal_core.compiler import CompileOptions, Compiler
from hal_core.errors import CompileError, Unsupported
from hal_cpu import processor
from hal_cpu.compilers.source import how_to_write


class ObjectCompiler(Compiler):
    """What the compilers of this backend share: the form of what they make."""

    format = "elf"

    def __init__(self) -> None:
        self.target = processor.machine()

    def _disassemble(self, image: bytes) -> str:
        objdump = find_tool("objdump") or find_tool("llvm-objdump")
        if objdump is None:
            raise Unsupported(
                "disassemble",
                "objdump is not installed",
                device="CPU",
                fix="Install binutils (apt-get install binutils).",
            )
        import subprocess

        with tempfile.TemporaryDirectory(prefix="hal-cpu-") as folder:
            path = os.path.join(folder, "kernel.o")
            with open(path, "wb") as file:
                file.write(image)
            command = [objdump, "-d", "-r", "--no-show-raw-insn", path]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise CompileError("disassemble", "objdump refused", log=done.stderr, device="CPU")
        return done.stdout.partition(":\n\n")[2] or done.stdout


def find_tool(name: str) -> str | None:
    """The path of a program, as the shell would find it."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder or ".", name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
    return None


def failed(
    compiler: str, options: CompileOptions, log: str, text: str, line: int | None
) -> CompileError:
    """Of one that refuses a kernel's text."""
    return CompileError(
        f"compile {options.entry}",
        f"{compiler} refused the kernel",
        log=log,
        source=text,
        line=line,
        device="CPU",
        fix=how_to_write(options.signature, log),
    )


def line_in(log: str, mark: str) -> int | None:
    """The first line number after `mark` in an error message of the log."""
    for message in log.splitlines():
        if "error" not in message or mark not in message:
            continue
        digits = message.partition(mark)[2].partition(":")[0]
        if digits.isdigit():
            return int(digits)
    return None
