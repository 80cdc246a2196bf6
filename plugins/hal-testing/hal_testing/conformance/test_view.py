"""Test views: promises V1 to V5."""

from __future__ import annotations

import random

import pytest

import hal_core as hal
from hal_testing.conformance.differential import compiled
from hal_testing.conformance.kernels import copier
from hal_testing.conformance.raw import buffer_of, pattern, read

KERNEL_DTYPES = [hal.uint8, hal.int16, hal.float32, hal.int64]


class TestView:
    def test_V1_offsets_add_up_and_lead_to_the_root(self, device: hal.Compiled) -> None:
        data = pattern(1000)
        root = buffer_of(device, data)
        first = root.view(800, offset=100)
        second = first.view(50, hal.int32, 36)
        assert first.base is root and second.base is root
        assert (first.offset, second.offset) == (100, 136)
        assert read(first) == data[100:900] and read(second) == data[136:336]
        assert read(root[10:20]) == data[10:20]

    def test_V1_a_view_keeps_the_base_alive(self, device: hal.Compiled) -> None:
        view = buffer_of(device, pattern(4096)).view(16, offset=2048)
        # If the view did not keep its base alive, one of these would overwrite it.
        others = [buffer_of(device, bytes(4096)) for _ in range(8)]
        assert read(view) == pattern(4096)[2048:2064]
        del others

    def test_V1_a_view_of_what_is_not_allocated(self, device: hal.Compiled) -> None:
        root = hal.Buffer(device, 100, hal.uint8)
        view = root.view(10, offset=90)
        view.copyin(pattern(10))
        assert root.is_allocated and read(root)[90:] == pattern(10)

    @pytest.mark.parametrize(
        ("size", "dtype", "offset"),
        [(101, hal.uint8, 0), (1, hal.uint8, 100), (26, hal.float32, 0), (1, hal.int8, 1 << 62)],
    )
    def test_V2_beyond_the_base_is_refused(
        self, device: hal.Compiled, size: int, dtype: hal.DType, offset: int
    ) -> None:
        # The check must not depend on memory, which is allocated late.
        for root in (hal.Buffer(device, 100, hal.uint8), buffer_of(device, bytes(100))):
            with pytest.raises(hal.InvalidArgument):
                root.view(size, dtype, offset)

    def test_V2_a_view_of_a_view_ends_with_it(self, device: hal.Compiled) -> None:
        view = buffer_of(device, pattern(100)).view(10, offset=20)
        with pytest.raises(hal.InvalidArgument):
            view.view(11)
        with pytest.raises(hal.InvalidArgument):
            view.view(1, offset=-1)
        assert view.view(0, offset=10).nbytes == 0

    @pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=str)
    def test_V3_kernels_take_any_offset(self, device: hal.Compiled, dtype: hal.DType) -> None:
        """Launch on views at all pairs of small offsets, and at a few large ones."""
        program, step = compiled(device, copier(dtype)), dtype.itemsize
        if program is None:
            return
        # They differ: a kernel with one offset for both pointers would pass with equal ones.
        for there, here in ((0, 1), (1, 0), (1, 2), (3, 7), (5, 64), (1021, 33)):
            data = bytearray(pattern(2048, here))
            source, dest = buffer_of(device, bytes(data)), buffer_of(device, pattern(2048, 9))
            size = 2048 // step - max(there, here) if max(there, here) < 256 // step else 3
            if (max(there, here) + size) * step > 2048:
                continue  # no room for large offsets with a wide dtype
            program(
                dest.view(size, dtype, there * step),
                source.view(size, dtype, here * step),
                vals=(size,),
                threads=size,
            )
            expected = bytearray(pattern(2048, 9))
            moved = data[here * step : (here + size) * step]
            expected[there * step : (there + size) * step] = moved
            assert read(dest) == expected, (there, here)
            assert read(source) == data

    def test_V3_copies_take_any_offset(self, device: hal.Compiled) -> None:
        # The same steps at each run, so that a failure can be repeated.
        random.seed(3)
        data = bytearray(pattern(3000))
        root = buffer_of(device, bytes(data))
        for turn in range(60):
            start = random.randrange(3000)
            size = random.randrange(3001 - start)
            view = root.view(size, offset=start)
            assert read(view) == data[start : start + size]
            data[start : start + size] = pattern(size, turn)
            view.copyin(pattern(size, turn))
        assert read(root) == data

    def test_V3_an_offset_inside_an_element_is_refused(self, device: hal.Compiled) -> None:
        with pytest.raises(hal.InvalidArgument):
            buffer_of(device, bytes(64)).view(1, hal.float32, 2)

    def test_V4_view_and_base_see_each_other(self, device: hal.Compiled) -> None:
        root = buffer_of(device, bytes(64))
        # The two overlap from byte 24 to 40.
        left, right = root.view(40), root.view(40, offset=24)
        left.copyin(pattern(40))
        right.copyin(pattern(40, 2))
        assert read(root) == pattern(40)[:24] + pattern(40, 2)
        assert read(left) == (pattern(40)[:24] + pattern(40, 2))[:40]
        root.copyin(pattern(64, 3))
        assert read(left) == pattern(64, 3)[:40] and read(right) == pattern(64, 3)[24:]

    def test_V5_freeing_the_base_ends_its_views(self, device: hal.Compiled) -> None:
        root = buffer_of(device, pattern(256))
        view = root.view(16, offset=16)
        deeper = view.view(4, offset=4)
        root.deallocate()
        for gone in (view, deeper, root.view(4)):
            assert not gone.is_allocated
            with pytest.raises(hal.InvalidState):
                gone.copyout(bytearray(gone.nbytes))
            with pytest.raises(hal.InvalidState):
                gone.copyin(bytes(gone.nbytes))
        with pytest.raises(hal.InvalidState):
            device.compile(copier(hal.uint8))(view, deeper, vals=(4,), threads=4)
        assert not root.is_allocated

    def test_V5_a_view_is_not_freed_and_leaves_its_base(self, device: hal.Compiled) -> None:
        before = device.allocator.statistics()
        root = buffer_of(device, pattern(256))
        view, other = root.view(16, offset=16), root.view(16, offset=16)
        with pytest.raises(hal.InvalidState, match="is a view.*view.base.deallocate"):
            view.deallocate()
        assert view.is_allocated and root.is_allocated and other.is_allocated
        del view
        assert device.allocator.statistics().live == before.live + 1
        assert read(root) == pattern(256) and read(other) == pattern(256)[16:32]

    def test_V5_a_later_allocation_is_not_seen_through_an_old_view(
        self, device: hal.Compiled
    ) -> None:
        root = buffer_of(device, pattern(256))
        view = root.view(16)
        root.deallocate()
        root.allocate().copyin(bytes(256))  # most likely the same block
        with pytest.raises(hal.InvalidState):
            view.copyin(pattern(16))
        with pytest.raises(hal.InvalidState):
            read(view)
        assert read(root) == bytes(256)
