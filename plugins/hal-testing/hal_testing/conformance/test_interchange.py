"""Test memory shared with other libraries: promises B9 and B12."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hal_core as hal
from hal_testing.conformance.kernels import add_one
from hal_testing.conformance.raw import buffer_of, pattern, read
from hal_testing.kit.abilities import need_host_visible, need_spec

HOST = (1, 0)  # DLPack's number for host memory
PINNED = hal.BufferSpec(host=True)


class Consumer:
    """A buffer as a DLPack consumer asks for it, with options of the test's choice."""

    def __init__(self, buffer: hal.Buffer, **options: Any) -> None:
        self.buffer, self.options = buffer, options

    def __dlpack__(self, **given: Any) -> Any:
        # The options of the test win over those that numpy or hal-core gives.
        return self.buffer.__dlpack__(**{**given, **self.options})

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.options.get("dl_device") or self.buffer.__dlpack_device__()


class TestInterchange:
    def test_B9_a_view_of_the_host_keeps_the_memory(self, device: hal.Compiled) -> None:
        need_host_visible(device)
        made = buffer_of(device, pattern(4096))
        seen = made.as_memoryview()
        array = np.from_dlpack(made)
        made.deallocate()
        # If the memory was freed with the buffer, one of these gets it and overwrites it.
        others = [buffer_of(device, bytes(4096)) for _ in range(8)]
        assert bytes(seen) == pattern(4096) and array.tobytes() == pattern(4096)
        del others, seen, array

    def test_B9_a_buffer_is_a_python_buffer(self, device: hal.Compiled) -> None:
        made: Any = buffer_of(device, pattern(4096), hal.int32)
        there = made.view(512, hal.int32, 1024)
        # Before 3.12 no class written in Python can be a buffer.
        refusal = BufferError if sys.version_info >= (3, 12) else TypeError
        if refusal is TypeError or not device.info.host_visible:
            with pytest.raises(refusal, match=r"numpy\(\)|bytes-like"):
                memoryview(there)
            return
        seen = memoryview(there)
        del there
        assert (seen.format, seen.shape, seen.readonly) == ("i", (512,), False)
        made.deallocate()
        others = [buffer_of(device, bytes(4096)) for _ in range(8)]
        assert bytes(seen) == pattern(4096)[1024:3072]
        del others

    def test_B9_the_host_and_kernels_see_each_other(self, device: hal.Compiled) -> None:
        need_host_visible(device)
        made = hal.Buffer(device, 64, hal.int32).allocate().fill(0)
        seen = np.from_dlpack(made)  # numpy before 2.1 makes it read-only
        np.asarray(made)[:] = range(64)
        device.compile(add_one)(made, vals=(64,), threads=64)
        device.synchronize()
        assert seen.tolist() == list(range(1, 65))

    def test_B9_the_host_sees_the_work_of_queues(self, device: hal.Compiled) -> None:
        spec = PINNED if "host" in device.allocator.honours else hal.BufferSpec()
        ways: list[Any] = [lambda made: np.from_dlpack(Consumer(made, dl_device=HOST))]
        if device.allocator._host_sees(spec):
            ways += [np.asarray, np.from_dlpack, hal.Buffer.as_memoryview]
        for way in ways:
            made, queue, gate = buffer_of(device, bytes(64), spec=spec), device.queue(), hal.Event()
            threading.Timer(0.1, gate.set).start()
            made.fill(7, queue=queue.wait(gate))
            assert bytes(way(made)) == b"\7" * 64, "an export waits for queues"

    def test_B9_dlpack_takes_other_arrays(self, device: hal.Compiled) -> None:
        numbers = np.arange(100, dtype=np.int32)
        made = hal.Buffer.from_dlpack(numbers, device, copy=True)
        numbers[:] = 0
        assert read(made) == np.arange(100, dtype=np.int32).tobytes()

    def test_B9_dlpack_shares_device_memory(self, device: hal.Compiled) -> None:
        if device.allocator.dlpack_device is None:
            pytest.skip("it declares no memory that DLPack has a name for (dlpack_device)")
        made = buffer_of(device, pattern(4096), hal.int32)
        there = hal.Buffer.from_dlpack(made.view(512, hal.int32, 1024), device)
        made.deallocate()
        others = [buffer_of(device, bytes(4096)) for _ in range(8)]
        assert (there.size, there.dtype) == (512, hal.int32)
        assert read(there) == pattern(4096)[1024:3072], "the export keeps the memory"
        del others

    def test_B9_dlpack_brings_memory_to_the_host(self, device: hal.Compiled) -> None:
        made = buffer_of(device, pattern(4096), hal.int32)
        array = np.from_dlpack(Consumer(made.view(512, hal.int32, 1024), dl_device=HOST))
        if not device.info.host_visible:
            # The array is a copy here, so a later write must not reach it.
            made.fill(0)
        made.deallocate()
        others = [buffer_of(device, bytes(4096)) for _ in range(8)]
        assert array.shape == (512,) and array.dtype == np.int32
        assert array.tobytes() == pattern(4096)[1024:3072]
        del others

    def test_B9_dlpack_copies_where_a_copy_is_asked_for(self, device: hal.Compiled) -> None:
        places: list[tuple[int, int] | None] = [HOST]
        if device.allocator.dlpack_device is not None:
            places.append(None)
        for place in places:
            made = buffer_of(device, pattern(4096))
            options = {"copy": True} | ({"dl_device": place} if place else {})
            there = hal.Buffer.from_dlpack(Consumer(made, **options), device)
            made.fill(0)
            device.synchronize()
            assert read(there) == pattern(4096)

    def test_B9_dlpack_makes_no_copy_that_is_refused(self, device: hal.Compiled) -> None:
        made = buffer_of(device, pattern(4096))
        if device.info.host_visible:
            array = np.from_dlpack(Consumer(made, dl_device=HOST, copy=False))
            made.fill(1)
            device.synchronize()
            assert array.tobytes() == b"\1" * 4096
        else:
            with pytest.raises(BufferError, match="copy"):
                made.__dlpack__(dl_device=HOST, copy=False)
        # That the host sees the device's memory does not mean that the device sees the host's.
        if not (device.info.host_visible and device.allocator.wraps_addresses):
            with pytest.raises(BufferError, match="copy"):
                hal.Buffer.from_dlpack(np.zeros(4, "i4"), device, copy=False)

    def test_B9_dlpack_goes_to_no_device_that_it_is_not_of(self, device: hal.Compiled) -> None:
        made = buffer_of(device, pattern(64))
        with pytest.raises(BufferError, match=r"copy_from"):
            # DLPack's number for a kind of device that no backend has.
            made.__dlpack__(dl_device=(14, 7))

    def test_B12_numpy_sees_it_or_is_told_what_to_call(self, device: hal.Compiled) -> None:
        made = buffer_of(device, pattern(16), hal.float32)
        if device.info.host_visible:
            seen = np.asarray(made)
            assert seen.dtype == np.float32 and seen.tobytes() == pattern(16)
        else:
            with pytest.raises(hal.Unsupported, match=r"numpy\(\)"):
                np.asarray(made)
            with pytest.raises(hal.Unsupported):
                made.as_memoryview()
            if device.allocator.dlpack_device is None:
                with pytest.raises(hal.Unsupported):
                    made.__dlpack_device__()
        assert made.numpy().tobytes() == pattern(16)

    def test_B12_pinned_memory_is_seen_by_the_host_or_refused(self, device: hal.Compiled) -> None:
        need_spec(device, "host")
        made = buffer_of(device, pattern(4096), hal.int32, PINNED)
        assert made.numpy().tobytes() == pattern(4096)
        if device.allocator._host_sees(PINNED):
            assert np.asarray(made[512:]).tobytes() == pattern(4096)[2048:]
            return
        with pytest.raises(hal.NotShareable, match=r"numpy\(\)"):
            np.asarray(made)

    @pytest.mark.parametrize("way", [np.asarray, np.from_dlpack])
    def test_B9_pinned_memory_is_shared_with_the_host(
        self, device: hal.Compiled, way: Callable[[Any], Any]
    ) -> None:
        need_spec(device, "host")
        need_host_visible(device, PINNED)
        made = hal.Buffer(device, 64, hal.int32, PINNED).allocate().fill(-1)
        np.asarray(made)[:] = range(64)  # an export waits for queued work
        device.compile(add_one)(made, vals=(64,), threads=64)
        seen = way(made[16:])
        assert seen.tolist() == list(range(17, 65))
        device.compile(add_one)(made, vals=(64,), threads=64)
        there = hal.Buffer(device, 64, hal.int32).copy_from(made)
        device.synchronize()
        assert seen.tolist() == list(range(18, 66))
        assert there.numpy().tolist() == list(range(2, 66))

    @pytest.mark.parametrize("way", [np.asarray, np.from_dlpack])
    def test_B9_an_array_keeps_pinned_memory(
        self, device: hal.Compiled, way: Callable[[Any], Any]
    ) -> None:
        need_spec(device, "host")
        need_host_visible(device, PINNED)
        made = buffer_of(device, pattern(4096), spec=PINNED)
        seen = way(made[1024:])
        made.deallocate()
        others = [buffer_of(device, bytes(4096), spec=PINNED) for _ in range(8)]
        device.synchronize()
        assert seen.tobytes() == pattern(4096)[1024:]
        del others

    def test_B9_dlpack_has_pinned_memory_on_the_host_and_on_the_device(
        self, device: hal.Compiled
    ) -> None:
        need_spec(device, "host")
        need_host_visible(device, PINNED)
        made = buffer_of(device, pattern(4096), spec=PINNED)
        host = np.from_dlpack(Consumer(made, dl_device=HOST, copy=False))
        copied = np.from_dlpack(Consumer(made, dl_device=HOST, copy=True))
        shared = [made]
        if device.allocator.dlpack_pinned:
            shared.append(hal.Buffer.from_dlpack(made, device, copy=False))
        if device.allocator.dlpack_device:
            there = Consumer(made, dl_device=device.allocator.dlpack_device, copy=False)
            shared.append(hal.Buffer.from_dlpack(there, device))
        for number, one in enumerate(shared):
            one.fill(number)
            device.synchronize()
            assert host.tobytes() == made.numpy().tobytes() == bytes([number]) * 4096
        assert copied.tobytes() == pattern(4096)
