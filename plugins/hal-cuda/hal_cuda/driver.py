"""The NVIDIA driver, whichever package binds it, and its statuses as our exceptions.

Two bindings do the same: cuda-bindings (`hal_cuda.bindings`) and, with HAL_CUDA_DRIVER=pycuda,
PyCUDA (`hal_cuda.pycuda`). Handles are what the binding gives, device addresses are integers.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core import config
from hal_core.errors import (
    CompileError,
    DeviceFault,
    DeviceUnavailable,
    HalError,
    InvalidArgument,
    InvalidState,
    OutOfMemory,
    PluginError,
)

if TYPE_CHECKING:
    from hal_core.device import Compiled
    from hal_cuda.calls import Calls

_BINDINGS = ("cuda-bindings", "pycuda")


def _binding(text: str) -> str:
    if text not in _BINDINGS:
        raise ValueError(f"expected {' or '.join(_BINDINGS)}")
    return text


DRIVER = config.declare(
    "HAL_CUDA_DRIVER",
    _BINDINGS[0],
    "who talks to the CUDA driver: cuda-bindings or pycuda",
    _binding,
)

LIBRARY = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
_OLDEST = 12, 0  # reads the PTX that we write
_NEW = "Upgrade the NVIDIA driver."
_NO_DRIVER = (
    f"no NVIDIA driver is installed: {LIBRARY} is not found",
    "Install the NVIDIA driver; no toolkit is needed.",
)
_STARTS_NOT = (
    "the NVIDIA driver does not start",
    "See whether nvidia-smi runs; reboot if the driver was upgraded.",
)
_STARTS: dict[int, tuple[str, str]] = {
    34: ("a stub stands in the NVIDIA driver's place", "Take its folder out of LD_LIBRARY_PATH."),
    35: ("the NVIDIA driver is too old", _NEW),
    36: ("the NVIDIA driver is too old", _NEW),
    100: (
        "the NVIDIA driver finds no GPU",
        "nvidia-smi lists the GPUs; CUDA_VISIBLE_DEVICES may hide them.",
    ),
    803: ("the NVIDIA driver's parts differ in version", "Reboot, or reload the driver."),
    804: ("the NVIDIA driver is too old for this GPU", _NEW),
}

INVALID_VALUE, NOT_FOUND, NOT_READY, PEER_ALREADY = 1, 500, 600, 704
WRONG_CONTEXT = frozenset({201, 400, 709})  # what another context says of handles of ours
_GONE = WRONG_CONTEXT | {1, 4}  # and a driver, of those that were let go
STICKY = frozenset({700, 702, 710, 713, 714, 715, 716, 717, 718, 719})  # the context is lost


class Facts(NamedTuple):
    """What the driver says of one device; attributes by the driver's names, lower case."""

    name: str
    memory_nbytes: int
    attributes: dict[str, int]

    @property
    def capability(self) -> tuple[int, int]:
        numbers = self.attributes
        return numbers["compute_capability_major"], numbers["compute_capability_minor"]


class KernelFacts(NamedTuple):
    registers: int
    shared_nbytes: int
    local_nbytes: int
    max_block_threads: int


class Refused(Exception):
    """A call of the driver that gave another status than success."""

    def __init__(self, call: str, code: int, name: str, sentence: str) -> None:
        super().__init__(f"{call} gave {code}, {name}: {sentence}")
        self.call, self.code, self.name, self.sentence = call, code, name, sentence


_KINDS: dict[int, type[HalError]] = {
    1: InvalidArgument,  # INVALID_VALUE
    2: OutOfMemory,
    3: DeviceUnavailable,  # NOT_INITIALIZED
    4: InvalidState,  # DEINITIALIZED
    100: DeviceUnavailable,  # NO_DEVICE
    101: InvalidArgument,  # INVALID_DEVICE
    200: CompileError,  # INVALID_IMAGE
    201: InvalidState,  # INVALID_CONTEXT
    209: CompileError,  # NO_BINARY_FOR_GPU
    218: CompileError,  # INVALID_PTX
    222: CompileError,  # UNSUPPORTED_PTX_VERSION
    223: CompileError,  # JIT_COMPILATION_DISABLED
    300: CompileError,  # INVALID_SOURCE
    400: InvalidArgument,  # INVALID_HANDLE
    500: CompileError,  # NOT_FOUND
    701: InvalidArgument,  # LAUNCH_OUT_OF_RESOURCES
    802: DeviceUnavailable,  # SYSTEM_NOT_READY
    803: DeviceUnavailable,  # SYSTEM_DRIVER_MISMATCH
    **dict.fromkeys(STICKY, DeviceFault),
}
_FIXES = {
    701: "Give the block fewer threads: program.info says how many it can have.",
    **dict.fromkeys(
        STICKY,
        "The context is lost: close the device and open it again, without pinned memory of before, "
        "which keeps it. HAL_CHECK=1 on the CPU finds the access.",
    ),
}


