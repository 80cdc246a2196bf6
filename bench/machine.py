"""Facts of the machine for a device's page: versions of everything that took part."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import hal_core as hal
from bench.report import machine

_PARTS = re.compile(r"hal-|nvidia-|cuda-|cupy|pycuda$|pyopencl$|pocl|llvmlite$|numpy$|ziglang$")
_MIB = 1 << 20


def facts(info: hal.DeviceInfo) -> Iterator[tuple[str, str]]:
    """Return rows of a table: a part, and its version or size."""
    family = info.name.partition(":")[0]
    yield "device", f"{info.title}, `{info.name}`, {info.arch}, {info.compute_units} units"
    yield "its memory", f"{info.memory_nbytes // _MIB} MiB"
    yield "its capabilities", ", ".join(sorted(info.capabilities))
    if family == "CUDA" and not software(info):
        yield "NVIDIA driver", nvidia_driver()
    for check in hal.Device.backend(family).doctor():
        yield check.title, check.detail.partition(" at /")[0] or ("ok" if check.ok else "not ok")
    yield "Python", f"{platform.python_version()} ({platform.python_implementation()})"
    yield from sorted(versions().items())
    host = machine()
    yield "system", _system()
    yield "processor", f"{host['cpu']}, {host['cores']} cores"
    if hasattr(os, "sysconf"):
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        yield "host memory", f"{pages // _MIB} MiB"


def versions() -> dict[str, str]:
    """Yield the versions of the distributions that took part."""
    found = ((one.name, one.version) for one in distributions() if one.name)
    names = ((re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in found)
    return {name: version for name, version in names if _PARTS.match(name)}


def nvidia_driver() -> str:
    """Return the version of the kernel driver, for which CUDA has no call."""
    module = Path("/sys/module/nvidia/version")
    if module.exists():
        return module.read_text(encoding="ascii").strip()
    if shutil.which("nvidia-smi") is None:
        return "not told: there is no nvidia-smi"
    command = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.partition("\n")[0].strip() or "not told"


def _system() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        name = ""
    version = platform.release().partition("-")[0]  # behind it: who built the kernel
    return f"{name}, {platform.system()} {version}, {platform.machine()}".removeprefix(", ")


def software(info: hal.DeviceInfo) -> bool:
    """Return True for a device simulated in software, by its title."""
    return re.search("software|simulat|oclgrind|llvmpipe", info.title, re.IGNORECASE) is not None


def notice(info: hal.DeviceInfo) -> str:
    """Return a warning for the top of the page, or "" if the device is hardware."""
    if software(info):
        return (
            "**This is a software driver, not a GPU.** It carries kernels out on the processor: "
            "the counts below are of use, the times say nothing about any hardware. This page is "
            "not to be committed."
        )
    if info.kind == "cpu" and info.name.partition(":")[0] != "CPU":
        return f"**{info.name} is the machine's processor here, not a GPU.**"
    return ""
