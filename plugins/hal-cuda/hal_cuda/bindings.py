"""Calls of the driver through cuda-bindings, which no other module imports."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cu

from hal_core.concurrency import unless_of_a_signal
from hal_cuda.calls import LOG_NBYTES, Calls
from hal_streams.driver import Refused

_ERROR_LOG = cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER
_ERROR_LOG_NBYTES = cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES


class _Functions(dict[str, Any]):
    """Functions of cuda-bindings by their names without prefix, each looked up once."""

    def __missing__(self, name: str) -> Any:
        return self.setdefault(name, getattr(cu, f"cu{name}"))


_functions = _Functions()


class CudaBindings(Calls):
    """The functions of cuda-bindings, which return tuples: the status, then the results."""

    device_attribute = cu.CUdevice_attribute
    pointer_attribute = cu.CUpointer_attribute
    function_attribute = cu.CUfunction_attribute
    pool_attribute = cu.CUmemPool_attribute
    capture_mode = cu.CUstreamCaptureMode
    STATUS = "(status,)"

    def call(self, name: str, *arguments: Any) -> Any:
        try:
            answer: tuple[Any, ...] = _functions[name](*arguments)
        except ValueError as error:  # a status newer than cuda-bindings
            code = str(error).partition(" is not a valid CUresult")[0]
            if not code.isdecimal():
                raise
            raise Refused(f"cu{name}", int(code), "an unknown code", "") from None
        if answer[0]:
            raise self.refused(name, answer[0])
        return answer[1] if len(answer) == 2 else answer[1:]

    def structure(self, name: str, packed: bytes) -> Any:
        made = getattr(cu, name)()
        ctypes.memmove(made.getPtr(), packed, len(packed))
        return made

    def array(self, one: Any) -> list[Any]:
        return [one]

    def refused(self, name: str, status: Any) -> Refused:
        code = int(status)
        _, title = cu.cuGetErrorName(cu.CUresult(code))
        _, sentence = cu.cuGetErrorString(cu.CUresult(code))
        title, sentence = title or b"an unknown code", sentence or b""
        return Refused(f"cu{name}", code, title.decode(), sentence.decode())

    def initialise(self) -> None:
        try:
            super().initialise()
        except unless_of_a_signal(RuntimeError) as error:  # there is no libcuda
            raise OSError(str(error)) from None

    def readable(self, src: memoryview) -> Any:
        return src

    def load(self, image: bytes) -> Any:
        log = bytes(LOG_NBYTES)  # the driver writes into it; cuda-bindings takes only bytes
        options = [_ERROR_LOG, _ERROR_LOG_NBYTES]
        try:
            return self.call("ModuleLoadDataEx", image + b"\0", 2, options, [log, LOG_NBYTES])
        except Refused as error:
            text = log.partition(b"\0")[0].decode(errors="replace").strip()
            error.sentence = text or error.sentence
            raise

    def launch_of(self, function: Any) -> Callable[..., Any]:
        return cu.cuLaunchKernel  # type: ignore[no-any-return]
