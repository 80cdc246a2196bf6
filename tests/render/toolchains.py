"""Compile rendered kernels and run them: one class for each compiler."""

import ctypes
import itertools
import math
import re
import shutil
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from offline import HIPRTC

from hal_core.errors import CompilerUnavailable, HalError, Unsupported
from hal_core.source import Source
from hal_cpu import loader
from hal_cpu.compilers.llvm import MOST_LINES, LLVMCompiler, import_llvm
from hal_cpu.settings import LOADER
from hal_cpu.vectors import LLVMRenderer
from hal_hip.render import HIPRenderer
from hal_kernel.ir import Kernel
from hal_kernel.render import Renderer
from hal_kernel.render.c.c99 import CRenderer
from hal_metal.render import MetalRenderer
from hal_opencl.render import OpenCLRenderer

sys.path.insert(0, str(Path(__file__).parents[1] / "simulators" / "metal"))
sys.path.insert(0, str(Path(__file__).parents[1] / "simulators" / "hip"))

import hip_build
import msl
from gfx9 import Engine

MOST_JOINED = 24  # kernels of one text: a refused one has them all compiled again


class Made(NamedTuple):
    """The result of compiling a text, and a kernel with the name that it has there."""

    image: Any
    kernel: Kernel


def renamed(kernel, number):
    name = f"{kernel.name}_{number}"
    return kernel._replace(name=name, signature=kernel.signature._replace(name=name))


def joined(texts):
    """Join texts into one.

    Names that begin with `hal_` get the text's number, so that no kernel uses another's helpers.
    """
    return "\n".join(re.sub(r"\bhal_", f"hal_{n}_", text) for n, text in enumerate(texts))


class Toolchain:
    """`missing` says why it cannot be used here; empty where it can."""

    renderer: Renderer
    missing = ""
    subgroup = 1  # threads of one; 0: it has none
    turns = 20_000  # iterations of a loop in which workers are sure to meet
    rivals = 1200  # threads that attempt one exchange until each has had its turn
    joins = True  # one text with several kernels is compiled faster than several texts

    def __init__(self, folder):
        self.folder = folder
        self.number = itertools.count()
        self.ready = {}

    def run(self, kernel, arguments, grid=(1, 1, 1), block=(1, 1, 1), part=None, workers=1):
        """Run a kernel; it writes to the arrays. `part`: these blocks only, where the language can.

        `workers` threads share the blocks; OpenCL's driver has threads of its own.
        """
        self.execute(kernel, arguments, grid, block, part, workers)

    def execute(self, kernel, arguments, *how):
        """Do what `run` does, which gives all its arguments."""
        raise NotImplementedError

    def compile(self, kernel):
        self.build(self.text(kernel), self.renderer.options(kernel))

    def text(self, kernel):
        return self.renderer.render(kernel)

    def build(self, text, options):
        """Compile a text; return what `run` calls."""
        raise NotImplementedError

    def made(self, kernel):
        text, options = self.text(kernel), self.renderer.options(kernel)
        if (text, *options) not in self.ready:
            self.ready[text, *options] = Made(self.build(text, options), kernel)
        return self.ready[text, *options]

    def prepare(self, kernels):
        """Build these kernels `joined`, so that `made` finds them; forget the kernels before."""
        self.ready.clear()
        groups = {}
        for kernel in kernels if self.joins else ():
            with suppress(HalError, pytest.skip.Exception):  # the test will meet it
                text = self.text(kernel)
                # An #include or a #pragma holds for all kernels below it: only kernels with the
                # same ones are joined.
                head = [line for line in text.splitlines() if line.startswith("#")]
                groups.setdefault((*self.renderer.options(kernel), *head), {})[text] = kernel
        for group in groups.values():
            rows = list(group.items())
            for first in range(0, len(rows), MOST_JOINED):
                self._prepare(rows[first : first + MOST_JOINED])

    def _prepare(self, rows):
        """Build kernels, each beside the text that it has alone, as one text."""
        named = [renamed(kernel, number) for number, (_, kernel) in enumerate(rows)]
        options = self.renderer.options(named[0])
        # If the text is refused, each test compiles its own kernel, so that the bad one is named.
        with suppress(Exception):
            image = self.build(joined(map(self.text, named)), options)
            for (text, _), kernel in zip(rows, named, strict=True):
                self.ready[text, *options] = Made(image, kernel)

    def close(self):
        """End the processes that were started."""


class NativeToolchain(Toolchain):
    """A toolchain that makes a function in the calling convention of hal-cpu."""

    def execute(self, kernel, arguments, *how):
        self.call(self.function(kernel), kernel, arguments, *how)

    def call(self, function, kernel, arguments, grid, block, part=None, workers=1):
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

    def function(self, kernel):
        made = self.made(kernel)
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        address = self.address(made.image, str(made.kernel.name))
        return ctypes.CFUNCTYPE(None, pointer, pointer, word, word)(address)

    def address(self, image, name):
        raise NotImplementedError


