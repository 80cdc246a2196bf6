"""NVRTC, NVIDIA's compiler as a library: from CUDA C++ to machine code or PTX, without a GPU.

Its C interface has not changed since version 9, so this module serves every version.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

from hal_core.errors import CompilerUnavailable

_INSTALL = "Run: python -m pip install nvidia-cuda-nvrtc (or nvidia-cuda-nvrtc-cu12)"
_COMPILATION = 6  # NVRTC_ERROR_COMPILATION


class NVRTCError(Exception):
    """NVRTC refused a text or a call; `log` is all that it said of the text."""

    def __init__(self, status: str, log: str) -> None:
        super().__init__(status)
        self.log = log


class NVRTC:
    """The loaded library.

    `architectures` are those it compiles for, ascending: 80 for compute capability 8.0.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("Version", ctypes.byref(major), ctypes.byref(minor))
        self.version = major.value, minor.value
        count = ctypes.c_int()
        self._call("GetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._call("GetSupportedArchs", numbers)
        self.architectures = tuple(sorted(numbers))

    def compile(self, text: str, name: str, options: tuple[str, ...], image: str) -> bytes:
        """Compile a text to an image, "CUBIN" or "PTX". Raises: NVRTCError."""
        program = ctypes.c_void_p()
        handle = ctypes.byref(program)
        # No headers are passed as texts: NVRTC finds them in the folders of the options.
        self._call("CreateProgram", handle, text.encode(), name.encode(), 0, None, None)
        try:
            given = (ctypes.c_char_p * len(options))(*map(os.fsencode, options))
            status = self._library.nvrtcCompileProgram(program, len(options), given)
            if status:
                log = self._read("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
                raise NVRTCError(self._name(status), log.strip())
            return self._read(image, program)
        finally:
            self._call("DestroyProgram", handle)

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

    def _read(self, what: str, program: ctypes.c_void_p) -> bytes:
        nbytes = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(nbytes))
        content = ctypes.create_string_buffer(max(1, nbytes.value))
        self._call(f"Get{what}", program, content)
        return content.raw[: nbytes.value]

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, f"nvrtc{name}")(*arguments)
        if status:
            raise NVRTCError(f"nvrtc{name}: {self._name(status)}", "")

    def _name(self, status: int) -> str:
        return str(self._library.nvrtcGetErrorString(status).decode())


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
        raise CompilerUnavailable("nvrtc", "NVRTC is not installed", fix=_INSTALL) from error
    except (RuntimeError, OSError, NVRTCError) as error:
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
