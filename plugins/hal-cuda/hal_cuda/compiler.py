"""NVRTC, and the driver's own assembler for PTX of ours."""

from __future__ import annotations

import re
import subprocess
import tempfile
from typing import TYPE_CHECKING

from hal_core.compiler import CompileOptions, Compiler, CompilerPair
from hal_core.compiler.seal import seal, unseal
from hal_core.errors import CompileError, CompilerUnavailable, InvalidArgument, Unsupported
from hal_cuda import nvrtc

if TYPE_CHECKING:
    from hal_core.render import Renderer
    from hal_cuda.device import CUDADevice

MAKER = "hal-cuda 1"
_FAULT = re.compile(r"(?m)^(\S*?)\((\d+)\): (?:catastrophic )?error")
_FILES = ("-I", "--include-path", "-include", "--pre-include", "--pch", "-pch", "--use-pch")
_ISA_8_TARGETS = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90)  # PTX ISA 8.0


def pairs(device: CUDADevice) -> list[CompilerPair]:
    """`CUDA_CC=nvrtc` or `CUDA_CC=ptx`, which needs nothing beside the driver."""
    return [
        CompilerPair("nvrtc", "cuda", _cuda, lambda: NVRTCCompiler(device)),
        CompilerPair("ptx", "ptx", lambda: _ptx(device), lambda: PTXCompiler(device)),
    ]


def _cuda() -> Renderer:
    from hal_core.render import CUDARenderer

    return CUDARenderer()


def _ptx(device: CUDADevice) -> Renderer:
    from hal_core.render import PTXRenderer

    return PTXRenderer(ptx_target(device))


def _capability(device: CUDADevice) -> int:
    major, minor = device.info.vendor["compute_capability"]
    return int(major * 10 + minor)


def ptx_target(device: CUDADevice) -> str:
    """The newest architecture of PTX 8.0 that the device runs."""
    known = [arch for arch in _ISA_8_TARGETS if arch <= _capability(device)]
    if not known:
        raise Unsupported(
            "ptx", "the GPU is too old for our PTX", got=device.info.arch,
            limit=f"from sm_{_ISA_8_TARGETS[0]} on", device=device.name,
        )  # fmt: skip
    return f"sm_{known[-1]}"


class NVRTCCompiler(Compiler):
    """Machine code for the device at hand where NVRTC knows its architecture; else PTX for the
    newest one before it, which the driver translates.

    Concurrency: any thread.
    """

    language = "cuda"
    format = "cuda"

    def __init__(self, device: CUDADevice) -> None:
        self.device = device
        self.library = nvrtc.find()  # raises CompilerUnavailable
        capability = _capability(device)
        known = [arch for arch in self.library.architectures if arch <= capability]
        if not known:
            raise Unsupported(
                "nvrtc", "NVRTC no longer compiles for this device", got=device.info.arch,
                limit=f"from sm_{self.library.architectures[0]} on", device=device.name,
                fix="Install an older one: python -m pip install 'nvidia-cuda-nvrtc-cu12<12.9'",
            )  # fmt: skip
        exact = known[-1] == capability
        if not exact:
            self._check_driver()
        self.image = "CUBIN" if exact else "PTX"
        self.target = f"{'sm' if exact else 'compute'}_{known[-1]}"
        self.headers = nvrtc.header_folders()
        version = ".".join(map(str, self.library.version))
        self.identity = f"nvrtc {version} {self.target} {' '.join(self.headers)}"

    def _check_driver(self) -> None:
        """A driver translates the PTX of its own version of CUDA and of older ones."""
        driver, compiler = self.device.driver_version, self.library.version
        if compiler > driver:
            old, new = (".".join(map(str, version)) for version in (driver, compiler))
            package = f"nvidia-cuda-nvrtc-cu{driver[0]}=={old}.*"
            raise CompilerUnavailable(
                "nvrtc", f"the PTX of NVRTC {new} is too new for this driver", got=f"CUDA {old}",
                device=self.device.name,
                fix=f"Upgrade the driver, or: python -m pip install '{package}'",
            )  # fmt: skip

    def _compile(self, source: str, options: CompileOptions) -> bytes:
        operation = f"compile {options.entry}"
        name = f"<{options.entry}>"
        try:
            image = self.library.compile(source, name, self._flags(options, operation), self.image)
        except nvrtc.NVRTCError as error:
            raise CompileError(
                operation, f"NVRTC refuses the text: {error}", log=error.log, source=source,
                line=_fault_line(error.log, name), device=self.device.name,
            ) from None  # fmt: skip
        return seal(MAKER, [self.image.lower(), self.target], image)

    def _flags(self, options: CompileOptions, operation: str) -> tuple[str, ...]:
        for part in options.options:
            if part.strip().startswith(_FILES):
                raise InvalidArgument(
                    operation,
                    "options cannot name files: the compile cache would not see them change",
                    got=part, device=self.device.name,
                    fix="Give folders of headers with includes=.",
                )  # fmt: skip
        defines = tuple(f"--define-macro={name}={value}" for name, value in options.defines)
        folders = tuple(f"--include-path={path}" for path in (*options.includes, *self.headers))
        unmangled = () if options.rendered else ("--device-as-default-execution-space",)
        target = f"--gpu-architecture={self.target}"
        return (target, *unmangled, *options.options, *defines, *folders)

    def _disassemble(self, image: bytes) -> str:
        return disassemble(image, self.device.name)


