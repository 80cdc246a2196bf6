"""The compiler of HIP: hiprtc."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hal_core import render
from hal_core.compiler import CompileOptions, Compiler, CompilerPair
from hal_core.compiler.logs import fault_line
from hal_core.compiler.options import refuse_files
from hal_core.compiler.seal import seal, unseal
from hal_core.errors import CompileError, InvalidArgument, Unsupported
from hal_core.streams.runtime_compiler import CompilerRefused
from hal_hip import hiprtc

if TYPE_CHECKING:
    from hal_hip.device import HIPDevice

MAKER = "hal-hip 1"  # the format of binaries and its version
_FILE = "CompileSource"  # hiprtc's name of the text, in a folder or alone
_ERROR = re.compile(
    rf"(?m)^(?:\S*/)?(?P<file>{_FILE})[\w.-]*:(?P<line>\d+):(?:\d+:)? (?:fatal )?error"
)
# Options that make clang read files, whose texts the cache key would not have.
_READS_FILES = re.compile("-I|-i[a-z]|--include|-F|-B|@|-fpass-plugin|-fprofile|-fplugin|-Xclang")
_ARCHITECTURES = re.compile("--?gpu-architecture|--offload-arch|-march|-mcpu|--?target")


def pairs(device: HIPDevice) -> list[CompilerPair]:
    """List the device's compilers: the one."""
    return [
        CompilerPair("hiprtc", "hip", lambda: render.HIPRenderer(), lambda: HIPRTCCompiler(device))
    ]


class HIPRTCCompiler(Compiler):
    """hiprtc, which makes a code object for the device's architecture with all its features.

    Concurrency: any thread; they take turns.
    """

    language, format = "hip", "hip"
    device: HIPDevice

    def __init__(self, device: HIPDevice) -> None:
        self.device = device
        found = hiprtc.find()
        self.target = device.info.arch
        self.headers = hiprtc.header_folders(found.path)
        self.identity = f"hiprtc {found.version} {self.target} {' '.join(self.headers)}"

    def _compile(self, source: str, options: CompileOptions) -> bytes:
        operation = f"compile {options.entry}"
        try:
            image = hiprtc.compile(source, self._flags(options, operation))
        except CompilerRefused as error:
            raise CompileError(
                operation, f"hiprtc refuses the text: {error}", log=error.log, source=source,
                line=fault_line(error.log, _FILE, _ERROR), device=self.device.name,
            ) from None  # fmt: skip
        return seal(MAKER, self.target, image)

    def _disassemble(self, image: bytes) -> str:
        target, code = unseal(MAKER, image, "disassemble", self.device.name)
        try:
            return hiprtc.disassemble(code, target)
        except CompilerRefused as error:
            raise Unsupported("disassemble", str(error), device=self.device.name) from None

    def _flags(self, options: CompileOptions, operation: str) -> tuple[str, ...]:
        refuse_files(options.options, _READS_FILES, operation, self.device.name)
        for option in options.options:
            if _ARCHITECTURES.match(option.strip()):
                raise InvalidArgument(
                    operation, "options cannot name an architecture: the code is for the device",
                    got=option, limit=self.target, device=self.device.name, fix="Leave it out.",
                )  # fmt: skip
        defines = tuple(f"-D{name}={value}" for name, value in options.defines)
        folders = tuple(f"-I{path}" for path in (*options.includes, *self.headers))
        return (f"--gpu-architecture={self.target}", *options.options, *defines, *folders)