class CToolchain(NativeToolchain):
    compiler: str
    quiet: tuple[str, ...] = ()
    renderer = CRenderer()

    def __init__(self, folder):
        super().__init__(folder)
        if shutil.which(self.compiler) is None:
            self.missing = f"{self.compiler} is not installed (apt-get install {self.compiler})"

    def compile(self, kernel):
        """Compile without the passes of -O3, which `run` needs: they take most of the time."""
        self.library(self.text(kernel), "-O1", self.renderer.options(kernel))

    def build(self, text, options):
        return ctypes.CDLL(str(self.library(text, "-O3", options)))

    def library(self, text, level, options):
        path = self.folder / f"{next(self.number)}.c"
        path.write_text(text)
        made = path.with_suffix(".so")
        subprocess.run(
            [
                self.compiler, "-std=gnu11", "-march=native", "-Wall", "-Werror",
                # warnings about unused parts of a kernel's frame
                "-Wno-unused-variable", "-Wno-unused-function", "-Wno-unknown-pragmas",
                "-Wno-tautological-compare",
                *self.quiet, level, "-shared", "-fPIC", *options, str(path), "-o", str(made), "-lm",
            ],
            check=True,
        )  # fmt: skip
        return made

    def address(self, image, name):
        address = ctypes.cast(getattr(image, name), ctypes.c_void_p).value
        if address is None:
            raise AssertionError(f"{name} is not in the library")
        return address


class GCC(CToolchain):
    compiler = "gcc"
    quiet = ("-Wno-maybe-uninitialized",)  # a guess, wrong for arrays that one thread fills for all


class Clang(CToolchain):
    compiler = "clang"


class LLVM(NativeToolchain):
    """The compiler and the loader of hal-cpu, with the passes and limits of users' kernels."""

    renderer = LLVMRenderer()
    subgroup = renderer.subgroup
    joins = False

    def __init__(self, folder):
        super().__init__(folder)
        try:
            self.compiler = LLVMCompiler()
        except CompilerUnavailable as error:
            self.missing = str(error)

    def features(self):
        """Return what the processor has, by LLVM's names."""
        return dict(import_llvm().get_host_cpu_features())

    def compile(self, kernel):
        """Compile as hal-cpu compiles long texts, without passes, which take most of the time."""
        self.build(self.text(kernel) + "\n" * MOST_LINES, self.renderer.options(kernel))

    def build(self, text, options):
        (name,) = re.findall(r"^define void @(\w+)\(", text, re.MULTILINE)
        source = Source(name, text, "", language="llvm", options=options, rendered=True)
        return loader.named(LOADER.read())(self.compiler.compile(source), name, name)

    def address(self, image, name):
        return image.entry


class DeviceToolchain(Toolchain):
    """A toolchain whose launches run all blocks, on as many threads as the device has."""

    def execute(self, kernel, arguments, *how):
        grid, block, part, _ = how
        if part is not None:
            raise AssertionError("a device launches whole grids")
        self.launch(self.made(kernel), arguments, grid, block)

    def launch(self, made, arguments, grid, block):
        raise NotImplementedError


class OpenCL(DeviceToolchain):
    renderer = OpenCLRenderer()
    subgroup = 0  # PoCL 3.1 lacks cl_khr_subgroups

    def __init__(self, folder):
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
            self.missing = "PoCL is not installed (apt-get install pocl-opencl-icd)"
            return
        self.context = cl.Context(platforms[0].get_devices()[:1])
        self.queue = cl.CommandQueue(self.context)

    def build(self, text, options):
        with warnings.catch_warnings():  # generated kernels compare a value with itself
            warnings.simplefilter("ignore", self.cl.CompilerWarning)
            return self.cl.Program(self.context, text).build(list(options))

    def launch(self, made, arguments, grid, block):
        cl, kernel = self.cl, made.kernel
        function = cl.Kernel(made.image, str(kernel.name))
        given = []
        back = []
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

    def __init__(self, folder):
        super().__init__(folder)
        if not msl.compiler():
            self.missing = "clang is not installed (apt-get install clang)"

    def text(self, kernel):
        try:
            return self.renderer.render(kernel)
        except Unsupported as error:  # float64, and atomics of 64 bits
            pytest.skip(str(error))

    def build(self, text, options):
        return msl.Library(text)

    def launch(self, made, arguments, grid, block):
        x, y, z = (blocks * count for blocks, count in zip(grid, block, strict=True))
        made.image.launch(made.kernel.signature, arguments, (x, y, z), block)


class HIP(DeviceToolchain):
    """hiprtc's code for gfx906, carried out by the engine of the software HIP runtime."""

    renderer = HIPRenderer()
    subgroup = 64

    def __init__(self, folder):
        super().__init__(folder)
        self.hiprtc = HIPRTC(folder, "gfx906")
        self.missing = self.hiprtc.missing
        if self.missing:
            return
        try:
            self.engine = Engine(hip_build.build_engine(hip_build.kept()))
        except hip_build.NoCompiler as error:
            self.missing = f"the engine cannot be built: {error}"

    def compile(self, kernel):
        facts = self.engine.facts(self.build(self.text(kernel), self.renderer.options(kernel)))
        unknown = [fact for fact in facts if fact.startswith("unknown")]
        if unknown:
            raise AssertionError("\n".join(unknown))

    def build(self, text, options):
        return self.hiprtc.compile_text(text, options)

    def launch(self, made, arguments, grid, block):
        given = [
            arguments[param.name]
            if param.is_pointer
            else np.array([arguments[param.name]], param.dtype.to_numpy())[0]
            for param in made.kernel.signature.params
        ]
        self.engine.run(made.image, str(made.kernel.name), given, grid, block)

    def close(self):
        self.hiprtc.close()
        if not self.missing:
            self.engine.close()


TOOLCHAINS = {
    "gcc": GCC, "clang": Clang, "llvm": LLVM, "opencl": OpenCL, "msl": Metal, "hip": HIP,
}  # fmt: skip
