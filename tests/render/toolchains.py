"""Compilers that take rendered text and really run it, one class a way."""

from __future__ import annotations

import ctypes
import itertools
import math
import shutil
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from offline import HIPRTC

from hal_core.errors import Unsupported
from hal_core.ir import Kernel
from hal_core.render import (
    CRenderer,
    HIPRenderer,
    LLVMRenderer,
    MetalRenderer,
    OpenCLRenderer,
    Renderer,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "simulators" / "metal"))
sys.path.insert(0, str(Path(__file__).parents[1] / "simulators" / "hip"))

import hip_build
import msl
from gfx9 import Engine

Arrays = dict[str, Any]  # parameter's name -> numpy array or number
Triple = tuple[int, int, int]


class Toolchain:
    """`missing` says why it cannot be used here; empty where it can."""

    renderer: Renderer
    missing = ""
    subgroup = 1  # threads of one; 0: it has none
    turns = 20_000  # of a loop in which workers are sure to meet

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = itertools.count()

    def run(
        self,
        kernel: Kernel,
        arguments: Arrays,
        grid: Triple = (1, 1, 1),
        block: Triple = (1, 1, 1),
        part: tuple[int, int] | None = None,
        workers: int = 1,
    ) -> None:
        """Arrays are written to. `part`: these blocks only, where the language can.
        `workers` threads share the blocks; OpenCL's driver has its own."""
        raise NotImplementedError

    def compile(self, kernel: Kernel) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """End the processes that were started."""


