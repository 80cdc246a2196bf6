"""The compiler of HIP: hiprtc."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hal_core.compiler import CompilerPair
from hal_core.compiler.seal import unseal
from hal_core.concurrency import Late
from hal_core.errors import Unsupported
from hal_core.source import Source
from hal_hip import hiprtc
from hal_streams.compiler import StreamCompiler
from hal_streams.runtime_compiler import CompilerRefused

if TYPE_CHECKING:
    from hal_hip.device import HIPDevice

render = Late("hal_hip.render")  # at first use: a device whose kernels are text alone needs none

MAKER = "hal-hip 1"  # the format of binaries and its version


def pairs(device: HIPDevice) -> list[CompilerPair]:
    """List the device's compilers: the one."""
    return [
        CompilerPair("hiprtc", "hip", lambda: render.HIPRenderer(), lambda: HIPRTCCompiler(device))
    ]


class HIPRTCCompiler(StreamCompiler):
    """hiprtc, which makes a code object for the device's architecture with all its features.

    Concurrency: any thread; they take turns.
    """

    language, format, maker, title = "hip", "hip", MAKER, "hiprtc"
    text_name = "CompileSource"  # in a folder or alone
    error = re.compile(
        r"(?m)^(?:\S*/)?(?P<file>CompileSource)[\w.-]*:(?P<line>\d+):(?:\d+:)? (?:fatal )?error"
    )
    # Options that make clang read files, whose texts the cache key would not have.
    reads_files = re.compile(
        "-I|-i[a-z]|--include|-F|-B|@|-fpass-plugin|-fprofile|-fplugin|-Xclang"
    )
    device: HIPDevice

    def __init__(self, device: HIPDevice) -> None:
        self.device = device
        found = hiprtc.find()
        self.target = self.label = device.info.arch
        self.headers = hiprtc.header_folders(found.path)
        self.identity = f"hiprtc {found.version} {self.target} {' '.join(self.headers)}"

    def _disassemble(self, image: bytes) -> str:
        target, code = unseal(MAKER, image, "disassemble", self.device.name)
        try:
            return hiprtc.disassemble(code, target)
        except CompilerRefused as error:
            raise Unsupported("disassemble", str(error), device=self.device.name) from None

    def _translate(self, source: Source[Any], text: str, flags: tuple[str, ...]) -> bytes:
        return hiprtc.compile(text, (f"--gpu-architecture={self.target}", *flags))
