"""Test buffers: promises B1 to B14, except B9 and B12 (test_interchange), and F3, files."""

from __future__ import annotations

import array
import copy
import gc
import pickle
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import hal_core as hal
from hal_core.buffer import files
from hal_testing.conformance.kernels import add_one
from hal_testing.conformance.raw import SIZES, buffer_of, pattern, read
from hal_testing.plugin import External

DTYPES = [hal.int8, hal.uint16, hal.float32, hal.int64]
# For a buffer of 12 elements, which are 48 bytes: none, 12 (counted in elements), one too few, one
# too many, and 192 (48 elements).
OTHER_SIZES = (0, 12, 47, 49, 192)


class TestBuffer:
    def test_B1_construction_allocates_nothing(self, device: hal.Compiled) -> None:
        before = device.allocator.statistics()
        made = hal.Buffer(device, 1 << 40, hal.float64)
        assert device.allocator.statistics() == before
        assert not made.is_allocated and made.device == device.name

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_B1_nbytes_is_size_times_itemsize(self, device: hal.Compiled, dtype: hal.DType) -> None:
        made = hal.Buffer(device, 7, dtype)
        assert (made.size, made.dtype, made.nbytes) == (7, dtype, 7 * dtype.itemsize)

    def test_B2_allocate_and_deallocate(self, device: hal.Compiled) -> None:
        made = hal.Buffer(device, 100, hal.float32)
        with pytest.raises(hal.InvalidState):
            made.deallocate()
        assert made.allocate() is made and made.is_allocated
        with pytest.raises(hal.InvalidState):
            made.allocate()
        assert made.ensure_allocated() is made.ensure_allocated() is made
        made.deallocate()
        assert "freed" in repr(made)
        with pytest.raises(hal.InvalidState):
            made.deallocate()

    def test_B2_a_freed_buffer_can_be_allocated_again(self, device: hal.Compiled) -> None:
        made = buffer_of(device, pattern(64))
        made.deallocate()
        with pytest.raises(hal.InvalidState):
            read(made)
        assert read(made.allocate().copyin(pattern(64, 2))) == pattern(64, 2)

    def test_B3_zero_size_takes_no_memory(self, device: hal.Compiled) -> None:
        before = device.allocator.statistics()
        made = hal.Buffer(device, 0, hal.float32).allocate()
        assert made.is_allocated and device.allocator.statistics() == before
        made.copyin(b"")
        assert read(made) == b""
        made.copy_from(hal.Buffer(device, 0, hal.int8).allocate())
        device.compile(add_one)(made.view(0, hal.int32), vals=(0,), threads=1)
        device.synchronize()
        made.deallocate()

    def test_B4_B5_bytes_come_back(self, device: hal.Compiled) -> None:
        for nbytes in SIZES:
            data = pattern(nbytes, nbytes)
            assert read(buffer_of(device, data)) == data, nbytes

    def test_B4_takes_any_contiguous_memory(self, device: hal.Compiled) -> None:
        numbers = np.arange(12, dtype=np.float32)
        made = hal.Buffer(device, 12, hal.float32).allocate()
        frozen = numbers.reshape(3, 4).copy()
        frozen.setflags(write=False)
        # Only the bytes count, not the shape and the format of the source.
        for source in (
            numbers, numbers.tobytes(), bytearray(numbers), numbers.data,
            numbers.data.cast("B"), frozen, array.array("f", numbers),
        ):  # fmt: skip
            made.copyin(bytes(48)).copyin(source)
            assert read(made) == numbers.tobytes(), type(source)

    def test_B4_another_size_is_refused_and_nothing_written(self, device: hal.Compiled) -> None:
        data = pattern(48)
        made = buffer_of(device, data, hal.float32)
        for given in OTHER_SIZES:
            with pytest.raises(hal.InvalidArgument, match=f"{given} bytes.*48 bytes"):
                made.copyin(pattern(given, 2))
            assert read(made) == data

    def test_B4_strides_are_refused(self, device: hal.Compiled) -> None:
        data = pattern(8)
        made = buffer_of(device, data)
        with pytest.raises(hal.InvalidArgument):
            made.copyin(np.zeros(16, np.uint8)[::2])
        assert read(made) == data

    def test_B5_the_source_may_change_at_once(self, device: hal.Compiled) -> None:
        for nbytes in SIZES:
            data = bytearray(pattern(nbytes))
            made = hal.Buffer(device, nbytes, hal.uint8).allocate().copyin(data)
            # A device that still reads the source would read zeros.
            data[:] = bytes(nbytes)
            assert read(made) == pattern(nbytes), nbytes

    def test_B5_another_size_is_refused_and_nothing_written(self, device: hal.Compiled) -> None:
        made = buffer_of(device, pattern(48), hal.float32)
        for given in OTHER_SIZES:
            dest = bytearray(b"\x5a" * given)
            with pytest.raises(hal.InvalidArgument, match=f"{given} bytes.*48 bytes"):
                made.copyout(dest)
            assert dest == b"\x5a" * given

    def test_B5_a_read_only_destination_is_refused(self, device: hal.Compiled) -> None:
        with pytest.raises(hal.InvalidArgument):
            buffer_of(device, pattern(8)).copyout(bytes(8))

    def test_B5_reading_what_was_never_written_to_is_refused(self, device: hal.Compiled) -> None:
        with pytest.raises(hal.InvalidState):
            hal.Buffer(device, 8, hal.uint8).copyout(bytearray(8))

    def test_B6_copy_between_devices(
        self, device: hal.Compiled, second_device: hal.Compiled
    ) -> None:
        for nbytes in SIZES:
            data = pattern(nbytes)
            there = hal.Buffer(second_device, nbytes, hal.uint8)
            back = hal.Buffer(device, nbytes, hal.uint8)
            assert there.copy_from(buffer_of(device, data)) is there
            assert read(back.copy_from(there)) == data, nbytes

    def test_B6_copy_of_another_size_is_refused(self, device: hal.Compiled) -> None:
        data = pattern(8)
        made = buffer_of(device, data)
        with pytest.raises(hal.InvalidArgument, match="16 bytes.*8 bytes"):
            made.copy_from(buffer_of(device, pattern(16)))
        assert read(made) == data

    def test_B6_copies_between_views(
        self, device: hal.Compiled, second_device: hal.Compiled
    ) -> None:
        data = pattern(5000)
        source = buffer_of(device, data)
        for there, queue in ((device, None), (device, device.queue()), (second_device, None)):
            expected = bytearray(pattern(5000, 2))
            dest = buffer_of(there, bytes(expected))
            for start, end, size in product((0, 1, 34), (0, 3, 905), (1, 3, 5, 7, 16, 4095)):
                view = source.view(size, offset=start)
                dest.view(size, offset=end).copy_from(view, queue=queue)
                expected[end : end + size] = data[start : start + size]
                there.synchronize()
                assert read(dest) == expected, (there, queue, start, end, size)
        assert read(source) == data

    # Overlaps upwards and downwards, by all but one byte and by half, and one range onto itself.
    def test_B6_overlapping_views_behave_as_memmove(self, device: hal.Compiled) -> None:
        for start, end in ((0, 1), (1, 0), (0, 300), (300, 0), (64, 64)):
            data = bytearray(pattern(1000))
            made = buffer_of(device, bytes(data))
            made.view(600, offset=end).copy_from(made.view(600, offset=start))
            data[end : end + 600] = pattern(1000)[start : start + 600]
            assert read(made) == data, (start, end)

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_fill_sets_every_element(self, device: hal.Compiled, dtype: hal.DType) -> None:
        for size in (1, 7, 1000):
            made = hal.Buffer(device, size + 2, dtype).allocate().fill(1)
            # Not 0 and not -1: a fill that repeats one byte would pass with those.
            made.view(size, offset=dtype.itemsize).fill(101)  # all but the first and the last
            expected = np.full(size + 2, 101, dtype.to_numpy())
            expected[0] = expected[-1] = 1
            assert read(made) == expected.tobytes(), size

    def test_B7_external_memory_is_used_and_stays(
        self, device: hal.Compiled, hal_external: External
    ) -> None:
        before = device.allocator.statistics()
        nbytes, spec = hal_external.nbytes, hal.BufferSpec(external_ptr=hal_external.pointer)
        made = hal.Buffer(device, nbytes, hal.uint8, spec).allocate()
        assert device.allocator.statistics() == before, "it is not ours, so it is not counted"
        assert read(made) == hal_external.read()
        made.copyin(pattern(nbytes, 2))
        device.synchronize()
        assert hal_external.read() == pattern(nbytes, 2)
        made.deallocate()
        with pytest.raises(hal.InvalidState):
            made.allocate()
        assert hal_external.read() == pattern(nbytes, 2), "freed with the buffer"

    @pytest.mark.parametrize("pointer", [0, -8])
    def test_B7_what_is_no_address_is_refused(self, device: hal.Compiled, pointer: int) -> None:
        with pytest.raises((hal.InvalidArgument, hal.Unsupported)):
            hal.empty(8, hal.uint8, device, hal.BufferSpec(external_ptr=pointer))

    def test_B7_memory_of_others_is_made_no_other_way(
        self, device: hal.Compiled, hal_external: External
    ) -> None:
        before = hal_external.read()
        for field in ("image", "uncached", "cpu_access", "host", "zero"):
            value = hal.Image(4, 4) if field == "image" else True
            spec = hal.BufferSpec(external_ptr=hal_external.pointer, **{field: value})  # type: ignore[arg-type]
            refusals = hal.InvalidArgument, hal.Unsupported
            with pytest.raises(refusals, match=f"external_ptr|{field}"):
                hal.empty(hal_external.nbytes, hal.uint8, device, spec)
        assert hal_external.read() == before

    @pytest.mark.parametrize(
        "field", ["image", "uncached", "cpu_access", "host", "nolru", "zero", "external_ptr"]
    )
    def test_B7_every_option_is_honoured_or_refused(self, device: hal.Compiled, field: str) -> None:
        value = {"image": hal.Image(2, 2), "external_ptr": 1 << 40}.get(field, True)
        spec = hal.BufferSpec(**{field: value})  # type: ignore[arg-type]
        if field not in device.allocator.honours:
            with pytest.raises(hal.Unsupported, match=field):
                hal.empty(16, hal.float32, device, spec)
        elif field == "external_ptr":
            is_there = type(device.allocator)._wrap is not hal.Allocator._wrap
            assert is_there, "honours has external_ptr, but the allocator fills in no _wrap"
        elif field != "image":
            assert read(hal.empty(16, hal.float32, device, spec).copyin(pattern(64))) == pattern(64)

    def test_B8_deleting_gives_the_memory_back(self, device: hal.Compiled) -> None:
        before = device.allocator.statistics()
        for _ in range(2000):
            made = hal.Buffer(device, 1000, hal.float32).allocate()
            del made
        after = device.allocator.statistics()
        assert (after.current, after.live) == (before.current, before.live)
        assert after.cached <= before.cached + 8192, "freed blocks were not used again"

    def test_B8_a_cycle_gives_the_memory_back(self, device: hal.Compiled) -> None:
        before = device.allocator.statistics().live
        ring: list[object] = [hal.Buffer(device, 1000, hal.float32).allocate()]
        ring.append(ring)
        del ring
        gc.collect()
        assert device.allocator.statistics().live == before

    @pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
    def test_B10_pickle_carries_the_data(self, device: hal.Compiled, protocol: int) -> None:
        made = buffer_of(device, pattern(400), hal.float32)
        view = made.view(10, hal.int16, 8)
        # In one pickle, so that the view can stay a view of the other buffer.
        both = pickle.loads(pickle.dumps((made, view), protocol))
        assert (both[0].dtype, both[1].dtype, both[1].offset) == (hal.float32, hal.int16, 8)
        assert read(both[0]) == pattern(400) and read(both[1]) == pattern(400)[8:28]
        assert both[1].base is both[0], "a view stays one"
        both[0].copyin(bytes(400))
        assert read(both[1]) == bytes(20) and read(made) == pattern(400)

    def test_B10_pickle_5_hands_the_data_out_of_band(self, device: hal.Compiled) -> None:
        made, parts = buffer_of(device, pattern(1 << 16)), list[pickle.PickleBuffer]()
        small = pickle.dumps(made, 5, buffer_callback=parts.append)
        assert len(small) < 1000 and sum(part.raw().nbytes for part in parts) == 1 << 16
        assert read(pickle.loads(small, buffers=parts)) == pattern(1 << 16)

    def test_B10_an_unallocated_buffer_stays_one(self, device: hal.Compiled) -> None:
        made = copy.copy(hal.Buffer(device, 5, hal.int8))
        assert (made.size, made.is_allocated) == (5, False)

    def test_B11_counters_are_exact(self, device: hal.Compiled) -> None:
        before = device.allocator.statistics()
        made = [hal.Buffer(device, size, hal.float32).allocate() for size in (1, 10, 1000)]
        views = [one.view(1) for one in made]
        during = device.allocator.statistics()
        # (1 + 10 + 1000) * 4 bytes.
        assert during.current - before.current == 4044, "bytes asked for; views do not count"
        assert during.live - before.live == 3
        for one in made:
            one.deallocate()
        after = device.allocator.statistics()
        assert (after.current, after.live) == (before.current, before.live)
        assert after.peak >= before.current + 4044
        del views

    def test_B13_repr_says_what_it_is(self, device: hal.Compiled) -> None:
        made = hal.Buffer(device, 1024, hal.float32)
        assert device.name in repr(made) and "1024 x float32" in repr(made)
        assert "unallocated" in repr(made)
        assert "unallocated" not in repr(made.allocate())
        assert "256" in repr(made.view(8, offset=256))

    def test_B14_zero_gives_zeros(self, device: hal.Compiled) -> None:
        for nbytes in SIZES * 3:  # so that the cache hands out used memory again
            buffer_of(device, b"\xff" * nbytes).deallocate()
            made = hal.Buffer(device, nbytes, hal.uint8, hal.BufferSpec(zero=True)).allocate()
            assert read(made) == bytes(nbytes)
            made.copyin(b"\xff" * nbytes)
            made.deallocate()

    @pytest.mark.parametrize("size", [0, 1, 1000, 5000])
    def test_F3_from_file_to_file(
        self, device: hal.Compiled, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In one piece and in several, from places within a file and to others."""
        monkeypatch.setattr(files, "_PIECE_NBYTES", 1024)
        path, data = tmp_path / "file", pattern(size * 4)
        path.write_bytes(b"before" + data + b"after")
        made = hal.Buffer.from_file(path, hal.int32, 6, size, device)
        assert (made.size, made.dtype, made.device) == (size, hal.int32, device.name)
        assert read(made) == data
        device.compile(add_one)(made, vals=(size,), threads=size)
        written = read(made)
        made.to_file(path, 3)
        assert path.read_bytes() == b"bef" + written + (b"ore" + data + b"after")[len(data) :]

    def test_F3_a_file_is_written_after_the_work_before(
        self, device: hal.Compiled, tmp_path: Path
    ) -> None:
        made = buffer_of(device, bytes(4 * 100_000), hal.int32)
        for _ in range(20):
            device.compile(add_one)(made, vals=(made.size,), threads=made.size)
        made.to_file(tmp_path / "file")
        assert (tmp_path / "file").read_bytes() == np.full(100_000, 20, "i4").tobytes()