class NativeToolchain(Toolchain):
    """Those that make a function in the calling convention of hal-cpu."""

    def run(
        self,
        kernel: Kernel,
        arguments: Arrays,
        grid: Triple = (1, 1, 1),
        block: Triple = (1, 1, 1),
        part: tuple[int, int] | None = None,
        workers: int = 1,
    ) -> None:
        self.call(self.function(kernel), kernel, arguments, grid, block, part, workers)

    def call(
        self, function: Any, kernel: Kernel, arguments: Arrays, grid: Triple, block: Triple,
        part: tuple[int, int] | None = None, workers: int = 1,
    ) -> None:  # fmt: skip
        """Run the function of a kernel: like `run`, for kernels that run more than once."""
        slots = np.zeros((max(1, len(kernel.signature.params)), 8), np.uint8)
        for slot, param in zip(slots, kernel.signature.params, strict=False):
            value = arguments[param.name]
            if param.is_pointer:
                if value.dtype.itemsize != param.dtype.itemsize:
                    raise AssertionError(f"{param} is given {value.dtype}")
                slot.view(np.uint64)[0] = value.ctypes.data
            else:
                slot[: param.dtype.itemsize] = np.array([value], param.dtype.to_numpy()).view("u1")
        launch = np.array([*grid, *block], np.int32)
        first, last = part or (0, math.prod(grid))
        ends = [first + (last - first) * worker // workers for worker in range(workers + 1)]
        with ThreadPoolExecutor(workers) as pool:
            started = [
                pool.submit(function, slots.ctypes.data, launch.ctypes.data, *blocks)
                for blocks in itertools.pairwise(ends)
            ]
        for one in started:
            one.result()

    def compile(self, kernel: Kernel) -> None:
        self.function(kernel)

    def function(self, kernel: Kernel) -> Any:
        address = self.address(kernel, self.renderer.render(kernel))
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        return ctypes.CFUNCTYPE(None, pointer, pointer, word, word)(address)

    def address(self, kernel: Kernel, text: str) -> int:
        raise NotImplementedError


class CToolchain(NativeToolchain):
    compiler: str
    quiet: tuple[str, ...] = ()
    renderer = CRenderer()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.libraries: list[ctypes.CDLL] = []
        if shutil.which(self.compiler) is None:
            self.missing = f"{self.compiler} is not installed"

    def compile(self, kernel: Kernel) -> None:
        """Without the passes of -O3, which `run` has: they take most of the time."""
        self.built(kernel, self.renderer.render(kernel), "-O1")

    def address(self, kernel: Kernel, text: str) -> int:
        made = self.built(kernel, text, "-O3")
        library = ctypes.CDLL(str(made))
        self.libraries.append(library)
        address = ctypes.cast(getattr(library, kernel.name), ctypes.c_void_p).value
        if address is None:
            raise AssertionError(f"{kernel.name} is not in the library")
        return address

    def built(self, kernel: Kernel, text: str, level: str) -> Path:
        path = self.folder / f"{next(self.number)}.c"
        path.write_text(text)
        made = path.with_suffix(".so")
        options = self.renderer.options(kernel)
        subprocess.run(
            [
                self.compiler, "-std=gnu11", "-march=native", "-Wall", "-Werror",
                # what unused parts of a kernel's frame would say
                "-Wno-unused-variable", "-Wno-unused-function", "-Wno-unknown-pragmas",
                "-Wno-tautological-compare",
                *self.quiet, level, "-shared", "-fPIC", *options, str(path), "-o", str(made), "-lm",
            ],
            check=True,
        )  # fmt: skip
        return made


class GCC(CToolchain):
    compiler = "gcc"
    quiet = ("-Wno-maybe-uninitialized",)  # guesses, of arrays that one thread writes for all


class Clang(CToolchain):
    compiler = "clang"


class LLVM(NativeToolchain):
    renderer = LLVMRenderer()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.engines: list[Any] = []
        try:
            import llvmlite.binding as llvm
        except ImportError:
            self.missing = "llvmlite is not installed"
            return
        self.llvm = llvm
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()

    def machine(self) -> Any:
        return self.llvm.Target.from_default_triple().create_target_machine(
            cpu=self.llvm.get_host_cpu_name(),
            features=self.llvm.get_host_cpu_features().flatten(),
            opt=3,
        )

    def optimised(self, text: str) -> tuple[Any, Any]:
        """Module after the passes of -O3, and the machine it is for."""
        machine = self.machine()
        module = self.llvm.parse_assembly(text)
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        module.verify()
        tuning = self.llvm.create_pipeline_tuning_options(speed_level=3)
        tuning.loop_vectorization = tuning.slp_vectorization = True
        builder = self.llvm.create_pass_builder(machine, tuning)
        builder.getModulePassManager().run(module, builder)
        return module, machine

    def address(self, kernel: Kernel, text: str) -> int:
        engine = self.llvm.create_mcjit_compiler(*self.optimised(text), use_lmm=True)
        engine.finalize_object()
        self.engines.append(engine)
        address: int = engine.get_function_address(kernel.name)
        return address


class DeviceToolchain(Toolchain):
    """A toolchain whose launches run all blocks, on as many threads as the device has."""

    def run(
        self,
        kernel: Kernel,
        arguments: Arrays,
        grid: Triple = (1, 1, 1),
        block: Triple = (1, 1, 1),
        part: tuple[int, int] | None = None,
        workers: int = 1,
    ) -> None:
        if part is not None:
            raise AssertionError("a device launches whole grids")
        self.launch(kernel, arguments, grid, block)

    def launch(self, kernel: Kernel, arguments: Arrays, grid: Triple, block: Triple) -> None:
        raise NotImplementedError


class OpenCL(DeviceToolchain):
    renderer = OpenCLRenderer()
    subgroup = 0  # PoCL 3.1 lacks cl_khr_subgroups

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        try:
            import pyopencl as cl
        except ImportError:
            self.missing = "pyopencl is not installed"
            return
        self.cl = cl
        try:
            platforms = [p for p in cl.get_platforms() if p.name == "Portable Computing Language"]
        except cl.LogicError:
            platforms = []
        if not platforms:
            self.missing = "PoCL is not installed"
            return
        self.context = cl.Context(platforms[0].get_devices()[:1])
        self.queue = cl.CommandQueue(self.context)

    def compile(self, kernel: Kernel) -> None:
        self.build(kernel, self.renderer.render(kernel))

    def build(self, kernel: Kernel, text: str) -> Any:
        options = list(self.renderer.options(kernel))
        with warnings.catch_warnings():  # generated kernels compare a value with itself
            warnings.simplefilter("ignore", self.cl.CompilerWarning)
            return getattr(self.cl.Program(self.context, text).build(options), kernel.name)

    def launch(self, kernel: Kernel, arguments: Arrays, grid: Triple, block: Triple) -> None:
        cl = self.cl
        function = self.build(kernel, self.renderer.render(kernel))
        given: list[Any] = []
        back: list[tuple[Any, Any]] = []
        margin = 64  # every pointer is a view: the offset must be used
        for param in kernel.signature.params:
            value = arguments[param.name]
            if not param.is_pointer:
                dtype = np.uint8 if param.dtype.kind == "b" else param.dtype.to_numpy()
                given.append(np.dtype(dtype).type(value))
                continue
            buffer = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, margin + value.nbytes)
            cl.enqueue_copy(self.queue, buffer, value, dst_offset=margin)
            given += [buffer, np.int64(margin)]
            back.append((value, buffer))
        size = tuple(blocks * threads for blocks, threads in zip(grid, block, strict=True))
        function(self.queue, size, block, *given)
        for value, buffer in back:
            cl.enqueue_copy(self.queue, value, buffer, src_offset=margin)
        self.queue.finish()


