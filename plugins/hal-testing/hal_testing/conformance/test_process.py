"""Test threads and processes: promises X1 and X2, P8 among threads, and P9."""

from __future__ import annotations

import contextlib
import pickle
import random
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import hal_core as hal
from hal_testing.conformance.forked import findings_of_child
from hal_testing.conformance.kernels import add_one, copier, count_up
from hal_testing.conformance.raw import buffer_of, pattern, read
from hal_testing.conformance.slow import SlowCounter
from hal_testing.conformance.threads import in_threads
from hal_testing.kit.abilities import need_host_visible

THREADS = 8
AT_ONCE = 30.0  # seconds within which a child must be refused


@hal.kernel
def times_and_add(
    y: hal.Ptr[hal.uint32], factor: hal.uint32, term: hal.uint32, n: hal.int32
) -> None:
    """Multiply and add, which shows the order of two launches."""
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] * factor + term


class TestProcess:
    def test_X1_threads_with_buffers_of_their_own(self, device: hal.Compiled) -> None:
        program = device.compile(add_one)

        def work(number: int) -> None:
            for turn in range(10):
                data = np.arange(turn, turn + 300, dtype=np.int32) * number
                made = buffer_of(device, data.tobytes(), hal.int32)
                for _ in range(3):
                    program(made, vals=(300,), threads=300)
                other = hal.Buffer(device, 300, hal.int32).copy_from(made)
                assert read(other) == (data + 3).tobytes()

        in_threads(work, THREADS)

    def test_X1_threads_share_a_program_and_not_its_arguments(self, device: hal.Compiled) -> None:
        program, sizes = device.compile(count_up), range(1, 200, 17)

        def work(number: int) -> None:
            made = hal.Buffer(device, 200, hal.int32).allocate()
            for turn, size in enumerate(sizes):
                start = number * 1_000_000 + turn
                made.fill(-1)
                # Two sizes of blocks, so that threads differ in geometry too.
                program(made, vals=(start, size), threads=size, block=16 << number % 2)
                # Arguments of another thread would show as its start or its size.
                expected = [*range(start, start + size), *[-1] * (200 - size)]
                assert read(made) == np.array(expected, np.int32).tobytes()

        in_threads(work, THREADS)

    def test_X1_threads_compile_one_kernel(self, device: hal.Compiled) -> None:
        @hal.kernel
        def fresh(y: hal.Ptr[hal.int32], n: hal.int32) -> None:
            i = hal.global_idx(0)
            if i < n:
                y[i] = 7 * i

        programs = list[hal.Program]()

        def work(number: int) -> None:
            programs.append(device.compile(fresh))
            made = hal.Buffer(device, 100, hal.int32).allocate()
            programs[-1](made, vals=(100,), threads=100)
            assert read(made) == np.arange(0, 700, 7, dtype=np.int32).tobytes()

        in_threads(work, THREADS)
        assert len(set(map(id, programs))) == 1

    def test_X1_threads_read_one_buffer(self, device: hal.Compiled) -> None:
        data = pattern(4000)
        shared, program = buffer_of(device, data), device.compile(copier(hal.uint8))

        def work(number: int) -> None:
            for turn in range(10):
                start = 16 * number + turn
                view = shared.view(1000, offset=start)
                made = hal.Buffer(device, 1000, hal.uint8).allocate()
                program(made, view, vals=(1000,), threads=1000)
                assert read(made) == read(view) == data[start : start + 1000]

        in_threads(work, THREADS)
        assert read(shared) == data

    def test_X1_threads_allocate_and_free(self, device: hal.Compiled) -> None:
        before = device.allocator.statistics()

        def work(number: int) -> None:
            # Each thread has its own steps, the same ones at each run.
            draw, out = random.Random(number), list[tuple[hal.Buffer, bytes]]()
            for turn in range(60):
                data = pattern(draw.choice((1, 256, 300, 5000, 66_000)), number << 16 | turn)
                out.append((buffer_of(device, data), data))
                if len(out) > 6:
                    made, data = out.pop(draw.randrange(len(out)))
                    assert read(made) == data, "two threads were given one block"
                    made.deallocate()

        in_threads(work, THREADS)
        after = device.allocator.statistics()
        assert (after.live, after.current) == (before.live, before.current)
        assert after.hits + after.misses - before.hits - before.misses == THREADS * 60

    def test_X1_threads_open_and_wait(self, device: hal.Compiled) -> None:
        found = list[hal.Compiled]()

        def work(number: int) -> None:
            for _ in range(20):
                found.append(hal.Device[device.name])
                assert device.synchronize() is True

        in_threads(work, THREADS)
        assert all(one is device for one in found)

    def test_P8_launches_and_copies_of_many_threads_keep_their_order(
        self, device: hal.Compiled
    ) -> None:
        """Record the order of the calls by a lock, and compare with the same steps on the host."""
        program, slow, size = device.compile(times_and_add), SlowCounter(device), 64
        shared, spare = (hal.Buffer(device, size, hal.uint32).allocate().fill(1) for _ in "ab")
        expected, other = np.ones(size, np.uint32), np.ones(size, np.uint32)
        lock, steps = threading.Lock(), list[str]()

        def work(number: int) -> None:
            draw = random.Random(number)
            for _ in range(15):
                # launch, copy, fill, copyin, copy back (k), slow launch. The lock makes the order
                # of the calls the order of `steps`.
                step, value = draw.choice("llllcfiks"), draw.randrange(1 << 32)
                with lock:
                    steps.append(step)
                    # The factor is odd, so that it loses no bits of the steps before.
                    if step == "l":
                        program(shared, vals=(value | 1, number, size), threads=size)
                        expected[:] = expected * np.uint32(value | 1) + np.uint32(number)
                    elif step == "c":
                        spare.copy_from(shared)
                        other[:] = expected
                    elif step == "k":
                        shared.view(32).copy_from(spare.view(32, offset=128))
                        expected[:32] = other[32:]
                    elif step == "f":
                        spare.view(9, offset=20).fill(value)
                        other[5:14] = value
                    elif step == "i":
                        data = pattern(64, value)
                        shared.view(16, offset=64).copyin(data)
                        expected[16:32] = np.frombuffer(data, np.uint32)
                    elif len(steps) % 3 == 0:
                        slow(shared, value)
                        expected[:] = np.frombuffer(slow.counted(value), np.uint32)

        in_threads(work, THREADS)
        assert read(shared) == expected.tobytes(), steps
        assert read(spare) == other.tobytes(), steps

    def test_P10_a_device_opens_and_closes_many_times(self, device: hal.Compiled) -> None:
        """Open and close more often than drivers have contexts."""
        device.close()
        for turn in range(20):
            with hal.Device[device.name] as opened:
                made = hal.Buffer(opened, 100, hal.int32).allocate()
                opened.compile(count_up)(made, vals=(turn, 100), threads=100)
                assert read(made) == _counted(turn)
            # A device that cannot be closed after a failure could never be opened again.
            assert opened.closed

    @pytest.mark.parametrize("wait", ["synchronize", "copyout", "wait=True", "asarray", "close"])
    def test_P9_a_failure_on_the_device_surfaces_at_the_next_wait(
        self, device: hal.Compiled, hal_fault: Callable[[hal.Program], None], wait: str
    ) -> None:
        if wait == "asarray":
            need_host_visible(device)
        device.close()  # the failure may ruin the open device, so this test opens its own
        opened = hal.Device[device.name]
        program = opened.compile(count_up)
        made = buffer_of(opened, bytes(400), hal.int32)
        hal_fault(program)
        program(made, vals=(5, 100), threads=100)
        with pytest.raises(hal.DeviceFault, match=count_up.name) as caught:
            if wait == "synchronize":
                opened.synchronize()
            elif wait == "copyout":
                made.copyout(bytearray(400))
            elif wait == "asarray":
                np.asarray(made)
            elif wait == "close":
                opened.close()
            else:
                program(made, vals=(6, 100), threads=100, wait=True)
        assert opened.name in str(caught.value)
        with contextlib.suppress(hal.DeviceFault):
            opened.close()
        assert opened.closed
        again = hal.Device[device.name]
        assert read(buffer_of(again, pattern(100))) == pattern(100), "not after it was opened again"

    def test_X2_a_child_works_or_is_refused_at_once(self, device: hal.Compiled) -> None:
        made, program = buffer_of(device, bytes(400), hal.int32), device.compile(count_up)
        program(made, vals=(5, 100), threads=100)
        device.synchronize()
        works = "subprocess_fork" in device.info.capabilities
        try_it = _found_working if works else _found_not_refused
        assert findings_of_child(lambda: try_it(device, made, program)) == []
        assert read(made) == _counted(5), "the child changed the parent's memory"
        program(made, vals=(6, 100), threads=100)
        assert read(made) == _counted(6), "the parent does not work after a fork"

    def test_X2_a_child_of_a_family_that_was_only_listed(self, device: hal.Compiled) -> None:
        device.close()
        # The driver is started now, but no device is open.
        hal.Device.devices(device.family)
        try:
            works = "subprocess_fork" in device.info.capabilities
            found = findings_of_child(lambda: _found_in_listed(device.name, works))
            assert found == []
        finally:
            assert not hal.Device[device.name].closed


