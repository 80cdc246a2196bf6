"""NVRTC, NVIDIA's compiler as a library: from CUDA C++ to machine code or PTX, without a GPU.

Its C interface has not changed since version 9, so this module serves every version.
"""

from __future__ import annotations

import ctypes
import functools

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
    except (RuntimeError, OSError, AttributeError, CompilerRefused) as error:
        problem = f"NVRTC cannot be loaded: {str(error).splitlines()[0]}"
        raise CompilerUnavailable("nvrtc", problem, fix=_INSTALL) from error


@functools.cache
def header_folders() -> tuple[str, ...]:
    """Return the folder of cuda_fp16.h and its neighbours; none where no package has them."""
    from cuda.pathfinder import find_nvidia_header_directory

    try:
        found = find_nvidia_header_directory("cudart")
    except (RuntimeError, OSError):
        found = None
    return (str(found),) if found else ()
