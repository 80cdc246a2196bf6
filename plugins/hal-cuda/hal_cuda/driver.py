"""Start the NVIDIA driver.

`api()` returns the driver's functions (`hal_cuda.calls`), which reach the driver through
cuda-bindings (`hal_cuda.bindings`) or, with HAL_CUDA_DRIVER=pycuda, through the library that PyCUDA
has loaded (`hal_cuda.pycuda`).
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING

from hal_core import config
from hal_core.concurrency import unless_of_a_signal
from hal_core.errors import DeviceUnavailable, PluginError
from hal_streams.driver import Refused, check, explain

if TYPE_CHECKING:
    from hal_cuda.calls import Calls


__all__ = ["api", "check", "explain"]


def _transport(text: str) -> str:
    """Parse HAL_CUDA_DRIVER."""
    if text not in ("cuda-bindings", "pycuda"):
        raise ValueError("expected cuda-bindings or pycuda")
    return text


DRIVER = config.declare(
    "HAL_CUDA_DRIVER",
    "cuda-bindings",
    "the package that reaches the CUDA driver: cuda-bindings or pycuda",
    _transport,
)

LIBRARY = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
_OLDEST = 12, 0  # the first that reads PTX 8.0, which the core's renderer writes
_UPGRADE = "Upgrade the NVIDIA driver."
_NO_DRIVER = (
    f"no NVIDIA driver is installed: {LIBRARY} is not found",
    "Install the NVIDIA driver; no toolkit is needed.",
)
_START_FAILED = (
    "the NVIDIA driver does not start",
    "See whether nvidia-smi runs; reboot if the driver was upgraded.",
)
_START_FAILURES = {  # status of cuInit or cuDriverGetVersion -> problem, what to do
    34: ("the NVIDIA driver found is a stub", "Take its folder out of LD_LIBRARY_PATH."),
    35: ("the NVIDIA driver is too old", _UPGRADE),
    36: ("the NVIDIA driver is too old", _UPGRADE),
    100: (
        "the NVIDIA driver finds no GPU",
        "nvidia-smi lists the GPUs; CUDA_VISIBLE_DEVICES may hide them.",
    ),
    803: ("the NVIDIA driver's parts differ in version", "Reboot, or reload the driver."),
    804: ("the NVIDIA driver is too old for this GPU", _UPGRADE),
}


@functools.cache
def api() -> Calls:
    """Start the driver, once in a process, and return its functions.

    Raises: DeviceUnavailable that names what is missing, the driver or the hardware; PluginError
    where a package is missing. Their `__context__` is the error that the package raised.
    """
    calls = _connect(DRIVER.read())
    try:
        calls.initialise()
        found = calls.version()
    except Refused as error:
        problem, fix = _START_FAILURES.get(error.code, _START_FAILED)
        problem += f" ({error.call} gave {error.code}, {error.name})"
        raise _unavailable(problem, fix) from None
    except unless_of_a_signal(OSError):
        raise _unavailable(*_NO_DRIVER) from None
    if found < _OLDEST:
        got, oldest = (".".join(map(str, version)) for version in (found, _OLDEST))
        raise _unavailable(
            f"the NVIDIA driver is too old (got CUDA {got}; from {oldest} on)", _UPGRADE
        )
    return calls


def _connect(chosen: str) -> Calls:
    """Import the transport of that name. Raises: PluginError, DeviceUnavailable."""
    try:
        if chosen == "pycuda":
            from hal_cuda.pycuda import PyCUDA

            return PyCUDA()
        from hal_cuda.bindings import CudaBindings

        return CudaBindings()
    except ImportError as error:
        if sys.platform == "darwin":
            raise _unavailable("NVIDIA has no driver for macOS", "Use METAL or CPU.") from None
        if "libcuda" in str(error):  # which PyCUDA is linked against
            raise _unavailable(*_NO_DRIVER) from None
        problem = f"{chosen} is installed, but cannot be imported"
        if isinstance(error, ModuleNotFoundError):
            missing = (error.name or "").partition(".")[0]
            needed = f"{missing}, which {chosen} needs,"
            problem = f"{chosen if missing in ('cuda', 'pycuda') else needed} is not installed"
        package = "hal-cuda[pycuda]" if chosen == "pycuda" else chosen
        fix = f"Run: python -m pip install '{package}'"
        raise PluginError("enumerate CUDA", problem, fix=fix) from None


def _unavailable(problem: str, fix: str) -> DeviceUnavailable:
    return DeviceUnavailable("enumerate CUDA", problem, fix=fix)
