"""Streams and events: order, and that nothing is ready before it is."""

import ctypes
import time

import pytest
from driver_calls import LEGACY, NOT_READY
from driver_kernels import FILL

NON_BLOCKING = 1
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
SLOW = 0.1


class Logged:
    """Host functions in streams, which say when they ran."""

    def __init__(self, cuda):
        self.cuda, self.seen, self.kept = cuda, [], []

    def add(self, name, stream, *, slow=0):
        def run(_):
            time.sleep(slow)
            self.seen.append(name)

        self.kept.append(HOST_FUNCTION(run))  # called later: it must live
        self.cuda.cuLaunchHostFunc(stream, self.kept[-1], None)


@pytest.fixture
def log(cuda):
    return Logged(cuda)


# Legacy order: the stream without a handle and the blocking ones wait for each other, both ways.
@pytest.mark.parametrize("flags", [0, NON_BLOCKING])
@pytest.mark.parametrize("legacy_first", [True, False])
def test_order_against_the_default_stream(cuda, log, flags, legacy_first):
    stream = cuda.stream(flags)
    order = [LEGACY, stream] if legacy_first else [stream, LEGACY]
    log.add("first", order[0], slow=SLOW)
    log.add("second", order[1])
    cuda.cuCtxSynchronize()
    assert log.seen == (["first", "second"] if flags == 0 else ["second", "first"])
    cuda.cuStreamDestroy(stream)


def test_events_are_not_ready_before_their_work(cuda):
    stream, start, end = cuda.stream(), cuda.event(), cuda.event()
    memory = cuda.alloc(64)
    fill = cuda.function(module := cuda.module(FILL), "fill")
    cuda.delay("cuLaunchKernel", SLOW)
    cuda.cuEventRecord(start, stream)
    cuda.launch(fill, memory, ctypes.c_uint32(3), stream=stream)
    cuda.cuEventRecord(end, stream)
    assert cuda.code.cuEventQuery(end) == NOT_READY
    assert cuda.code.cuStreamQuery(stream) == NOT_READY
    out = ctypes.c_float()
    assert cuda.code.cuEventElapsedTime(ctypes.byref(out), start, end) == NOT_READY
    cuda.cuEventSynchronize(end)
    assert cuda.code.cuEventQuery(end) == 0
    assert cuda.code.cuStreamQuery(stream) == 0
    cuda.cuEventElapsedTime(ctypes.byref(out), start, end)
    assert out.value >= SLOW * 1e3
    assert cuda.words(memory, 1) == (3,)
    for handle in (start, end):
        cuda.cuEventDestroy(handle)
    cuda.cuStreamDestroy(stream)
    cuda.cuModuleUnload(module)
    cuda.cuMemFree(memory)


# Pageable memory: read before the call returns, written before it returns. Pinned: later.
def test_when_host_memory_is_read_and_written(cuda):
    memory, stream, pinned = cuda.alloc(4), cuda.stream(), cuda.get("cuMemAllocHost", 4)
    pageable = ctypes.c_uint32(1)
    cuda.delay("cuMemcpyHtoDAsync", SLOW)
    cuda.cuMemcpyHtoDAsync(memory, ctypes.byref(pageable), 4, stream)
    pageable.value = 99
    cuda.cuMemcpyDtoHAsync(ctypes.byref(pageable), memory, 4, stream)
    assert pageable.value == 1
    word = ctypes.c_uint32.from_address(pinned)
    word.value = 2
    cuda.cuMemcpyHtoDAsync(memory, pinned, 4, stream)
    word.value = 3  # too early: the copy takes what it finds
    cuda.cuStreamSynchronize(stream)
    assert cuda.words(memory, 1) == (3,)
    cuda.cuMemFreeHost(pinned)
    cuda.cuStreamDestroy(stream)
    cuda.cuMemFree(memory)


def test_freeing_waits_for_the_work(cuda):
    memory, target, stream = cuda.alloc(4), cuda.alloc(4), cuda.stream()
    cuda.delay("cuMemsetD32Async", SLOW)
    cuda.cuMemsetD32Async(memory, 6, 1, stream)
    cuda.cuMemcpyDtoDAsync(target, memory, 4, stream)
    cuda.cuMemFree(memory)
    assert cuda.words(target, 1) == (6,)
    cuda.cuMemFree(target)
    cuda.cuStreamDestroy(stream)


def test_a_destroyed_handle_is_told_and_later_given_out_again(cuda):
    first = cuda.stream()
    cuda.cuStreamDestroy(first)
    assert cuda.code.cuStreamSynchronize(first) == 400
    assert cuda.code.cuStreamSynchronize(0x1234) == 400  # never a handle
    assert cuda.library.sim_stale() == b"cuStreamSynchronize 1\n"
    others = [cuda.stream() for _ in range(8)]
    assert first not in others
    for other in others:
        cuda.cuStreamDestroy(other)
    event = cuda.event()
    assert event == first
    assert cuda.code.cuStreamSynchronize(first) == 400  # it is an event's now
    assert cuda.library.sim_stale() == b"cuStreamSynchronize 2\n"
    cuda.cuEventDestroy(event)