def _counted(start: int) -> bytes:
    return np.arange(start, start + 100, dtype=np.int32).tobytes()


# -- in the child


def _found_working(device: hal.Compiled, made: hal.Buffer, program: hal.Program) -> list[str]:
    """Check that all works in a child that may use the device, of which it has its own copy."""
    assert read(made) == _counted(5), "the parent's data is not there"
    program(made, vals=(7, 100), threads=100)
    assert read(made) == _counted(7), "the parent's program does not work"
    opened, copy = hal.Device[device.name], copier(hal.int32)
    start = opened.allocator.statistics()
    other = hal.Buffer(device.name, 100, hal.int32).allocate()
    assert opened.allocator.statistics().live == start.live + 1
    opened.compile(copy)(other, made, vals=(100,), threads=100)
    assert read(other) == _counted(7), "a new program does not work on the parent's buffer"
    for twin in (other, pickle.loads(pickle.dumps(made))):
        program(twin, vals=(8, 100), threads=100)
        assert read(twin) == _counted(8), "the parent's program does not work on a new buffer"
    with opened.capture() as graph:
        made.fill(3)
    assert len(graph.nodes) == 1 and read(made) == _counted(7), "the parent's buffer is captured"
    made.fill(4, queue=opened.queue()).wait()
    assert read(made) == np.full(100, 4, np.int32).tobytes(), "a new queue has the parent's buffer"
    data = np.ones(100, np.int32)
    parts = [hal.MultiBuffer.from_numpy(data, [one]) for one in (device, device.name)]
    hal.launch(copy, *parts, vals=(100,), threads=100)
    # Large enough for a device that splits launches over threads, which a fork does not copy.
    slow = SlowCounter(opened, 100_000)
    wide = slow.buffer(opened)
    slow(wide, 3)
    assert read(wide) == slow.counted(3), "long launches do not work"
    made.deallocate()
    opened.close()
    assert device.closed and not hal.Device[device.name].closed
    return []


