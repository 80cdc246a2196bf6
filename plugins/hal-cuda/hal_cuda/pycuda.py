"""The driver through PyCUDA, whose context and arrays are shared. Nothing else imports it.

PyCUDA makes objects only in the context on top of its own stack, and ends the process when a
thread goes with contexts left there. So a context is pushed around the making of each, and the
driver alone is told what is current in between.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pycuda.driver as cu

from hal_core import fork
from hal_core.geometry import Dim3
from hal_cuda.driver import ATTRIBUTES, Facts, KernelFacts, Refused

_MEMORY_TYPE, _ORDINAL, _HOST = 2, 9, 1  # CU_POINTER_ATTRIBUTE_..., CU_MEMORYTYPE_HOST
POOLS = False  # PyCUDA does not bind allocation in the order of a stream

_memory: dict[int, Any] = {}  # address -> the object that owns it


if hasattr(os, "register_at_fork"):  # in a child PyCUDA's destructors would end the process
    os.register_at_fork(after_in_child=lambda: fork.keep(_memory))


class Held:
    """An object that PyCUDA destroys with its last reference: `it` is that one."""

    __slots__ = ("it",)

    def __init__(self, it: Any) -> None:
        self.it = it


def _let_go(held: Held) -> None:
    with _inside(_here.context):
        held.it = None


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")  # which PyCUDA has loaded


@functools.cache
def _codes() -> dict[str, tuple[int, str]]:
    """Of every sentence of the driver the code and its name: PyCUDA's errors have the sentence."""
    library, text = _library(), ctypes.c_char_p()
    found = {}
    for code in range(1, 1000):
        if library.cuGetErrorString(code, ctypes.byref(text)) == 0 and text.value:
            sentence = text.value.decode()
            if library.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value:
                found[sentence] = code, text.value.decode()
    return found


def refused(error: cu.Error) -> Refused:
    call, _, rest = str(error).partition(" failed: ")
    sentence, _, more = rest.partition(" - ")
    code, name = _codes().get(sentence, (999, "an unknown code"))
    return Refused(call, code, name, more.strip("\0 \n") or sentence)


def _of_code(call: str, code: int) -> Refused:
    """Of a call past PyCUDA."""
    sentence = next((text for text, known in _codes().items() if known[0] == code), "")
    return Refused(call, code, _codes().get(sentence, (0, "an unknown code"))[1], sentence)


class _Guard:
    """`with guard:` - PyCUDA's errors become refusals."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, cu.Error):
            raise refused(error) from None


guard = _Guard()


@contextmanager
def _inside(context: Any) -> Iterator[None]:
    """The context on top of PyCUDA's stack, and afterwards as it was."""
    with guard:
        if cu.Context.get_current() == context:
            yield
            return
        context.push()
        try:
            yield
        finally:
            cu.Context.pop()
            set_current(context)


# -- devices and contexts


def initialise() -> None:
    with guard:
        cu.init()


def version() -> tuple[int, int]:
    number = int(cu.get_driver_version())
    return number // 1000, number % 1000 // 10


def count() -> int:
    with guard:
        return int(cu.Device.count())


def facts(index: int) -> Facts:
    with guard:
        device = cu.Device(index)
        attributes = {}
        for name in ATTRIBUTES:
            attribute = getattr(cu.device_attribute, name.upper(), None)
            try:
                attributes[name] = 0 if attribute is None else device.get_attribute(attribute)
            except cu.Error:  # a driver may be older than an attribute
                attributes[name] = 0
        return Facts(str(device.name()), int(device.total_memory()), attributes)


def retain(index: int) -> Any:
    """PyCUDA's current context when it is of this device; else the primary one."""
    with guard:
        context = cu.Context.get_current()
        if context is not None and cu.Context.get_device() == cu.Device(index):
            return context
        with _primary_lock:
            context, users = _primary.get(index, (None, 0))
            if context is None:
                context = cu.Device(index).retain_primary_context()
            _primary[index] = context, users + 1
        return context


_primary: dict[int, tuple[Any, int]] = {}  # of a device: the context, and how often it is retained
_primary_lock = threading.Lock()


def release(index: int) -> None:
    with guard, _primary_lock:
        context, users = _primary.pop(index, (None, 0))
        if users > 1:
            _primary[index] = context, users - 1
        elif context is not None:
            context.detach()


def set_current(context: Any) -> None:
    code = _library().cuCtxSetCurrent(ctypes.c_void_p(context.handle))
    if code:
        raise _of_code("cuCtxSetCurrent", code)
    _here.context = context


def is_current(context: Any) -> bool:
    found = ctypes.c_void_p()
    code = _library().cuCtxGetCurrent(ctypes.byref(found))
    return code == 0 and found.value == int(context.handle)


class _Here(threading.local):
    context: Any = None  # current on this thread, as far as we have set it


_here = _Here()


def peer(context: Any, device: int, other: int) -> bool:
    with guard:
        if not cu.Device(device).can_access_peer(cu.Device(other)):
            return False
    try:
        with _inside(_here.context):
            cu.Context.enable_peer_access(context)
    except Refused as error:
        return error.code == 704  # it can already
    return True


# -- memory


def memory_info() -> tuple[int, int]:
    with guard:
        free, total = cu.mem_get_info()
    return int(free), int(total)


def allocate(nbytes: int, stream: Any, pooled: bool) -> int:
    with _inside(_here.context):
        made = cu.mem_alloc(nbytes)
    _memory[int(made)] = made
    return int(made)


def free(address: int, stream: Any, pooled: bool) -> None:
    with _inside(_here.context):
        _memory.pop(address).free()


