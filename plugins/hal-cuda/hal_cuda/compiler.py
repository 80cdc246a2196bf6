"""The compilers of CUDA: NVRTC, and the driver's own assembler for our PTX."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hal_core.compiler import Compiler, CompilerPair
from hal_core.compiler.seal import seal, unseal
from hal_core.concurrency import Late
from hal_core.errors import CompileError, Unsupported
from hal_core.source import Source, refuse_flags
from hal_cuda import nvrtc
from hal_kernel.c_texts.folders import temporary_folder
from hal_streams.compiler import StreamCompiler

if TYPE_CHECKING:
    from hal_cuda.device import CUDADevice

# Renderers are imported at first use: a device whose kernels are text alone needs none.
cuda, ptx = Late("hal_kernel.render.c.cuda"), Late("hal_cuda.render")

MAKER = "hal-cuda 1"  # the format of binaries and its version
_OF_TEXTS = (
    "--device-as-default-execution-space",  # of functions that name none
    # NVRTC 12 lacks it; the checks of structs need it.
    "-D__builtin_offsetof(type,field)=__INTADDR__(&(((type *)0)->field))",
)
_PTX_COMMENT = re.compile(r"//.*|/\*(?s:.*?)\*/")
_PTX_PARAM = re.compile(r"\.param\b[^,]*?\.(?:bf|[bfsu])(\d+)\b[^,[]*(?:\[(\d+)\])?")
_PTX_ERROR_LINE = re.compile(r"line\s+(\d+)")
_ISA_8_TARGETS = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90)  # PTX ISA 8.0


def pairs(device: CUDADevice) -> list[CompilerPair]:
    """List the device's compilers, best first: `CUDA_CC=nvrtc` or `ptx` chooses one."""
    return [
        CompilerPair("nvrtc", "cuda", lambda: cuda.CUDARenderer(), lambda: NVRTCCompiler(device)),
        CompilerPair(
            "ptx", "ptx", lambda: ptx.PTXRenderer(ptx_target(device)), lambda: PTXCompiler(device)
        ),
    ]


class CUDACompiler(Compiler):
    """The base class of both compilers, whose binaries are PTX or machine code."""

    format = "cuda"
    device: CUDADevice

    def _disassemble(self, image: bytes) -> str:
        (kind, target), payload = unseal(MAKER, image, "disassemble", self.device.name)
        if kind == "ptx":  # it is text
            return payload.rstrip(b"\0").decode()
        from cuda.pathfinder import find_nvidia_binary_utility

        for name, options in (("nvdisasm", ("-c",)), ("cuobjdump", ("-sass",))):
            tool = find_nvidia_binary_utility(name)
            if tool:
                with temporary_folder("disassemble", self.device.name) as folder:
                    path = Path(folder, "kernel.cubin")
                    path.write_bytes(payload)
                    done = subprocess.run(
                        [tool, *options, path], capture_output=True, text=True, timeout=60
                    )
                if done.returncode == 0:
                    return done.stdout
        raise Unsupported(
            "disassemble", f"neither nvdisasm nor cuobjdump is installed, to read {target} code",
            device=self.device.name,
            fix="Run: python -m pip install nvidia-cuda-nvdisasm, or compile with CUDA_CC=ptx.",
        )  # fmt: skip


