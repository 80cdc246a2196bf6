"""Launches and copies: how many calls of the runtime they are."""

import pytest

import hal_core as hal
from hal_testing.conformance.kernels import add_one

pytestmark = pytest.mark.results


@hal.kernel
def far(y: hal.Ptr[hal.int32], at: hal.int32) -> None:
    y[at] = 1


def test_calls_of_launches_copies_and_cached_allocations(device, runtime):
    """No call asks for or sets the current device."""
    program, y = device.compile(add_one), hal.zeros(100, hal.int32, device)
    program(y, vals=(100,), threads=100)
    y.copyin(bytes(400)).copyout(bytearray(400))
    hal.Buffer(device, 100, hal.int32).allocate().deallocate()
    for work, expected in (
        (lambda: program(y, vals=(100,), threads=100), {"hipModuleLaunchKernel": 1}),
        (lambda: y.copyin(bytes(400)), {"hipMemcpyHtoDAsync": 1}),
        (lambda: y.copyout(bytearray(400)), {"hipMemcpyDtoHAsync": 1, "hipStreamSynchronize": 1}),
        (lambda: hal.Buffer(device, 100, hal.int32).allocate().deallocate(), {}),
        (device.synchronize, {"hipStreamSynchronize": 1}),
    ):
        before = runtime.all_calls()
        work()
        assert runtime.calls_since(before) == expected
