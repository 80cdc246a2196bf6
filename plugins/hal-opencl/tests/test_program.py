"""Launches on a real platform."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hal_core as hal
from hal_opencl import driver
from hal_testing.conformance.kernels import add_one

pytestmark = [pytest.mark.results, pytest.mark.quick]


LIVE = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize(("grid", "of_each"), [(1, 1), (100, 1), (65, 2), (4099, 16), (40_000, 16)])
def test_P6_a_work_item_is_several_short_blocks(device, monkeypatch, grid, of_each):
    """Beginning a work-item takes as long as many threads, so few blocks have one each."""
    program = device.compile(add_one)
    if not program._whole_blocks:
        pytest.skip("blocks are work-groups here")
    units = 1 if grid == 65 else 2
    monkeypatch.setattr(device, "info", device.info._replace(compute_units=units))
    geometry = program._geometry((grid, 1, 1), (256, 1, 1), 0)
    assert geometry.items == (-(-grid // of_each),)
    hits = hal.zeros(grid * 256, hal.int32, device)
    program(hits, vals=(grid * 256,), grid=grid, block=256, wait=True)
    assert (hits.numpy() == 1).all()


def test_a_launch_of_more_groups_than_PoCL_counts_is_refused(device):
    if not driver.is_pocl(device.hardware):
        pytest.skip("other drivers count groups in 64 bits")
    hits = hal.zeros(1, hal.int32, device)
    with pytest.raises(hal.InvalidArgument, match="too many work-groups for PoCL"):
        device.compile(add_one)(hits, 1, grid=(1, 1 << 16, 1 << 16), block=256)


# -- views


SHIFT = """
__kernel void shift(__global int *y_base, long y_offset, int by,
                    __global const float *x_base, long x_offset) {
    __global int *y = (__global int *)((__global char *)y_base + y_offset);
    __global const float *x = (__global const float *)((__global const char *)x_base + x_offset);
    y[get_global_id(0)] = (int)x[get_global_id(0)] + by;
}
"""


@LIVE
@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 40))
def test_V3_source_kernels_that_ask_for_offsets_take_any_view(device, to, start, size):
    signature = "y: int32*, by: int32, x: const float32*"
    program = device.compile(hal.Source("shift", SHIFT, signature, language="opencl", offsets=True))
    y = hal.zeros(100, hal.int32, device)
    x = hal.Buffer.from_numpy(np.arange(100, dtype="f4"), device)
    for _ in range(2):  # the second launch takes the short way
        program(y[to : to + size], x[start : start + size], vals=(7,), threads=size)
    expected = np.zeros(100, "i4")
    expected[to : to + size] = np.arange(start, start + size) + 7
    assert (y.numpy() == expected).all()


@pytest.mark.parametrize(
    ("text", "offsets", "why"),
    [
        (SHIFT, False, r"takes 5 arguments.*gives 3.*offsets=True"),
        ("__kernel void shift(__global int *y, int by, __global const float *x) {}", True,
         r"takes 3 arguments.*gives 5.*offsets=True"),
        (SHIFT.replace("long x_offset", "int x_offset"), True,
         r"argument 4 of the kernel is int.*the byte offset of x"),
    ],
)  # fmt: skip
def test_P2_offsets_that_the_kernel_does_not_have(device, text, offsets, why):
    signature = "y: int32*, by: int32, x: const float32*"
    kernel = hal.Source("shift", text, signature, language="opencl", offsets=offsets)
    with pytest.raises(hal.CompileError, match=why):
        device.compile(kernel)


def test_a_launch_in_the_middle_of_a_launch_leaves_its_arguments_alone(device, saxpy, monkeypatch):
    """Finalizers and signal handlers launch in the middle of another launch."""
    y, other = (hal.zeros(64, hal.float32, device) for _ in range(2))
    one = hal.empty(64, hal.float32, device).fill(1)
    to_come, setters = [other], driver.argument_setters

    def watched(kernel):
        set_memory, set_numbers = setters(kernel)

        def come_in(arguments):
            set_numbers(arguments)
            if to_come:
                program(to_come.pop(), one, vals=(10.0, 32), threads=64)

        return set_memory, come_in

    program = device.load(saxpy.binary)
    with monkeypatch.context() as patch:
        patch.setattr(driver, "argument_setters", watched)
        program(y, one, vals=(2.0, 64), threads=64)
    assert not to_come
    assert y.numpy().tolist() == [2] * 64
    assert other.numpy().tolist() == [10] * 32 + [0] * 32
