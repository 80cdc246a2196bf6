"""Xcode's Metal compiler, where it is installed: from text to a library of the GPU's own format.

It takes options and folders of headers, which the compiler of the system does not.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hal_core.compiler import Compiler
from hal_core.compiler.seal import seal, unseal
from hal_core.concurrency import suppress
from hal_core.errors import CompileError, CompilerUnavailable
from hal_core.source import Source
from hal_kernel.c_texts.folders import temporary_folder
from hal_kernel.c_texts.included import digest_of_headers
from hal_kernel.c_texts.logs import fault_line
from hal_kernel.c_texts.options import refuse_files
from hal_metal import driver
from hal_metal.arguments import check_room
from hal_metal.compiler import FILE, MetalCompiler, check_entry, with_macros

if TYPE_CHECKING:
    from hal_metal.device import MetalDevice

MAKER = "hal-metal library 1"
_COMMAND = ("xcrun", "-sdk", "macosx", "metal")
_READS_FILES = re.compile("-I|-i|--include|-F|@")


class XcrunCompiler(Compiler):
    """`xcrun metal`. Concurrency: any thread. Raises: CompilerUnavailable where there is none."""

    language = "metal"
    format = "metallib"

    def __init__(self, device: MetalDevice) -> None:
        self.device = device
        system = MetalCompiler(device)
        self.target = system.target
        self._standard = "-std=metal" + system.version.replace("_", ".")
        version = ""
        with suppress(OSError):
            asked = (*_COMMAND, "--version")
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            version = done.stdout.partition("\n")[0].strip() if not done.returncode else ""
        if not version:
            raise CompilerUnavailable(
                "compile", "there is no `xcrun metal`", device=device.name,
                fix="Install Xcode, then: xcodebuild -downloadComponent MetalToolchain.",
            )  # fmt: skip
        self.identity = f"{version}, {self._standard}, {system.identity}"

    def _compile(self, source: Source) -> bytes:
        operation, device = f"compile {source.name}", self.device
        check_room(source.signature, source.interface.rendered, operation, device.name)
        refuse_files(source.options, _READS_FILES, operation, device.name)
        text = with_macros(source)
        folders = [f"-I{folder}" for folder in source.includes]
        with temporary_folder(operation, device.name) as folder:
            path, made = Path(folder) / f"{FILE}.metal", Path(folder) / "made.metallib"
            path.write_text(f'#line 1 "{FILE}"\n{text}', encoding="utf-8")
            command = (*_COMMAND, self._standard, "-fno-fast-math", *source.options, *folders)
            done = subprocess.run(
                (*command, "-o", str(made), str(path)), capture_output=True, text=True, check=False
            )
            if done.returncode or not made.exists():
                raise CompileError(
                    operation, "xcrun metal refuses the text", log=done.stderr, source=source.text,
                    line=fault_line(done.stderr, FILE), device=device.name,
                )  # fmt: skip
            image = seal(MAKER, self._standard, made.read_bytes())
        with driver.check(operation, device.name):
            library = load_file(device, image, operation)
            check_entry(library, source.name, operation, device.name)
        device.keep_library(image, library)
        return image

    def _headers(self, source: Source[Any]) -> str:
        return digest_of_headers(source)


def load_file(device: MetalDevice, image: bytes, operation: str) -> Any:
    """Load an image that `xcrun metal` made. Raises: CompileError."""
    _, payload = unseal(MAKER, image, operation, device.name)
    with temporary_folder(operation, device.name) as folder:
        path = Path(folder, "made.metallib")
        path.write_bytes(payload)
        try:
            return driver.build_file(device.hardware, str(path))
        except driver.BuildError as error:
            raise CompileError(
                operation, "Metal refuses the library", log=error.log, device=device.name,
                fix="Compile the kernel again from its source.",
            ) from None  # fmt: skip