class Metal(DeviceToolchain):
    """clang with our own `<metal_stdlib>`, which has Metal's address spaces."""

    renderer = MetalRenderer()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if not msl.compiler():
            self.missing = "clang is not installed"

    def compile(self, kernel: Kernel) -> None:
        self.build(kernel)

    def build(self, kernel: Kernel) -> msl.Library:
        try:
            text = self.renderer.render(kernel)
        except Unsupported as error:  # float64, and atomics of 64 bits
            pytest.skip(str(error))
        return msl.Library(text)

    def launch(self, kernel: Kernel, arguments: Arrays, grid: Triple, block: Triple) -> None:
        library = self.build(kernel)
        x, y, z = (blocks * count for blocks, count in zip(grid, block, strict=True))
        library.launch(kernel.signature, arguments, (x, y, z), block)


class HIP(DeviceToolchain):
    """hiprtc's code for gfx906, carried out by the engine of the software HIP runtime."""

    renderer = HIPRenderer()
    subgroup = 64

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.hiprtc = HIPRTC(folder, "gfx906")
        self.missing = self.hiprtc.missing
        if self.missing:
            return
        try:
            self.engine = Engine(hip_build.build_engine(hip_build.kept()))
        except hip_build.NoCompiler as error:
            self.missing = f"the engine cannot be built: {error}"

    def compile(self, kernel: Kernel) -> None:
        facts = self.engine.facts(self.hiprtc.compile(kernel))
        unknown = [fact for fact in facts if fact.startswith("unknown")]
        if unknown:
            raise AssertionError("\n".join(unknown))

    def launch(self, kernel: Kernel, arguments: Arrays, grid: Triple, block: Triple) -> None:
        given = [
            arguments[param.name]
            if param.is_pointer
            else np.array([arguments[param.name]], param.dtype.to_numpy())[0]
            for param in kernel.signature.params
        ]
        self.engine.run(self.hiprtc.compile(kernel), str(kernel.name), given, grid, block)

    def close(self) -> None:
        self.hiprtc.close()
        if not self.missing:
            self.engine.close()


TOOLCHAINS: dict[str, type[Toolchain]] = {
    "gcc": GCC,
    "clang": Clang,
    "llvm": LLVM,
    "opencl": OpenCL,
    "msl": Metal,
    "hip": HIP,
}
