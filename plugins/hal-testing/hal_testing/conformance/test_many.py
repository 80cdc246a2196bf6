"""Test buffers and launches over several devices: promise M1.

The others are the family's second device, if there is one, and PYTHON, which every machine has.
"""

from __future__ import annotations

import numpy as np
import pytest

import hal_core as hal
from hal_testing.conformance.kernels import add_one

LAYOUTS = [(0, None), (1, None), (0, "uneven"), (None, None)]  # axis, sizes


def array_of(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    return np.random.default_rng(7).integers(-50, 50, shape).astype(np.int32)


def sizes_of(count: int, devices: list[hal.Compiled], sizes: str | None) -> list[int] | None:
    """Return parts of which all but the last are empty; None for equal ones."""
    return None if sizes is None else [0] * (len(devices) - 1) + [count]


class TestMany:
    @pytest.fixture
    def devices(self, device: hal.Compiled, second_device: hal.Compiled) -> list[hal.Compiled]:
        others = [second_device, *([hal.Device["PYTHON"]] if "PYTHON" in hal.Device else [])]
        return list(dict.fromkeys([device, *others]))

    @pytest.mark.parametrize(("axis", "sizes"), LAYOUTS)
    def test_M1_elements_lie_on_every_device_and_come_back(
        self, devices: list[hal.Compiled], axis: int | None, sizes: str | None
    ) -> None:
        array = array_of(5, 7)
        parts = sizes_of(5, devices, sizes)
        multi = hal.MultiBuffer.from_numpy(array, devices, axis, parts)
        assert [buffer.device for buffer in multi.bufs] == [one.name for one in devices]
        for shard in multi.shards:
            place = [slice(None)] * (axis or 0) + [slice(shard.start, shard.start + shard.size)]
            expected = array if axis is None else array[tuple(place)]
            if expected.size:
                np.testing.assert_array_equal(shard.buffer.numpy(shard.shape), expected)
        np.testing.assert_array_equal(multi.numpy(), array)

    @pytest.mark.parametrize(("to", "sizes"), LAYOUTS)
    @pytest.mark.parametrize("axis", [0, 1, None])
    def test_M1_a_layout_becomes_another(
        self, devices: list[hal.Compiled], axis: int | None, to: int | None, sizes: str | None
    ) -> None:
        array = array_of(6, 5)
        multi = hal.MultiBuffer.from_numpy(array, devices, axis)
        made = multi.reshard(to, devices[::-1], sizes_of(6, devices, sizes))
        np.testing.assert_array_equal(made.numpy(), array)
        for buffer in made.bufs if to is None else ():
            np.testing.assert_array_equal(buffer.numpy((6, 5)), array)

    @pytest.mark.parametrize(("axis", "operation"), [(0, "sum"), (1, "min")])
    def test_M1_a_reduction_has_the_same_result_everywhere(
        self, devices: list[hal.Compiled], axis: int, operation: str
    ) -> None:
        array = array_of(6, 5)
        made = hal.MultiBuffer.from_numpy(array, devices, axis).reduce(operation)
        expected = getattr(np, operation)(array, axis=axis)
        for buffer in made.bufs:
            np.testing.assert_array_equal(buffer.numpy(), expected)

    def test_M1_a_launch_runs_each_part_between_other_work(
        self, devices: list[hal.Compiled]
    ) -> None:
        multi = hal.MultiBuffer(devices, 1000, hal.int32)
        for turn in range(5):
            multi.fill(turn)
            for _ in range(3):
                hal.launch(
                    add_one,
                    multi,
                    vals=lambda shard: (shard.size,),
                    threads=lambda shard: shard.size,
                )
            multi.bufs[0].fill(-1)
            expected = np.full(1000, turn + 3)
            expected[: multi.shards[0].size] = -1
            np.testing.assert_array_equal(multi.numpy(), expected)

    def test_M1_no_device_and_one_given_twice_are_refused(self, device: hal.Compiled) -> None:
        refused: list[list[str | hal.Compiled]] = [[], [device, device], [device.name, device]]
        for wrong in refused:
            with pytest.raises(hal.InvalidArgument):
                hal.MultiBuffer(wrong, 4, hal.int8)
