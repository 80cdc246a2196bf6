"""Compilers for devices that are not on this machine: the vendors' own, without their hardware."""

import importlib.util
import itertools
import subprocess
import sys
from pathlib import Path

import rtc

from hal_hip.render import HIPRenderer
from hal_kernel.render import Renderer
from hal_kernel.render.c.c99 import CRenderer
from hal_kernel.render.c.cuda import CUDARenderer

HERE = Path(__file__).parent


class OfflineCompiler:
    """`missing` says why it cannot be used here; empty where it can."""

    renderer: Renderer
    missing = ""

    def __init__(self, folder):
        self.folder = folder
        self.number = itertools.count()

    def compile(self, kernel):
        """What is made of it, if that is a file. Any warning is a failure."""
        raise NotImplementedError

    def close(self):
        """End the process that was started."""


def shown(log, text):
    lines = (f"{number:4} {line}" for number, line in enumerate(text.splitlines(), 1))
    return "\n".join((log, *lines))


class NVRTC(OfflineCompiler):
    """Of the wheel `nvidia-cuda-nvrtc-cu12`. Needs neither a driver nor CUDA's headers."""

    renderer = CUDARenderer()
    image, architecture = "CUBIN", "sm_80"

    def __init__(self, folder):
        super().__init__(folder)
        found = importlib.util.find_spec("nvidia")
        for place in (found.submodule_search_locations or ()) if found else ():
            for path in Path(place).glob("**/libnvrtc.so.*"):
                if "alt" not in path.name:
                    self.library = rtc.Library(str(path), "nvrtc", self.image)
                    return
        self.missing = "NVRTC is not installed (pip install nvidia-cuda-nvrtc-cu12)"

    def compile(self, kernel):
        text = self.renderer.render(kernel)
        # 177: a variable that is declared but never used
        flags = (f"--gpu-architecture={self.architecture}", "--diag-suppress=177")
        try:
            return self.library.compile(text, [*flags, *self.renderer.options(kernel)])
        except rtc.RefusedError as refused:
            raise AssertionError(shown(str(refused), text)) from None


class NVRTCHopper(NVRTC):
    architecture = "sm_90"


class NVRTCText(NVRTC):
    """To PTX, for the oldest architecture that it does not call outdated."""

    image, architecture = "PTX", "compute_75"


# What kernels that spell every operation would hear of.
QUIET = ("-Wno-unused-variable", "-Wno-unused-function", "-Wno-tautological-compare")


class HIPRTC(OfflineCompiler):
    """Of the Debian package `libamdhip64-5`, or of any ROCm. Needs no device."""

    renderer = HIPRenderer()

    def __init__(self, folder, architecture="gfx90a"):
        super().__init__(folder)
        self.architecture = architecture
        names = [f"libamdhip64.so.{version}" for version in (7, 6, 5)]
        listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True)
        found = [name for name in ("libhiprtc.so", *names) if name in listed.stdout]
        if not found:
            self.missing = "hiprtc is not installed (apt-get install libamdhip64-5)"
            return
        self.library = rtc.Child(found[0], "hiprtc", "Code")

    def compile(self, kernel):
        return self.compile_text(self.renderer.render(kernel), self.renderer.options(kernel))

    def compile_text(self, text, options):
        flags = (f"--gpu-architecture={self.architecture}", "-Wall", "-Werror", *QUIET)
        try:
            return self.library.compile(text, [*flags, *options])
        except rtc.RefusedError as refused:
            raise AssertionError(shown(str(refused), text)) from None

    def close(self):
        if not self.missing:
            self.library.close()


class HIPRTCNavi(HIPRTC):
    """A processor whose warps have 32 threads."""

    def __init__(self, folder):
        super().__init__(folder, "gfx1030")


class Zig(OfflineCompiler):
    """A C compiler from pip. It is slow to link, so what it makes is not run here."""

    renderer = CRenderer()

    def __init__(self, folder):
        super().__init__(folder)
        if importlib.util.find_spec("ziglang") is None:
            self.missing = "zig is not installed (pip install ziglang)"

    def compile(self, kernel):
        text = self.renderer.render(kernel)
        path = self.folder / f"{next(self.number)}.c"
        path.write_text(text)
        done = subprocess.run(
            [
                sys.executable, "-m", "ziglang", "cc", "-c", "-std=gnu11", "-O1", "-Wall",
                "-Werror", *QUIET, "-Wno-unknown-pragmas",
                *self.renderer.options(kernel), str(path),
                "-o", str(path.with_suffix(".o")),
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(shown(done.stderr, text))
        return path.with_suffix(".o").read_bytes()


OFFLINE = {
    "nvrtc": NVRTC, "nvrtc-hopper": NVRTCHopper, "nvrtc-ptx": NVRTCText, "hiprtc": HIPRTC,
    "hiprtc-navi": HIPRTCNavi, "zig": Zig,
}  # fmt: skip
