"""A program that makes each driver call of a backend with streams at least once."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

import hal_core as hal
from hal_streams import staging
from hal_testing.conformance.kernels import add_one


class Family(NamedTuple):
    """The differences between two such backends."""

    name: str
    forget: Callable[[], None]  # that the driver was started
    leave: Callable[[], None]  # makes another context current, as another library may
    more: Callable[[hal.Compiled, hal.Buffer], None] = lambda device, y: None  # calls of its own


class Theirs:
    """An array of another library, on a stream of its own."""

    def __init__(self, buffer, stream):
        self.__cuda_array_interface__ = {**buffer.__cuda_array_interface__, "stream": stream}


def same(got, expected):
    if got != expected:
        raise AssertionError(f"{got!r} is not {expected!r}")


def everything(family):
    """Run from the start of the driver to the closing of the last device."""
    family.forget()
    hal.Device.refresh()
    with hal.Device[family.name] as device:
        y = hal.Buffer(device, 1000, hal.int32, hal.BufferSpec(zero=True)).allocate()
        _launch(device, y)
        _copy(device, y, family.leave)
        _take(device, y)
        family.more(device, y)
        _queue(device, y)
        same(hal.Queue.wrap(int(vars(device)["stream"]), device).closed, False)
        _allocate(device, y)
        with hal.Device[f"{family.name}:1"] as other:
            there = hal.Buffer(other, 1000, hal.int32).copy_from(y)
            same(there.numpy().tolist(), [2] * 1000)
            there.deallocate()
        y.deallocate()


def _launch(device, y):
    program = device.compile(add_one)
    program(y, vals=(1000,), threads=1000)
    program(y, vals=(1000,), threads=1000, wait=True)
    program(y, vals=(0,), grid=1, block=32, shared=60_000)
    device.synchronize()
    device.synchronize(timeout=10)  # asks once, as the stream is done
    _replay(device, program, y)
    program.unload()


def _replay(device, program, y):
    x = hal.Buffer(device, 1000, hal.int32).allocate()
    options = hal.BufferSpec(image=hal.Image(250), nolru=True)
    image = hal.Buffer(device, 1000, hal.int32, options).copyin(bytes(4000))
    with device.capture() as graph:
        x.fill(5)
        program(y, vals=(0,), threads=1000)
        x.copy_from(y)
        image.copy_from(y)
    graph.replay()
    graph.replay({x: hal.Buffer(device, 1000, hal.int32).allocate()})
    graph[1].update(vals=(0,), threads=500)
    graph.replay()
    graph.nodes.clear()  # the graph is a cycle, which would keep the memory
    same(image.numpy()[-1, -1], 2)
    for made in (x, image):
        made.deallocate()


def _copy(device, y, leave):
    pinned = hal.Buffer(device, 1000, hal.int32, hal.BufferSpec(host=True, nolru=True))
    pinned.allocate().copy_from(y)
    same(pinned.numpy().tolist(), [2] * 1000)
    large = hal.Buffer.from_numpy(np.arange(1 << 19, dtype="i4"), device)
    same(large.numpy()[-1], (1 << 19) - 1)
    for dtype in (hal.uint8, hal.uint16, hal.uint32, hal.float64):
        part = large.view(500, dtype=dtype).fill(7)
        same(part.numpy()[-1], 7)
    leave()
    part.fill(1)
    held, staging.HELD_COPIES = staging.HELD_COPIES, 1
    try:
        for _ in range(2):
            y.view(1).copyin(bytes(4))
    finally:
        staging.HELD_COPIES = held
    y.view(1).fill(2)
    for made in (pinned, large):
        made.deallocate()


def _take(device, y):
    address = int(y.__cuda_array_interface__["data"][0])
    options = hal.BufferSpec(external_ptr=address)
    same(hal.Buffer(device, 1000, hal.int32, options).allocate().numpy()[0], 2)
    stream = 2  # the per-thread default stream
    same(hal.Buffer.wrap(Theirs(y, stream), device).size, 1000)


def _queue(device, y):
    queue = device.queue()
    try:
        same(y.view(1).fill(2, queue=queue).wait(10), True)
    finally:
        queue.close()


def _allocate(device, y):
    with pytest.raises(hal.OutOfMemory):
        hal.Buffer(device, device.info.memory_nbytes - 1000, hal.uint8).allocate()
    pool, device.allocator.pool = device.allocator.pool, None  # a driver without pools
    try:
        hal.Buffer(device, 77, hal.uint8, hal.BufferSpec(nolru=True)).allocate().deallocate()
    finally:
        device.allocator.pool = pool
