"""Modules, kernels and launches: what is refused, and with which code."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from driver_calls import Driver
from driver_kernels import (
    BIG_SHARED,
    BOUNDED,
    BROKEN,
    EXACT,
    FILL,
    HEAD,
    NEXT,
    SHARED,
    VARIABLES,
)

Load = Callable[..., Driver]
UINT = ctypes.c_uint32


def load_code(cuda: Driver, image: bytes) -> int:
    return cuda.code.cuModuleLoadData(ctypes.byref(ctypes.c_uint64()), image)


def jit(cuda: Driver, text: str, room: int = 4096) -> tuple[int, str, int]:
    """The code, the log of errors, and the length that is said of it."""
    names = (ctypes.c_uint * 2)(5, 6)
    log = ctypes.create_string_buffer(b"\xff" * room, room)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), room)
    module = ctypes.c_uint64()
    code = cuda.code.cuModuleLoadDataEx(
        ctypes.byref(module), text.encode(), 2, names, ctypes.cast(values, ctypes.c_void_p)
    )
    if code == 0:
        cuda.cuModuleUnload(module.value)
    length = values[1] or 0
    return code, log.raw[:length].split(b"\0")[0].decode(), length


# -- images


@pytest.mark.parametrize(
    ("image", "code"),
    [
        (b"\x7fELF\2\1\1\x33\7" + b"\0" * 64, 209),
        (b"\x7fELF\2\1\1\x41\x08" + b"\0" * 64, 200),  # by CUDA 13, for a driver of 12.9
        (struct.pack("I", 0xBA55ED50) + b"\0" * 64, 209),
        (b"", 200),
        (b"not a module", 200),
        (BROKEN.encode(), 218),
        (HEAD.encode() + b".visible .entry cut(", 218),
        (FILL.replace("7.0", "9.9").encode(), 222),
        (FILL.replace("sm_50", "sm_1000").encode(), 209),
        (FILL.replace("sm_50", "sm_90a").encode(), 209),
    ],
)
def test_images_that_are_refused(cuda: Driver, image: bytes, code: int) -> None:
    assert load_code(cuda, image) == code
    assert cuda.live()["modules"] == 0


def test_what_a_device_can_run(load_driver: Load) -> None:
    cuda = load_driver(cc="9.0", driver="12.0")
    cuda.start()
    for target, code in (("sm_90", 0), ("sm_90a", 0), ("sm_80", 0), ("sm_100", 209)):
        assert jit(cuda, FILL.replace("sm_50", target).replace("7.0", "8.0"))[0] == code
    assert jit(cuda, FILL.replace("7.0", "8.1"))[0] == 222
    cuda.stop()


def test_the_log_says_what_is_wrong(cuda: Driver) -> None:
    code, log, length = jit(cuda, BROKEN)
    assert (code, length) == (218, len(log) + 1)
    assert "frobnicate" in log
    assert "Unsupported .version 9.9" in jit(cuda, FILL.replace("7.0", "9.9"))[1]
    assert "higher than default" in jit(cuda, FILL.replace("sm_50", "sm_1000"))[1]
    cut = jit(cuda, BROKEN, room=8)
    assert cut[1:] == (log[:7], 8)
    assert jit(cuda, FILL) == (0, "", 0)


def test_a_module_from_a_file(cuda: Driver, tmp_path: Path) -> None:
    path = tmp_path / "fill.ptx"
    path.write_text(FILL)
    module = cuda.get("cuModuleLoad", str(path).encode())
    cuda.function(module, "fill")
    cuda.cuModuleUnload(module)
    missing = str(tmp_path / "none").encode()
    assert cuda.code.cuModuleLoad(ctypes.byref(ctypes.c_uint64()), missing) == 301


# -- what is in a module


def test_functions(cuda: Driver) -> None:
    module, out = cuda.module(FILL), ctypes.c_uint64()
    assert cuda.function(module, "fill") == cuda.function(module, "fill")
    assert cuda.code.cuModuleGetFunction(ctypes.byref(out), module, b"none") == 500
    assert cuda.code.cuModuleGetFunction(ctypes.byref(out), 0x1234, b"fill") == 400
    function = cuda.function(module, "fill")
    cuda.cuModuleUnload(module)
    assert cuda.code.cuModuleUnload(module) == 400
    assert cuda.launch_code(function, 0, UINT(0)) == 400


def test_variables(cuda: Driver) -> None:
    module, memory = cuda.module(VARIABLES), cuda.alloc(8)
    function = cuda.function(module, "variables")
    address, nbytes = ctypes.c_uint64(), ctypes.c_uint64()
    for _ in range(2):
        cuda.launch(function, memory)
    assert cuda.words(memory, 2) == (42, 99)
    cuda.cuModuleGetGlobal(ctypes.byref(address), ctypes.byref(nbytes), module, b"counter")
    assert nbytes.value == 4
    assert cuda.words(address.value, 1) == (43,)
    cuda.cuMemsetD32(address.value, 7, 1)
    cuda.cuModuleGetGlobal(ctypes.byref(address), None, module, b"limit")
    cuda.write(address.value, struct.pack("I", 8))
    cuda.launch(function, memory)
    assert cuda.words(memory, 2) == (7, 8)
    assert cuda.code.cuMemFree(address.value) == 1
    assert cuda.code.cuModuleGetGlobal(ctypes.byref(address), None, module, b"none") == 500
    cuda.cuModuleUnload(module)
    assert cuda.code.cuMemsetD8(address.value, 0, 4) == 1
    cuda.cuMemFree(memory)


def test_a_library_is_loaded_in_each_context_that_uses_it(cuda: Driver) -> None:
    library = cuda.get("cuLibraryLoadData", FILL.encode(), None, None, 0, None, None, 0)
    kernel = cuda.get("cuLibraryGetKernel", library, b"fill")
    out = ctypes.c_uint64()
    assert cuda.code.cuLibraryGetKernel(ctypes.byref(out), library, b"none") == 500
    for device in (0, 1):
        cuda.use(device)
        memory = cuda.alloc(4)
        cuda.launch(kernel, memory, UINT(device))  # a kernel where a function goes
        cuda.launch(cuda.get("cuKernelGetFunction", kernel), memory, UINT(device + 5))
        assert cuda.words(memory, 1) == (device + 5,)
        cuda.cuMemFree(memory)
    name, offset, nbytes = ctypes.c_char_p(), ctypes.c_size_t(), ctypes.c_size_t()
    cuda.cuKernelGetName(ctypes.byref(name), kernel)
    assert name.value == b"fill"
    cuda.cuKernelGetParamInfo(kernel, 1, ctypes.byref(offset), ctypes.byref(nbytes))
    assert (offset.value, nbytes.value) == (8, 4)
    info = cuda.code.cuKernelGetParamInfo
    assert info(kernel, 2, ctypes.byref(offset), ctypes.byref(nbytes)) == 1
    cuda.cuLibraryUnload(library)
    assert cuda.code.cuLibraryUnload(library) == 400
    assert cuda.launch_code(kernel, 0, UINT(0)) == 400


# -- launches


@pytest.mark.parametrize(
    ("text", "name", "how", "code"),
    [
        (FILL, "fill", {"grid": (0, 1, 1)}, 1),
        (FILL, "fill", {"grid": (1, 65536, 1)}, 1),
        (FILL, "fill", {"grid": (1 << 31, 1, 1)}, 1),
        (FILL, "fill", {"block": (1, 0, 1)}, 1),
        (FILL, "fill", {"block": (1025, 1, 1)}, 1),
        (FILL, "fill", {"block": (64, 32, 1)}, 1),
        (FILL, "fill", {"block": (1, 1, 65)}, 1),
        (FILL, "fill", {"shared": 48 * 1024 + 1}, 1),
        (FILL, "fill", {"stream": 0x1234}, 400),
        (BOUNDED, "bounded", {"block": (65, 1, 1)}, 701),
        (BOUNDED, "bounded", {"block": (64, 1, 1)}, 0),
        (EXACT, "exact", {"block": (64, 1, 1)}, 1),
        (EXACT, "exact", {"block": (32, 2, 1)}, 0),
        (BIG_SHARED, "big", {"shared": 9152}, 0),
        (BIG_SHARED, "big", {"shared": 9153}, 1),
    ],
)
def test_limits_of_a_launch(
    cuda: Driver, text: str, name: str, how: dict[str, object], code: int
) -> None:
    module, memory = cuda.module(text), cuda.alloc(4)
    arguments = (memory, UINT(1)) if text == FILL else ()
    assert cuda.launch_code(cuda.function(module, name), *arguments, **how) == code
    cuda.cuCtxSynchronize()
    cuda.cuModuleUnload(module)
    cuda.cuMemFree(memory)


def test_more_shared_memory_when_asked_for(cuda: Driver) -> None:
    module, memory = cuda.module(SHARED), cuda.alloc(256)
    function = cuda.function(module, "neighbour")
    assert cuda.launch_code(function, memory, block=(64, 1, 1), shared=100_000) == 1
    cuda.cuFuncSetAttribute(function, 8, 100_000)
    assert cuda.get("cuFuncGetAttribute", 8, function, kind=ctypes.c_int) == 100_000
    cuda.launch(function, memory, block=(64, 1, 1), shared=100_000)
    assert cuda.words(memory, 64) == tuple(index ^ 1 for index in range(64))
    assert cuda.code.cuFuncSetAttribute(function, 8, 227 * 1024 + 1) == 1
    assert cuda.code.cuFuncSetAttribute(function, 4, 1) == 1
    cuda.cuModuleUnload(module)
    cuda.cuMemFree(memory)


def test_arguments(cuda: Driver) -> None:
    module, memory = cuda.module(FILL), cuda.alloc(4)
    function = cuda.function(module, "fill")
    launch = cuda.code.cuLaunchKernel
    one = (1, 1, 1, 1, 1, 1, 0, 0)
    assert launch(function, *one, None, None) == 1
    assert launch(function, *one, (ctypes.c_void_p * 2)(), None) == 1

    def extra(block: bytes, says: int | None = None) -> int:
        data = ctypes.create_string_buffer(block, len(block))
        nbytes = ctypes.c_size_t(len(block) if says is None else says)
        place = ctypes.addressof(data), ctypes.addressof(nbytes)
        config = (ctypes.c_void_p * 5)(1, place[0], 2, place[1], 0)
        return launch(function, *one, None, config)

    whole = struct.pack("QI", memory, 77)
    assert extra(whole) == 0
    assert cuda.words(memory, 1) == (77,)
    assert extra(whole + bytes(4)) == 0
    assert extra(whole[:8]) == 1
    assert extra(whole + bytes(64)) == 1
    cuda.cuModuleUnload(module)
    cuda.cuMemFree(memory)


def test_launches_stay_in_their_context(cuda: Driver) -> None:
    module, memory, stream = cuda.module(FILL), cuda.alloc(4), cuda.stream()
    function = cuda.function(module, "fill")
    cuda.use(1)
    assert cuda.launch_code(function, memory, UINT(1)) == 400  # the default stream is the other's
    cuda.launch(function, memory, UINT(2), stream=stream)
    cuda.use(0)
    assert cuda.words(memory, 1) == (2,)
    cuda.cuStreamDestroy(stream)
    cuda.cuModuleUnload(module)
    cuda.cuMemFree(memory)


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16)]


class Config(ctypes.Structure):
    _fields_ = [
        *[("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint)],
        *[("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)],
    ]


@pytest.mark.parametrize(
    ("attribute", "value", "code"), [(8, 0, 0), (2, 0, 0), (2, 1, 801), (4, 2, 801), (4, 1, 0)]
)
def test_launches_with_attributes(cuda: Driver, attribute: int, value: int, code: int) -> None:
    module, memory = cuda.module(FILL), cuda.alloc(8)
    held = (ctypes.c_uint64(memory), UINT(9))
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in held))
    asked = Attribute(attribute, b"", (value, 1, 1))
    config = Config((1, 1, 1), (2, 1, 1), 0, 0, ctypes.addressof(asked), 1)
    function = cuda.function(module, "fill")
    assert cuda.code.cuLaunchKernelEx(ctypes.byref(config), function, pointers, None) == code
    if code == 0:
        assert cuda.words(memory, 2) == (9, 10)
    cuda.cuModuleUnload(module)
    cuda.cuMemFree(memory)


def test_occupancy(cuda: Driver) -> None:
    module, small = cuda.module(BOUNDED), cuda.module(NEXT)
    bounded, function = cuda.function(module, "bounded"), cuda.function(small, "next")
    name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    assert 1 <= cuda.get(name, function, 1024, 0, kind=ctypes.c_int) <= 2
    assert cuda.get(name, bounded, 65, 0, kind=ctypes.c_int) == 0
    assert cuda.get(name, function, 32, 40_000, kind=ctypes.c_int) == 5
    assert getattr(cuda.code, name)(ctypes.byref(ctypes.c_int()), function, 0, 0) == 1
    grid, block = ctypes.c_int(), ctypes.c_int()
    cuda.cuOccupancyMaxPotentialBlockSize(
        ctypes.byref(grid), ctypes.byref(block), bounded, None, 0, 0
    )
    assert block.value == 64
    assert grid.value >= 16
    for handle in (module, small):
        cuda.cuModuleUnload(handle)