class NVRTCCompiler(CUDACompiler, StreamCompiler):
    """NVRTC, which makes machine code for the device if it knows the architecture.

    Else it makes PTX for the newest older architecture that it knows; the driver translates it.
    Concurrency: any thread.
    """

    language, maker, title, text_name = "cuda", MAKER, "NVRTC", "<{}>"
    error = re.compile(r"(?m)^(?P<file>\S*?)\((?P<line>\d+)\): (?:catastrophic )?error")
    # Options that make NVRTC read files, whose texts the cache key would not have.
    reads_files = re.compile("-I|--include-path|-include|--pre-include|--pch|-pch|--use-pch")
    device: CUDADevice

    def __init__(self, device: CUDADevice) -> None:
        self.device = device
        self.library = nvrtc.find()
        capability = _capability(device)
        known = [arch for arch in self.library.architectures if arch <= capability]
        if not known:
            raise Unsupported(
                "nvrtc", "NVRTC no longer compiles for this device", got=device.info.arch,
                limit=f"from sm_{self.library.architectures[0]} on", device=device.name,
                fix="Install an older one: python -m pip install 'nvidia-cuda-nvrtc-cu12<12.9'",
            )  # fmt: skip
        exact = known[-1] == capability
        self.image = "CUBIN" if exact else "PTX"
        self.library.check_driver(device.driver_version, self.image)
        self.target = f"{'sm' if exact else 'compute'}_{known[-1]}"
        self.label = [self.image.lower(), self.target]
        self.headers = nvrtc.header_folders()
        version = ".".join(map(str, self.library.version))
        self.identity = f"nvrtc {version} {self.target} {' '.join(self.headers)}"

    def _translate(self, source: Source[Any], text: str, flags: tuple[str, ...]) -> bytes:
        of_text = () if source.interface.rendered else _OF_TEXTS
        flags = (f"--gpu-architecture={self.target}", *of_text, *flags)
        name = self.text_name.format(source.name)
        return self.library.compile(text, name, flags, self.image)


class PTXCompiler(CUDACompiler):
    """The driver's assembler: the binary is the PTX, which the driver translates at each load."""

    language = "ptx"

    def __init__(self, device: CUDADevice) -> None:
        self.device = device
        self.target = ptx_target(device)
        version = ".".join(map(str, device.driver_version))
        self.identity = f"ptx {self.target}, driver {version}"

    def _compile(self, source: Source) -> bytes:
        operation = f"compile {source.name}"
        refuse_flags(source, "PTX", self.device.name)
        if not source.interface.rendered:
            _check_signature(source, self.device.name)
        try:
            with self.device.own(operation):  # loaded once now, so that an error shows here
                module = self.device.api.load(source.text.encode())
                self.device.api.unload(module)
        except CompileError as error:
            match = _PTX_ERROR_LINE.search(error.log)
            raise CompileError(
                operation, "the driver refuses the PTX", log=error.log, source=source.text,
                line=int(match[1]) if match else None, device=self.device.name,
            ) from None  # fmt: skip
        return seal(MAKER, ["ptx", self.target], source.text.encode())


def _check_signature(source: Source, device: str) -> None:
    """Compare a PTX entry's parameters with the signature, by their sizes. Raises: CompileError."""
    signature, text = source.signature, _PTX_COMMENT.sub(" ", source.text)
    entry = re.search(rf"\.entry\s+{signature.name}\b\s*(?:\(([^)]*)\))?", text)
    if entry is None:
        return  # the load says so
    sizes = [int(bits) // 8 * int(n or 1) for bits, n in _PTX_PARAM.findall(entry[1] or "")]
    given = [8 if param.is_pointer else param.dtype.itemsize for param in signature.params]
    if sizes != given:
        problem = f"the entry {signature.name} has parameters of {sizes} bytes, "
        problem += f"its signature ({signature}) of {given}"
        fix = "Write the signature in the order of the entry's .param."
        raise CompileError(f"compile {source.name}", problem, device=device, fix=fix)


def _capability(device: CUDADevice) -> int:
    """Return the compute capability as one number: 86 for sm_86."""
    major, minor = device.info.vendor["compute_capability"]
    return int(major * 10 + minor)


def ptx_target(device: CUDADevice) -> str:
    """Return the newest architecture of PTX 8.0 that the device runs."""
    known = [arch for arch in _ISA_8_TARGETS if arch <= _capability(device)]
    if not known:
        raise Unsupported(
            "ptx", "the GPU is too old for PTX 8.0", got=device.info.arch,
            limit=f"from sm_{_ISA_8_TARGETS[0]} on", device=device.name,
        )  # fmt: skip
    return f"sm_{known[-1]}"
