"""Memory: what may be allocated, copied and freed, against a model of plain bytes."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import pytest
from driver_calls import OUT_OF_MEMORY, Driver
from driver_kernels import FILL

Load = Callable[..., Driver]
PAGE = 4096


def test_sizes_that_cannot_be(cuda: Driver) -> None:
    out = ctypes.c_uint64(5)
    for name in ("cuMemAlloc", "cuMemAllocHost"):
        assert getattr(cuda.code, name)(ctypes.byref(out), 0) == 1
    assert cuda.code.cuMemAlloc(None, 4) == 1
    assert cuda.code.cuMemHostAlloc(ctypes.byref(out), 4, 0x100) == 1
    assert cuda.code.cuMemAllocManaged(ctypes.byref(out), 4, 0) == 1
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


def test_pinned_memory_has_one_address(cuda: Driver) -> None:
    host = cuda.get("cuMemHostAlloc", 64, 2)
    assert cuda.get("cuMemHostGetDevicePointer", host, 0) == host
    assert cuda.get("cuMemHostGetFlags", host, kind=ctypes.c_uint) == 2
    cuda.launch(
        cuda.function(module := cuda.module(FILL), "fill"),
        host,
        ctypes.c_uint32(5),
        block=(4, 1, 1),
    )
    cuda.cuCtxSynchronize()
    assert list((ctypes.c_uint32 * 4).from_address(host)) == [5, 6, 7, 8]
    cuda.cuModuleUnload(module)
    cuda.cuMemFreeHost(host)


def test_registered_memory(cuda: Driver) -> None:
    mine = ctypes.create_string_buffer(3 * PAGE)
    start = ctypes.addressof(mine)
    assert cuda.code.cuMemHostGetDevicePointer(ctypes.byref(ctypes.c_uint64()), start, 0) == 1
    assert cuda.code.cuMemHostUnregister(start) == 713
    cuda.cuMemHostRegister(start, PAGE, 0)
    assert cuda.code.cuMemHostRegister(start, PAGE, 0) == 712
    assert cuda.code.cuMemHostRegister(start + 8, 8, 0) == 712
    assert cuda.get("cuMemHostGetDevicePointer", start + 8, 0) == start + 8
    assert cuda.code.cuMemFreeHost(start) == 1
    cuda.cuMemHostUnregister(start)
    assert cuda.code.cuMemHostRegister(0x1000, 8, 0) == 1  # nothing is mapped there
    assert cuda.code.cuMemHostRegister(start, 0, 0) == 1


def test_managed_memory_is_the_hosts_too(cuda: Driver) -> None:
    address = cuda.get("cuMemAllocManaged", 16, 1)
    cuda.cuMemsetD32(address, 9, 4)
    cuda.cuCtxSynchronize()
    assert list((ctypes.c_uint32 * 4).from_address(address)) == [9] * 4
    assert cuda.live()["nbytes"] == 16
    cuda.cuMemFree(address)


# -- what an address is


def test_pointer_attributes(cuda: Driver) -> None:
    address, host = cuda.alloc(64), cuda.get("cuMemAllocHost", 64)

    def attribute(which: int, pointer: int) -> int:
        out = ctypes.c_uint64()
        cuda.cuPointerGetAttribute(ctypes.byref(out), which, pointer)
        return out.value

    assert attribute(2, address + 3) == 2
    assert attribute(2, host) == 1
    assert attribute(1, address) == cuda.contexts[0]
    assert attribute(11, address + 3) == address
    assert attribute(12, address + 3) == 64
    assert cuda.code.cuPointerGetAttribute(ctypes.byref(ctypes.c_uint64()), 2, 0x1234) == 1
    base, nbytes = ctypes.c_uint64(), ctypes.c_uint64()
    cuda.cuMemGetAddressRange(ctypes.byref(base), ctypes.byref(nbytes), address + 9)
    assert (base.value, nbytes.value) == (address, 64)
    assert cuda.code.cuMemGetAddressRange(ctypes.byref(base), None, address + 64) == 500
    cuda.cuMemFree(address)
    cuda.cuMemFreeHost(host)


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


def test_kernels_reach_the_other_device_after_peer_access(load_driver: Load) -> None:
    cuda = load_driver()
    cuda.start()
    assert cuda.get("cuDeviceCanAccessPeer", 0, 1, kind=ctypes.c_int) == 1
    assert cuda.get("cuDeviceCanAccessPeer", 0, 0, kind=ctypes.c_int) == 0
    there = cuda.use(1)
    far = cuda.alloc(64)
    here = cuda.use(0)
    fill = cuda.function(cuda.module(FILL), "fill")
    assert cuda.code.cuCtxEnablePeerAccess(here, 0) == 201
    assert cuda.code.cuCtxDisablePeerAccess(there) == 705
    cuda.cuCtxEnablePeerAccess(there, 0)
    assert cuda.code.cuCtxEnablePeerAccess(there, 0) == 704
    cuda.launch(fill, far, ctypes.c_uint32(1), block=(16, 1, 1))
    cuda.cuCtxSynchronize()
    assert cuda.words(far, 3) == (1, 2, 3)
    cuda.cuCtxDisablePeerAccess(there)
    cuda.launch(fill, far, ctypes.c_uint32(1))
    assert cuda.code.cuCtxSynchronize() == 700


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
