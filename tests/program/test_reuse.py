"""A7 on every backend: a block is not handed out again while queued work may still use it."""

import struct
import threading
import time
from functools import partial

import numpy as np
import pytest
from in_threads import results
from installed import installed, opened

import hal_core as hal

SIZE = 64


@hal.kernel
def slow(y: hal.Ptr[hal.float32], n: hal.int32) -> None:
    """Write a number that no host writes, `n` times."""
    i = hal.global_idx(0)
    s = hal.float32(-1.0)
    for _ in range(n):
        s = min(s * 0.5 - 0.5, -0.5)
        y[i] = s


@pytest.fixture(params=installed("CPU", "OPENCL"))
def device(request):
    with opened(request.param) as device:
        yield device


SPECS = [None, hal.BufferSpec(nolru=True)]


@pytest.mark.parametrize("spec", SPECS, ids=["cached", "nolru"])
@pytest.mark.parametrize("threads", [1, 4])
def test_A7_a_block_freed_behind_a_launch(device, threads, spec):
    program = device.compile(slow)

    def rounds(seed):
        for turn in range(25):
            freed = hal.empty(SIZE, hal.float32, device, spec)
            program(freed, vals=(200_000,), threads=SIZE)
            freed.deallocate()
            data = np.full(SIZE, 100 * seed + turn, "f4")
            made = [hal.Buffer.from_numpy(data, device, spec) for _ in range(2)]
            if turn % 3 == 0:
                device.synchronize()
            for buffer in made:
                assert np.array_equal(buffer.numpy(), data)

    results(*(partial(rounds, seed) for seed in range(threads)))
    assert device.synchronize()


def begun(device, work, *args):
    """Return a thread whose work is known to the device as running, or has ended."""
    thread = threading.Thread(target=work, args=args)
    thread.start()
    while thread.is_alive() and not device.in_flight.work:
        time.sleep(0.0002)
    return thread


ON_CPU = installed("CPU")  # where work runs inside of its call


@pytest.mark.parametrize("device", ON_CPU, indirect=True)
@pytest.mark.parametrize("spec", SPECS, ids=["cached", "nolru"])
@pytest.mark.parametrize("size", [SIZE, 1 << 18], ids=["small", "pages"])
def test_A7_a_block_freed_while_another_thread_launches(device, spec, size):
    program = device.compile(slow)
    program(hal.zeros(size, hal.float32, device), vals=(1,), threads=size, block=32)
    turns = 3_000_000 * SIZE // size
    for turn in range(8):
        freed = hal.empty(size, hal.float32, device, spec)
        views = [freed.view(size // 2, offset=size)] if turn % 2 else [freed]

        def launch(target=views[0]):
            program(target, vals=(turns,), threads=target.size, block=32)

        thread = begun(device, launch)
        freed.deallocate()
        data = np.full(size, turn, "f4")
        made = [hal.Buffer.from_numpy(data, device, spec) for _ in range(3)]
        thread.join()
        device.synchronize()
        for buffer in made:
            assert np.array_equal(buffer.numpy(), data)
        assert device.allocator.statistics().current == 3 * size * 4
        del made, buffer
    device.allocator.free_cache()
    assert device.allocator._held == 0


def test_A7_two_launches_that_use_it_keep_it_until_both_ended():
    """Launches end one after the other, an order that real threads seldom give."""
    running_module = pytest.importorskip(
        "hal_cpu.in_flight", reason="hal-cpu is not installed here"
    )
    running = running_module.InFlight()
    given = []

    class Allocator:
        def __init__(self):
            self._returned = []

        def free(self, *block):
            if not running.defer(self, *block):
                given.append(block)

        def _settle_unless_busy(self):
            while self._returned:
                self.free(*self._returned.pop())

    def end(work):
        del running.work[id(work)]
        running.give_back()

    allocator, spec = Allocator(), hal.BufferSpec()
    first, second = (struct.pack("@2Q", 5, address) for address in (1000, 1099))
    running.work = {id(first): (first, 1), id(second): (second, 2)}
    for block in ((900, 100, spec), (1100, 8, spec), (1000, 100, spec)):
        allocator.free(*block)
    assert given == [(900, 100, spec), (1100, 8, spec)]
    end(first)
    assert len(given) == 2
    end(second)
    assert given[2:] == [(1000, 100, spec)] and not running.work
    with running.using(1000):
        allocator.free(1000, 8, spec)
        assert len(given) == 3
    assert given[3:] == [(1000, 8, spec)]


COPIES = {
    "copyin": lambda x, y, host: x.copyin(host), "copyout": lambda x, y, host: x.copyout(host),
    "copy_from": lambda x, y, host: y.copy_from(x), "copy_to": lambda x, y, host: x.copy_from(y),
    "fill": lambda x, y, host: x.fill(7),
}  # fmt: skip


@pytest.mark.parametrize("device", ON_CPU, indirect=True)
@pytest.mark.parametrize("copy", COPIES)
def test_A7_a_block_freed_while_another_thread_copies(device, copy):
    nbytes = 48 << 20
    spec = hal.BufferSpec(nolru=True)
    y = hal.zeros(nbytes, hal.uint8, device)
    for _ in range(3):
        x, host = hal.empty(nbytes, hal.uint8, device, spec).fill(1), bytearray(nbytes)
        thread = begun(device, COPIES[copy], x, y, host)
        x.deallocate()
        thread.join()
    del x
    assert device.allocator.statistics().current == nbytes