def explain(
    error: Refused, operation: str, device: str, last: str = "", closed: bool = False
) -> HalError:
    """The driver's refusal as an exception of ours, with the call, the code and its name."""
    kind = _KINDS.get(error.code, HalError)
    problem = f"{error.call} failed with {error.name}: {error.sentence}"
    if last and error.code in STICKY:
        problem += f", the last program launched was {last}"
    fix = _FIXES.get(error.code)
    if kind is CompileError:  # the sentence is the log of the driver's own compiler
        problem = f"the driver refuses the binary: {error.name}"
        return CompileError(operation, problem, log=error.sentence, device=device, fix=fix)
    if closed and error.code in _GONE:  # another thread closes it
        kind, problem = InvalidState, f"the device is closed; {problem}"
        fix = f'Open it again with hal.Device["{device}"].'
    return kind(operation, problem.rstrip("."), got=error.code, device=device, fix=fix)


class check:
    """`with check("copyin", name):` - refusals inside become exceptions of ours."""

    __slots__ = ("device", "last", "of", "operation")

    def __init__(
        self, operation: str, device: str, last: str = "", of: Compiled | None = None
    ) -> None:
        self.operation, self.device, self.last, self.of = operation, device, last, of

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Refused):
            closed = self.of is not None and self.of.closed
            raise explain(error, self.operation, self.device, self.last, closed) from None


@functools.cache
def api() -> Calls:
    """The binding chosen, with the driver initialised.

    Raises: DeviceUnavailable saying what is missing, the driver or the hardware; PluginError where
    it is a package. Their `__context__` is what the binding said.
    """
    calls = _connect(DRIVER.read())
    try:
        calls.initialise()
        found = calls.version()
    except Refused as error:
        told = f"{error.call} gave {error.code}, {error.name}"
        problem, fix = _STARTS.get(error.code, _STARTS_NOT)
        raise _unavailable(f"{problem} ({told})", fix) from None
    except OSError:
        raise _unavailable(*_NO_DRIVER) from None
    if found < _OLDEST:
        got, oldest = (".".join(map(str, version)) for version in (found, _OLDEST))
        raise _unavailable(f"the NVIDIA driver is too old (got CUDA {got}; from {oldest} on)", _NEW)
    return calls


def _connect(chosen: str) -> Calls:
    package = "hal-cuda[pycuda]" if chosen == "pycuda" else chosen
    try:
        if chosen == "pycuda":
            from hal_cuda.pycuda import PyCUDA

            return PyCUDA()
        from hal_cuda.bindings import CudaBindings

        return CudaBindings()
    except ImportError as error:
        if sys.platform == "darwin":
            raise _unavailable("NVIDIA has no driver for macOS", "Use METAL or CPU.") from None
        if "libcuda" in str(error):  # which PyCUDA loads at once
            raise _unavailable(*_NO_DRIVER) from None
        fix = f"Run: python -m pip install '{package}'"
        problem = f"{chosen} is installed, but cannot be imported"
        if isinstance(error, ModuleNotFoundError):
            missing = (error.name or "").partition(".")[0]
            of = chosen if missing in ("cuda", "pycuda") else f"{missing}, which {chosen} needs,"
            problem = f"{of} is not installed"
        raise PluginError("enumerate CUDA", problem, fix=fix) from None


def _unavailable(problem: str, fix: str) -> DeviceUnavailable:
    return DeviceUnavailable("enumerate CUDA", problem, fix=fix)


class Current(threading.local):
    """The context that this module made current on the calling thread."""

    context: Any = None


current = Current()


def use(context: Any) -> None:
    """Make `context` current on the calling thread, unless it is."""
    if current.context is not context:
        api().set_current(context)
        current.context = context
