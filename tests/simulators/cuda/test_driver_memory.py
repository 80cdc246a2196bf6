"""Memory: what may be allocated, copied and freed, against a model of plain bytes."""

import ctypes
import threading

import pytest
from driver_calls import OUT_OF_MEMORY


def test_frees_count_until_their_stream_was_waited_for(load_driver):
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


def test_what_may_not_be_freed(cuda):
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


def test_fresh_memory_is_not_zero(cuda):
    address = cuda.alloc(64)
    assert cuda.read(address, 64) != bytes(64)
    cuda.cuMemFree(address)


@pytest.mark.parametrize(("offset", "nbytes"), [(0, 65), (64, 1), (1, 64), (0, 1 << 40), (8, -1)])
def test_copies_out_of_bounds(cuda, offset, nbytes):
    address, other = cuda.alloc(64), cuda.alloc(128)
    host = ctypes.create_string_buffer(128)
    cuda.cuMemsetD8(address, 7, 64)
    at = address + offset
    codes = [
        cuda.code.cuMemcpyHtoD(at, host, nbytes), cuda.code.cuMemcpyDtoH(host, at, nbytes),
        cuda.code.cuMemcpyDtoD(at, other, nbytes), cuda.code.cuMemcpyDtoD(other, at, nbytes),
        cuda.code.cuMemcpy(other, at, nbytes), cuda.code.cuMemcpyHtoDAsync(at, host, nbytes, 0),
        cuda.code.cuMemsetD8(at, 1, nbytes), cuda.code.cuMemsetD32(at - offset, 1, 17),
    ]  # fmt: skip
    assert codes == [1] * 8
    assert cuda.read(address, 64) == b"\7" * 64
    cuda.cuMemFree(address)
    cuda.cuMemFree(other)


# -- two devices


def test_pageable_memory_is_read_late_on_request(cuda):
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
