"""NVRTC, NVIDIA's compiler as a library: from CUDA C++ to machine code or PTX, without a GPU.

Its C interface has not changed since version 9, so this module serves every version.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
from typing import Any

from hal_core.concurrency import fork_safe_lock, suppress, unless_of_a_signal
from hal_core.errors import CompilerUnavailable
from hal_streams.runtime_compiler import CompilerRefused, RuntimeCompiler

MISSING = "NVRTC is not installed"
_INSTALL = "Run: python -m pip install 'hal-cuda[nvrtc]' (or nvidia-cuda-nvrtc-cu12)"


class NVRTC(RuntimeCompiler):
    """The loaded library.

    `architectures` are those it compiles for, ascending: 80 for compute capability 8.0.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, "nvrtc")
        count = ctypes.c_int()
        self.call("GetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self.call("GetSupportedArchs", numbers)
        self.architectures = tuple(sorted(numbers))

    def compile(self, *what: Any, **more: Any) -> bytes:
        """Compile as the base class does. Ctrl-C has no effect meanwhile."""
        turn = object()
        try:
            _hold_signals(turn)
            return super().compile(*what, **more)
        finally:
            _let_signals_go(turn)

    def check_driver(self, driver: tuple[int, int], image: str) -> None:
        """Check that a driver of this version takes images of this kind.

        Raises: CompilerUnavailable. Source: CUDA Compatibility, "Minor Version Compatibility":
        machine code of the driver's major version, PTX of its version, and older.
        """
        if self.version <= driver or (image == "CUBIN" and self.version[0] == driver[0]):
            return
        kind, limit = ("PTX", "{}.{}") if image == "PTX" else ("machine code", "{}")
        old, new = (".".join(map(str, version)) for version in (driver, self.version))
        package = f"nvidia-cuda-nvrtc{f'-cu{driver[0]}' if driver[0] < 13 else ''}"
        raise CompilerUnavailable(
            "nvrtc", f"the {kind} of NVRTC {new} is too new for this driver, CUDA {old}",
            fix="Upgrade the driver, or: python -m pip uninstall nvidia-cuda-nvrtc; "
            f"python -m pip install '{package}=={limit.format(*driver)}.*'",
        )  # fmt: skip


# While it compiles, NVRTC handles SIGINT, unless that is ignored: it ends the process by exit(4) in
# the middle of anything, which may wait for ever. And it puts Python's handlers back without their
# flags, after which no Ctrl-C ends a blocking read or lock.
_SIGNALS = signal.SIGTERM, signal.SIGINT  # the one that Python hears is put back last
_ACTION_NBYTES = 512  # more than C's struct sigaction has anywhere
_lock = fork_safe_lock()
_compiling: set[object] = set()
_actions: dict[int, Any] = {}  # before the first of the compilations that run


def _hold_signals(turn: object) -> None:
    """Ignore SIGINT until each of these turns is over. Windows has no such signals."""
    if os.name == "nt":
        return
    c = ctypes.PyDLL(None)
    with _lock:
        for number in () if _compiling else _SIGNALS:
            action = ctypes.create_string_buffer(_ACTION_NBYTES)
            c.sigaction(number, None, action)
            _actions[number] = action
        _compiling.add(turn)
        c.signal(signal.SIGINT, ctypes.c_void_p(signal.SIG_IGN))


def _let_signals_go(turn: object) -> None:
    with _lock:
        _compiling.discard(turn)
        if not _compiling and _actions:
            c = ctypes.PyDLL(None)
            for number, action in _actions.items():
                c.sigaction(number, action, None)
            _actions.clear()


@functools.cache
def find() -> NVRTC:
    """Load NVRTC from a wheel, else from a toolkit of the system.

    Raises: CompilerUnavailable that names the package to install.
    """
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError as error:
        raise CompilerUnavailable(
            "nvrtc", "cuda-pathfinder is not installed", fix=_INSTALL
        ) from error
    try:
        return NVRTC(str(load_nvidia_dynamic_lib("nvrtc").abs_path))
    except DynamicLibNotFoundError as error:  # `__cause__` names every folder searched
        raise CompilerUnavailable("nvrtc", MISSING, fix=_INSTALL) from error
    except unless_of_a_signal(RuntimeError, OSError, AttributeError, CompilerRefused) as error:
        problem = f"NVRTC cannot be loaded: {str(error).splitlines()[0]}"
        raise CompilerUnavailable("nvrtc", problem, fix=_INSTALL) from error


@functools.cache
def header_folders() -> tuple[str, ...]:
    """Return the folder of cuda_fp16.h and its neighbours; none where no package has them."""
    from cuda.pathfinder import find_nvidia_header_directory

    with suppress(RuntimeError, OSError):
        found = find_nvidia_header_directory("cudart")
        return (str(found),) if found else ()
    return ()
