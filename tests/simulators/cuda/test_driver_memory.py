"""Memory: what may be allocated, copied and freed, against a model of plain bytes."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import pytest
from driver_calls import OUT_OF_MEMORY, Driver

Load = Callable[..., Driver]
PAGE = 4096


def test_sizes_that_cannot_be(cuda: Driver) -> None:
    out = ctypes.c_uint64(5)
    for name in ("cuMemAlloc", "cuMemAllocHost"):
        assert getattr(cuda.code, name)(ctypes.byref(out), 0) == 1
    assert cuda.code.cuMemAlloc(None, 4) == 1
    assert cuda.code.cuMemHostAlloc(ctypes.byref(out), 4, 0x100) == 1
    assert cuda.code.cuMemAllocAsync(ctypes.byref(out), 0, 0) == 1
    assert out.value == 5


def test_memory_runs_out(load_driver: Load) -> None:
    cuda = load_driver(memory=1 << 20)
    cuda.start()
    free, total = ctypes.c_uint64(), ctypes.c_uint64()
    held = [cuda.alloc(1 << 18) for _ in range(4)]
    assert cuda.code.cuMemAlloc(ctypes.byref(ctypes.c_uint64()), 1) == OUT_OF_MEMORY
    cuda.cuMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    assert (free.value, total.value) == (0, 1 << 20)
    cuda.use(1)
    cuda.cuMemFree(cuda.alloc(1 << 20))  # the other device has its own
    for address in held:
        cuda.cuMemFree(address)
    cuda.use(0)
    cuda.cuMemFree(cuda.alloc(1 << 20))
    cuda.stop()


def test_frees_count_until_their_stream_was_waited_for(load_driver: Load) -> None:
    cuda = load_driver(memory=1 << 20)
    cuda.start()
    stream, other = cuda.stream(), cuda.stream()
    out = ctypes.c_uint64()
    first = cuda.get("cuMemAllocAsync", 1 << 20, stream)
    cuda.delay("cuMemFreeAsync", 0.05)
    cuda.cuMemFreeAsync(first, stream)
    second = cuda.get("cuMemAllocAsync", 1 << 20, stream)  # in the same order: used again
    cuda.cuMemFreeAsync(second, stream)
    assert cuda.code.cuMemAllocAsync(ctypes.byref(out), 1 << 20, other) == OUT_OF_MEMORY
    assert cuda.code.cuMemAlloc(ctypes.byref(out), 1) == OUT_OF_MEMORY
    cuda.cuStreamSynchronize(stream)
    cuda.cuMemFreeAsync(cuda.get("cuMemAllocAsync", 1 << 20, other), other)


def test_a_pool_keeps_what_its_threshold_allows(load_driver: Load) -> None:
    cuda = load_driver(memory=1 << 20)
    cuda.start()
    stream, pool = cuda.stream(), cuda.get("cuDeviceGetMemPool", 0)
    cuda.cuMemPoolSetAttribute(pool, 4, ctypes.byref(ctypes.c_uint64(1 << 19)))
    parts = [cuda.get("cuMemAllocAsync", 1 << 18, stream) for _ in range(4)]
    for part in parts:
        cuda.cuMemFreeAsync(part, stream)
    cuda.cuStreamSynchronize(stream)
    reserved = ctypes.c_uint64()
    cuda.cuMemPoolGetAttribute(pool, 5, ctypes.byref(reserved))
    assert reserved.value == 1 << 19
    out = ctypes.c_uint64()
    assert cuda.code.cuMemAlloc(ctypes.byref(out), 1 << 20) == OUT_OF_MEMORY
    cuda.cuMemPoolTrimTo(pool, 0)
    cuda.cuMemFree(cuda.alloc(1 << 20))


def test_addresses_are_aligned_and_not_used_again_soon(cuda: Driver) -> None:
    seen = set()
    for _ in range(50):
        address = cuda.alloc(1)
        assert address % 512 == 0
        assert address not in seen
        seen.add(address)
        cuda.cuMemFree(address)


def test_what_may_not_be_freed(cuda: Driver) -> None:
    address, host = cuda.alloc(64), cuda.get("cuMemAllocHost", 64)
    for wrong in (address + 8, host, 0x1234):
        assert cuda.code.cuMemFree(wrong) == 1
    assert cuda.code.cuMemFreeHost(address) == 1
    cuda.cuMemFree(0)
    cuda.cuMemFree(address)
    assert cuda.code.cuMemFree(address) == 1
    cuda.cuMemFreeHost(host)
    assert cuda.code.cuMemFreeHost(host) == 1
    stream = cuda.stream()
    address = cuda.get("cuMemAllocAsync", 64, stream)
    cuda.delay("cuMemFreeAsync", 0.05)
    cuda.cuMemFreeAsync(address, stream)
    assert cuda.code.cuMemFreeAsync(address, stream) == 1
    assert cuda.code.cuMemFree(address) == 1
    assert cuda.code.cuMemcpyDtoH(ctypes.create_string_buffer(4), address, 4) == 1
    cuda.cuStreamSynchronize(stream)
    cuda.cuStreamDestroy(stream)


def test_fresh_memory_is_not_zero(cuda: Driver) -> None:
    address = cuda.alloc(64)
    assert cuda.read(address, 64) != bytes(64)
    cuda.cuMemFree(address)


@pytest.mark.parametrize(("offset", "nbytes"), [(0, 65), (64, 1), (1, 64), (0, 1 << 40), (8, -1)])
def test_copies_out_of_bounds(cuda: Driver, offset: int, nbytes: int) -> None:
    address, other = cuda.alloc(64), cuda.alloc(128)
    host = ctypes.create_string_buffer(128)
    cuda.cuMemsetD8(address, 7, 64)
    at = address + offset
    codes = [
        cuda.code.cuMemcpyHtoD(at, host, nbytes),
        cuda.code.cuMemcpyDtoH(host, at, nbytes),
        cuda.code.cuMemcpyDtoD(at, other, nbytes),
        cuda.code.cuMemcpyDtoD(other, at, nbytes),
        cuda.code.cuMemcpy(other, at, nbytes),
        cuda.code.cuMemcpyHtoDAsync(at, host, nbytes, 0),
        cuda.code.cuMemsetD8(at, 1, nbytes),
        cuda.code.cuMemsetD32(at - offset, 1, 17),
    ]
    assert codes == [1] * 8
    assert cuda.read(address, 64) == b"\7" * 64
    cuda.cuMemFree(address)
    cuda.cuMemFree(other)


def test_copies_of_nothing_and_from_nowhere(cuda: Driver) -> None:
    address = cuda.alloc(64)
    cuda.cuMemcpyHtoD(address, None, 0)
    cuda.cuMemsetD8(address, 0, 0)
    assert cuda.code.cuMemcpyHtoD(address, None, 4) == 1
    assert cuda.code.cuMemcpyHtoD(address, address, 4) == 1  # no host pointer
    assert cuda.code.cuMemcpyDtoH(address, address, 4) == 1
    assert cuda.code.cuMemsetD32(address + 2, 0, 1) == 1
    assert cuda.code.cuMemsetD16(address + 1, 0, 1) == 1
    cuda.cuMemFree(address)


# -- host memory


# -- what an address is


# -- two devices


def test_copies_between_devices_need_no_permission(cuda: Driver) -> None:
    first = cuda.alloc(64)
    cuda.write(first, bytes(range(64)))
    here, there = cuda.contexts[0], cuda.use(1)
    second = cuda.alloc(64)
    cuda.cuMemcpyPeer(second, there, first, here, 64)
    assert cuda.read(second, 64) == bytes(range(64))
    assert cuda.code.cuMemcpyPeer(second, here, first, there, 64) == 1  # the wrong way about
    cuda.cuMemsetD8(second, 3, 64)
    cuda.cuMemcpyDtoD(first, second, 64)
    assert cuda.read(first, 64) == b"\3" * 64
    cuda.cuMemFree(first)
    cuda.cuMemFree(second)


def test_pageable_memory_is_read_late_on_request(cuda: Driver) -> None:
    host, memory, stream = ctypes.create_string_buffer(b"one", 4), cuda.alloc(4), cuda.stream()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    for late in (0, 1):
        cuda.library.sim_read_late(late)
        gate = threading.Event()
        kept = kind(lambda _data, gate=gate: gate.wait(30) and None)
        host.value = b"one"
        cuda.cuLaunchHostFunc(stream, kept, None)
        cuda.cuMemcpyHtoDAsync(memory, host, 4, stream)
        host.value = b"two"
        gate.set()
        cuda.cuStreamSynchronize(stream)
        assert cuda.read(memory, 4) == (b"two\0" if late else b"one\0")
    cuda.library.sim_read_late(0)
    cuda.cuStreamDestroy(stream)
    cuda.cuMemFree(memory)


# -- pools


def test_pools(cuda: Driver) -> None:
    default = cuda.get("cuDeviceGetDefaultMemPool", 0)
    assert cuda.get("cuDeviceGetMemPool", 0) == default
    value = ctypes.c_uint64(1 << 30)
    cuda.cuMemPoolSetAttribute(default, 4, ctypes.byref(value))
    value.value = 0
    cuda.cuMemPoolGetAttribute(default, 4, ctypes.byref(value))
    assert value.value == 1 << 30
    assert cuda.code.cuMemPoolDestroy(default) == 1
    stream = cuda.stream()
    address = cuda.get("cuMemAllocFromPoolAsync", 64, default, stream)
    cuda.cuMemPoolGetAttribute(default, 7, ctypes.byref(value))
    assert value.value == 64
    cuda.cuMemFreeAsync(address, stream)
    cuda.cuStreamSynchronize(stream)
    cuda.cuMemPoolGetAttribute(default, 7, ctypes.byref(value))
    assert value.value == 0
    cuda.cuMemPoolTrimTo(default, 0)
    cuda.cuStreamDestroy(stream)