def allocate_host(nbytes: int) -> int:
    flags = cu.host_alloc_flags.PORTABLE | cu.host_alloc_flags.DEVICEMAP
    with _inside(_here.context):
        made = cu.pagelocked_empty(nbytes, np.uint8, mem_flags=flags)
    _memory[made.ctypes.data] = made
    return int(made.ctypes.data)


def free_host(address: int) -> None:
    with _inside(_here.context):
        _memory.pop(address).base.free()


def _bytes_of(host: Any, nbytes: int) -> Any:
    if isinstance(host, int):
        return memoryview((ctypes.c_ubyte * nbytes).from_address(host))
    return host


def copy_in(dest: int, src: Any, nbytes: int, stream: Any) -> None:
    with guard:
        cu.memcpy_htod_async(dest, _bytes_of(src, nbytes), stream.it)


def copy_out(dest: Any, src: int, nbytes: int, stream: Any) -> None:
    with guard:
        cu.memcpy_dtoh_async(_bytes_of(dest, nbytes), src, stream.it)


def copy(dest: int, src: int, nbytes: int, stream: Any) -> None:
    with guard:
        cu.memcpy_dtod_async(dest, src, nbytes, stream.it)


def copy_peer(
    dest: int, dest_context: Any, src: int, src_context: Any, nbytes: int, stream: Any
) -> None:
    # Addresses say whose memory they are; PyCUDA's memcpy_peer takes the current context for both.
    copy(dest, src, nbytes, stream)


def fill(dest: int, pattern: bytes, count: int, stream: Any) -> None:
    functions = {1: cu.memset_d8_async, 2: cu.memset_d16_async, 4: cu.memset_d32_async}
    with guard:
        functions[len(pattern)](dest, int.from_bytes(pattern, "little"), count, stream.it)


def owner_of(address: int) -> tuple[int, bool]:
    """The index of the device that memory belongs to, and whether it is the host's; -1 where the
    driver does not know it. Its context is no help: memory from a pool has none."""
    index, kind, place = ctypes.c_int(-1), ctypes.c_uint(), ctypes.c_uint64(address)
    ask = _library().cuPointerGetAttribute
    if ask(ctypes.byref(index), _ORDINAL, place) or ask(ctypes.byref(kind), _MEMORY_TYPE, place):
        return -1, False
    return index.value, kind.value == _HOST


def range_of(address: int) -> tuple[int, int]:
    with guard:
        start, nbytes = cu.mem_get_address_range(address)
    return int(start), int(nbytes)


# -- streams and events


def make_stream(apart: bool = False) -> Held:
    """`apart`: in no order with the legacy default stream."""
    with _inside(_here.context):
        return Held(cu.Stream(int(apart)))


def destroy_stream(stream: Held) -> None:
    _let_go(stream)


def wait(stream: Held) -> None:
    with guard:
        stream.it.synchronize()


def wait_for_foreign(stream: int) -> None:
    """The number of a stream that somebody else made."""
    code = _library().cuStreamSynchronize(ctypes.c_void_p(stream))
    if code:
        raise _of_code("cuStreamSynchronize", code)


def is_done(stream: Held) -> bool:
    with guard:
        return bool(stream.it.is_done())


def make_event() -> Held:
    with _inside(_here.context):
        return Held(cu.Event())


def destroy_event(event: Held) -> None:
    _let_go(event)


def record(event: Held, stream: Held) -> None:
    with guard:
        event.it.record(stream.it)


def wait_for(stream: Held, event: Held) -> None:
    with guard:
        stream.it.wait_for_event(event.it)


def wait_event(event: Held) -> None:
    with guard:
        event.it.synchronize()


def seconds_between(start: Held, end: Held) -> float:
    with guard:
        end.it.synchronize()
        return float(end.it.time_since(start.it)) * 1e-3


# -- programs


def load(image: bytes) -> tuple[Held, str]:
    said: list[str] = []
    with _inside(_here.context):
        try:
            module = cu.module_from_buffer(
                image + b"\0", message_handler=lambda ok, info, error: said.append(error)
            )
        except UnicodeDecodeError:  # the log of a driver that refused the image without one
            cu.Context.synchronize()  # raises where the context is lost
            raise _no_image() from None
    return Held(module), said[0].strip("\0 \n") if said else ""


def _no_image() -> Refused:
    sentence = "device kernel image is invalid"
    return Refused("cuModuleLoadDataEx", 200, "CUDA_ERROR_INVALID_IMAGE", sentence)


def unload(module: Held) -> None:
    """Order: its functions are let go already; they hold it."""
    _let_go(module)


def function_of(module: Held, name: str) -> Any:
    with guard:
        return module.it.get_function(name)


def kernel_facts(function: Any) -> KernelFacts:
    with guard:
        return KernelFacts(
            function.num_regs, function.shared_size_bytes, function.local_size_bytes,
            function.max_threads_per_block,
        )  # fmt: skip


def geometry(grid: Dim3, block: Dim3, shared: int) -> Any:
    return grid, block, shared


# Written out for each signature. PyCUDA takes the arguments packed as the kernel has them.
LAUNCH = """
def launch(geometry{names}):
    if current.context is not context:
        use(context)
    grid, block, shared = geometry
    while True:
        try:
            launch_kernel(grid, block, pack({arguments}), shared, stream.it)
            break
        except Error as error:
            refused(error)
    device.last_launched = name
"""
Error = cu.Error


def launch_of(function: Any) -> Any:
    return function._launch_kernel


launch_refused = refused


def allow_shared(function: Any, nbytes: int) -> None:
    with guard:
        function.set_attribute(cu.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, nbytes)