class PTXCompiler(Compiler):
    """PTX stays text; that the driver takes it is seen at once."""

    language = "ptx"
    format = "cuda"

    def __init__(self, device: CUDADevice) -> None:
        self.device = device
        self.target = ptx_target(device)
        version = ".".join(map(str, device.driver_version))
        self.identity = f"ptx {self.target}, driver {version}"

    def _compile(self, source: str, options: CompileOptions) -> bytes:
        operation = f"compile {options.entry}"
        if options.options or options.defines or options.includes:
            raise InvalidArgument(
                operation, "PTX takes no options, macros or headers", device=self.device.name
            )
        try:
            with self.device.own(operation):
                module = self.device.api.load(source.encode())
                self.device.api.unload(module)
        except CompileError as error:
            match = re.search(r"line\s+(\d+)", error.log)
            raise CompileError(
                operation, "the driver refuses the PTX", log=error.log, source=source,
                line=int(match[1]) if match else None, device=self.device.name,
            ) from None  # fmt: skip
        return seal(MAKER, ["ptx", self.target], source.encode())

    def _disassemble(self, image: bytes) -> str:
        return disassemble(image, self.device.name)


def _fault_line(log: str, name: str) -> int | None:
    """The line of the text that the first error is in; None for errors in headers."""
    for match in _FAULT.finditer(log):
        if match[1] == name:
            return int(match[2])
    return None


def disassemble(image: bytes, device: str) -> str:
    """PTX as it is; machine code through nvdisasm or cuobjdump."""
    (kind, target), payload = unseal(MAKER, image, "disassemble", device)
    if kind == "ptx":
        return payload.rstrip(b"\0").decode()
    from cuda.pathfinder import find_nvidia_binary_utility

    for name, options in (("nvdisasm", ()), ("cuobjdump", ("-sass",))):
        tool = find_nvidia_binary_utility(name)
        if tool:
            with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
                file.write(payload)
                file.flush()
                done = subprocess.run(
                    [tool, *options, file.name], capture_output=True, text=True, timeout=60
                )
            if done.returncode == 0:
                return done.stdout
    raise Unsupported(
        "disassemble", f"neither nvdisasm nor cuobjdump is installed, to read {target} code",
        device=device,
        fix="Run: python -m pip install nvidia-cuda-nvcc, or compile with CUDA_CC=ptx.",
    )  # fmt: skip
