"""Modules, kernels and launches: what is refused, and with which code."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable

import pytest
from driver_calls import Driver
from driver_kernels import (
    BIG_SHARED,
    BOUNDED,
    BROKEN,
    EXACT,
    FILL,
    HEAD,
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
