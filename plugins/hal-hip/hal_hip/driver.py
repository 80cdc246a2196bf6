"""Start the HIP runtime, and say what is missing where it does not start."""

from __future__ import annotations

import functools
import os
import sys

from hal_core.concurrency import unless_of_a_signal
from hal_core.errors import DeviceUnavailable
from hal_hip.calls import HIP
from hal_streams.driver import Refused, check, explain

__all__ = ["api", "check", "explain"]

LIBRARIES = (
    ("amdhip64_7.dll", "amdhip64_6.dll")
    if os.name == "nt"
    else ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
)
_INSTALL = (
    "Install AMD's runtime: https://rocm.docs.amd.com says how; Debian and Ubuntu have it as "
    "libamdhip64-5 or newer."
)
_NO_DEVICE = 100, 101  # of the runtime when it starts: no device; an invalid one, from 5.x
_HIDE = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_KFD = "/dev/kfd"  # by which the runtime reaches the kernel's driver


@functools.cache
def api() -> HIP:
    """Load and start the runtime, once in a process, and return its functions.

    Raises: DeviceUnavailable that names what is missing: the library, the hardware, a permission.
    """
    calls = _load()
    try:
        calls.count()
    except Refused as error:
        problem = f"the HIP runtime does not start ({error.call} gave {error.code}, {error.name})"
        fix = "See whether rocminfo lists the GPU."
        if error.code in _NO_DEVICE:
            problem, fix = _why_no_device()
        raise DeviceUnavailable("enumerate HIP", problem, fix=fix) from None
    return calls


def _load() -> HIP:
    if sys.platform == "darwin":
        raise DeviceUnavailable("enumerate HIP", "macOS has no HIP", fix="Use METAL or CPU.")
    problem, fix = f"no HIP runtime is installed: none of {', '.join(LIBRARIES)} is found", _INSTALL
    for name in LIBRARIES:
        try:
            return HIP(name)
        except unless_of_a_signal(AttributeError, OSError) as error:
            if isinstance(error, AttributeError):  # its text names the function
                problem = f"{name} is no HIP runtime, or one older than 5.2: {error}"
            elif os.path.exists(str(error).partition(":")[0]):  # found, and cannot be loaded
                problem = f"{name} cannot be loaded: {error}"
    raise DeviceUnavailable("enumerate HIP", problem, fix=fix)


def _why_no_device() -> tuple[str, str]:
    """Return why the runtime finds no device, and what to do."""
    hidden = [f"{name}={os.environ[name]}" for name in _HIDE if name in os.environ]
    problem = "the HIP runtime finds no GPU"
    if hidden:
        return f"{problem} under {' '.join(hidden)}", "It hides the others; unset it to see all."
    if os.name != "nt" and not os.path.exists(_KFD):
        fix = "The kernel's driver amdgpu makes it for GPUs that ROCm supports."
        return f"{problem}: there is no {_KFD}", fix
    if os.name != "nt" and not os.access(_KFD, os.R_OK | os.W_OK):
        fix = "Run: sudo usermod -aG render,video $USER, and log in again."
        return f"{problem}: no permission for {_KFD}", fix
    return problem, "rocminfo lists those that ROCm supports."
