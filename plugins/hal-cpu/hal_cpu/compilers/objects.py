"""The base class of compilers that make objects, which `loader` loads."""

from __future__ import annotations

import os
import shutil
import sys

from hal_core.compiler import Compiler
from hal_core.errors import CompileError, Unsupported
from hal_core.source import Source
from hal_cpu import processor
from hal_cpu.compilers.source import suggest_signature
from hal_kernel.c_texts.folders import temporary_folder
from hal_kernel.c_texts.logs import fault_line


class ObjectCompiler(Compiler):
    """A compiler that makes relocatable objects."""

    system = sys.platform  # that the code is for
    format = processor.object_format()
    name: str  # the one that CPU_CC chooses

    def __init__(self) -> None:
        self.target = processor.machine()

    def _disassemble(self, image: bytes) -> str:
        objdump = shutil.which("objdump") or shutil.which("llvm-objdump")
        if objdump is None:
            raise Unsupported(
                "disassemble",
                "objdump is not installed",
                device="CPU",
                fix="Install binutils (apt-get install binutils).",
            )
        import subprocess

        with temporary_folder("disassemble", "CPU") as folder:
            path = os.path.join(folder, "kernel.o")
            with open(path, "wb") as file:
                file.write(image)
            command = [objdump, "-d", "-r", "--no-show-raw-insn", path]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise CompileError("disassemble", "objdump failed", log=done.stderr, device="CPU")
        # The lines before the code name the temporary file, another one each time.
        return done.stdout.partition(":\n\n")[2] or done.stdout

    def refusal(self, source: Source, log: str, file: str) -> CompileError:
        """Return the error for a refused kernel; the compiler's log calls its text `file`."""
        return CompileError(
            f"compile {source.name}",
            f"{self.name} refused the kernel",
            log=log,
            source=source.text,
            line=fault_line(log, file),
            device="CPU",
            fix=suggest_signature(source, log),
        )