def _found_not_refused(device: hal.Compiled, made: hal.Buffer, program: hal.Program) -> list[str]:
    """Return the calls that do not raise ForkError, and the time if all took too long."""
    name = device.name
    unused = hal.Buffer
    uses: dict[str, Callable[[], object]] = {
        "Device[name]": lambda: hal.Device[name],
        "Device[another name]": lambda: hal.Device[name.lower()],
        "Buffer(name)": lambda: unused(name, 4, hal.int32),
        "allocate": lambda: unused(device, 4, hal.int32).allocate(),
        "copyin": lambda: made.copyin(bytes(400)),
        "copyout": lambda: made.copyout(bytearray(400)),
        "fill": lambda: made.fill(3),
        "copy_from": lambda: made.copy_from(made),
        "view": lambda: made.view(3).numpy(),
        "pickle": lambda: pickle.dumps(made),
        "launch": lambda: program(made, vals=(5, 100), threads=100),
        "another launch": lambda: program(made, vals=(5, 99), threads=99, wait=True),
        "compile": lambda: device.compile(add_one),
        "synchronize": device.synchronize,
        "record": lambda: device.default_queue.record(),
        "synchronize(timeout)": lambda: device.synchronize(0.1),
        "free_cache": lambda: device.allocator.free_cache(),
    }
    # A driver that does not survive a fork hangs rather than fails, so the time counts too.
    found, begin = list[str](), time.monotonic()
    for what, use in uses.items():
        try:
            found.append(f"{what} is not refused: {use()!r}")
        except hal.ForkError as error:
            if device.family not in str(error):
                found.append(f"{what}: the text names no device: {error}")
        except Exception as error:
            found.append(f"{what} raises another error: {error!r}")
    if name in hal.Device.get_available_devices():
        found.append("it is listed as available")
    made.deallocate()
    device.close()
    if time.monotonic() - begin > AT_ONCE:
        found.append(f"refused after {time.monotonic() - begin:.0f} seconds")
    return found


def _found_in_listed(name: str, works: bool) -> list[str]:
    try:
        opened = hal.Device[name]
    except hal.ForkError:
        return ["refused, though it declares subprocess_fork"] if works else []
    if not works:
        return [f"{opened!r} was opened, and its driver does not survive a fork"]
    read(buffer_of(opened, pattern(100)))
    return []
