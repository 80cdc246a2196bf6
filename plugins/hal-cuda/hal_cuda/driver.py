"""Start the NVIDIA driver, and turn its statuses into exceptions of hal-core.

`api()` returns the driver's functions (`hal_cuda.calls`), which reach the driver through
cuda-bindings (`hal_cuda.bindings`) or, with HAL_CUDA_DRIVER=pycuda, through the library that PyCUDA
has loaded (`hal_cuda.pycuda`).
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
    from hal_core.device.base import Compiled
    from hal_cuda.calls import Calls


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

INVALID_VALUE, NO_MEMORY, NOT_FOUND, NOT_READY = 1, 2, 500, 600
WRONG_CONTEXT = frozenset({201, 400, 709})  # for our handles in another context
_DESTROYED = WRONG_CONTEXT | {1, 4}  # for handles that were destroyed
STICKY = frozenset({700, 702, 710, 713, 714, 715, 716, 717, 718, 719})  # the context is lost


class Facts(NamedTuple):
    """Facts of one device; the attributes have the driver's names in lower case."""

    name: str
    memory_nbytes: int
    attributes: dict[str, int]

    @property
    def capability(self) -> tuple[int, int]:
        numbers = self.attributes
        return numbers["compute_capability_major"], numbers["compute_capability_minor"]


class KernelFacts(NamedTuple):
    """Facts of a loaded kernel, as the driver gives them."""

    registers: int
    shared_nbytes: int
    local_nbytes: int
    max_block_threads: int


class Refused(Exception):
    """The driver answered a call with another status than success."""

    def __init__(self, call: str, code: int, name: str, sentence: str) -> None:
        super().__init__(f"{call} gave {code}, {name}: {sentence}")
        self.call, self.code, self.name, self.sentence = call, code, name, sentence


_KINDS: dict[int, type[HalError]] = {  # Source: CUresult in cuda.h
    **dict.fromkeys((1, 101, 400, 701), InvalidArgument),  # a value, index, handle, launch
    2: OutOfMemory,
    **dict.fromkeys((3, 100, 802, 803), DeviceUnavailable),  # not started, no GPU
    **dict.fromkeys((4, 201), InvalidState),  # shut down, no context
    **dict.fromkeys((200, 209, 218, 222, 223, 300, 500), CompileError),  # an image, an entry
    **dict.fromkeys(STICKY, DeviceFault),
}
_FIXES = {
    701: "Give the block fewer threads: program.info says how many it can have.",
    **dict.fromkeys(
        STICKY,
        "The context is lost: free pinned memory, close the device and open it again; if that "
        "fails, restart the process. HAL_CHECK=1 on the CPU finds the access.",
    ),
}


def explain(
    error: Refused, operation: str, device: str, last: str = "", closed: bool = False
) -> HalError:
    """Return the exception of hal-core for a refusal, with the call, the code and its name.

    `last` is the program launched last, which a fault names. `closed`: the device is closed, and
    has destroyed the handles that the driver refuses.
    """
    kind = _KINDS.get(error.code, HalError)
    problem = f"{error.call} failed with {error.name}: {error.sentence}"
    if last and error.code in STICKY:
        problem += f", the last program launched was {last}"
    fix = _FIXES.get(error.code)
    if operation == "open" and error.code in STICKY:  # in a new context the fault of an old one
        fix = (
            "The context is lost: free the pinned memory that keeps it; if there is none, restart "
            "the process."
        )
    if kind is CompileError:  # the sentence is the log of the driver's own compiler
        problem = f"the driver refuses the binary: {error.name}"
        return CompileError(operation, problem, log=error.sentence, device=device, fix=fix)
    if closed and error.code in _DESTROYED:  # by another thread, during the call
        kind, problem = InvalidState, f"the device is closed; {problem}"
        fix = f'Open it again with hal.Device["{device}"].'
    return kind(operation, problem.rstrip("."), got=error.code, device=device, fix=fix)


class check:
    """`with check("allocate", name):` turns refused calls inside into exceptions of hal-core.

    `opened`: the device itself, which another thread may close during the call.
    """

    __slots__ = ("device", "last", "opened", "operation")

    def __init__(
        self, operation: str, device: str, last: str = "", opened: Compiled | None = None
    ) -> None:
        self.operation, self.device, self.last, self.opened = operation, device, last, opened

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Refused):
            closed = self.opened is not None and self.opened.closed
            raise explain(error, self.operation, self.device, self.last, closed) from None


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
    except OSError:
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


class Current(threading.local):
    """The context that `use` made current on the calling thread."""

    context: Any = None


current = Current()


def use(context: Any) -> None:
    """Make `context` current on the calling thread, unless `use` has done so before.

    Another library may have changed it since; `CUDADevice.own` sets it in any case.
    """
    if current.context is not context:
        api().set_current(context)
        current.context = context
