"""Copies of rectangles and boxes against numpy."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from driver_calls import Driver

HOST, DEVICE, UNIFIED = 1, 2, 4
SIZE, POINTER, KIND = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint


class Copy2D(ctypes.Structure):
    _fields_ = [
        *[("srcXInBytes", SIZE), ("srcY", SIZE), ("srcMemoryType", KIND), ("srcHost", POINTER)],
        *[("srcDevice", ctypes.c_uint64), ("srcArray", POINTER), ("srcPitch", SIZE)],
        *[("dstXInBytes", SIZE), ("dstY", SIZE), ("dstMemoryType", KIND), ("dstHost", POINTER)],
        *[("dstDevice", ctypes.c_uint64), ("dstArray", POINTER), ("dstPitch", SIZE)],
        *[("WidthInBytes", SIZE), ("Height", SIZE)],
    ]


def _side(name: str) -> list[tuple[str, type]]:
    return [
        *[(f"{name}XInBytes", SIZE), (f"{name}Y", SIZE), (f"{name}Z", SIZE), (f"{name}LOD", SIZE)],
        *[
            (f"{name}MemoryType", KIND),
            (f"{name}Host", POINTER),
            (f"{name}Device", ctypes.c_uint64),
        ],
        *[(f"{name}Array", POINTER), (f"{name}Reserved", POINTER)],
        *[(f"{name}Pitch", SIZE), (f"{name}Height", SIZE)],
    ]


class Copy3D(ctypes.Structure):
    _fields_ = [
        *_side("src"), *_side("dst"),
        *[("WidthInBytes", SIZE), ("Height", SIZE), ("Depth", SIZE)],
    ]  # fmt: skip


def _choose(rng: np.random.Generator, extent: int) -> tuple[int, int]:
    start = int(rng.integers(extent))
    return start, int(rng.integers(1, extent - start + 1))


@pytest.mark.parametrize("seed", range(12))
def test_rectangles(cuda: Driver, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = (int(n) for n in rng.integers(1, 40, 2))
    source = rng.integers(0, 255, (rows, columns), dtype=np.uint8)
    target = np.zeros((rows + 3, columns + 5), np.uint8)
    address, pitch = ctypes.c_uint64(), ctypes.c_uint64()
    cuda.cuMemAllocPitch(ctypes.byref(address), ctypes.byref(pitch), columns, rows, 4)
    up = Copy2D(
        srcMemoryType=HOST, srcHost=source.ctypes.data, srcPitch=columns,
        dstMemoryType=DEVICE, dstDevice=address.value, dstPitch=pitch.value,
        WidthInBytes=columns, Height=rows,
    )  # fmt: skip
    cuda.cuMemcpy2D(ctypes.byref(up))
    (x, width), (y, height) = _choose(rng, columns), _choose(rng, rows)
    down = Copy2D(
        srcMemoryType=UNIFIED, srcDevice=address.value, srcPitch=pitch.value, srcXInBytes=x, srcY=y,
        dstMemoryType=HOST, dstHost=target.ctypes.data, dstPitch=columns + 5, dstXInBytes=2, dstY=1,
        WidthInBytes=width, Height=height,
    )  # fmt: skip
    cuda.cuMemcpy2DAsync(ctypes.byref(down), 0)
    expected = np.zeros_like(target)
    expected[1 : 1 + height, 2 : 2 + width] = source[y : y + height, x : x + width]
    np.testing.assert_array_equal(target, expected)
    down.Height = rows - y + 1
    down.WidthInBytes = pitch.value - x
    assert cuda.code.cuMemcpy2D(ctypes.byref(down)) == 1
    cuda.cuMemFree(address.value)


@pytest.mark.parametrize("seed", range(12))
def test_boxes(cuda: Driver, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 12, 3))
    source = rng.integers(0, 255, shape, dtype=np.uint8)
    target = np.zeros_like(source)
    first, second = cuda.alloc(source.size), cuda.alloc(source.size)
    cuda.write(first, source.tobytes())
    cuda.cuMemsetD8(second, 0, source.size)
    (z, depth), (y, height), (x, width) = (_choose(rng, extent) for extent in shape)
    across = Copy3D(
        srcMemoryType=DEVICE, srcDevice=first, srcPitch=shape[2], srcHeight=shape[1],
        srcXInBytes=x, srcY=y, srcZ=z,
        dstMemoryType=DEVICE, dstDevice=second, dstPitch=shape[2], dstHeight=shape[1],
        WidthInBytes=width, Height=height, Depth=depth,
    )  # fmt: skip
    cuda.cuMemcpy3D(ctypes.byref(across))
    cuda.cuMemcpyDtoH(target.ctypes.data, second, target.nbytes)
    expected = np.zeros_like(source)
    expected[:depth, :height, :width] = source[z : z + depth, y : y + height, x : x + width]
    np.testing.assert_array_equal(target, expected)
    across.Depth = shape[0] - z + 1
    assert cuda.code.cuMemcpy3D(ctypes.byref(across)) == 1
    cuda.cuMemFree(first)
    cuda.cuMemFree(second)


def test_filled_rectangles(cuda: Driver) -> None:
    memory = cuda.alloc(6 * 16)
    cuda.cuMemsetD8(memory, 0, 96)
    cuda.cuMemsetD2D32(memory + 4, 16, 0x01020304, 2, 6)
    expected = np.zeros((6, 4), np.uint32)
    expected[:, 1:3] = 0x01020304
    assert cuda.read(memory, 96) == expected.tobytes()
    assert cuda.code.cuMemsetD2D32(memory, 16, 0, 4, 7) == 1
    assert cuda.code.cuMemsetD2D32(memory, 8, 0, 4, 2) == 1
    assert cuda.code.cuMemsetD2D32(memory, 18, 0, 4, 2) == 1
    cuda.cuMemFree(memory)


def test_arrays_are_not_here(cuda: Driver) -> None:
    memory = cuda.alloc(4)
    record = Copy2D(
        srcMemoryType=3, dstMemoryType=DEVICE, dstDevice=memory, WidthInBytes=4, Height=1
    )
    assert cuda.code.cuMemcpy2D(ctypes.byref(record)) == 801
    record.srcMemoryType = 9
    assert cuda.code.cuMemcpy2D(ctypes.byref(record)) == 1
    assert cuda.code.cuMemcpy2D(None) == 1
    cuda.cuMemFree(memory)
