"""What comes in the middle of a launch, on the same thread."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import hal_core as hal
from hal_opencl import driver


@hal.kernel
def add(y: hal.Ptr[hal.int32], a: hal.int32, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] + a


def test_a_launch_in_the_middle_of_a_launch_neither_hangs_nor_mixes_arguments(
    device: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a finalizer or the handler of a signal makes it, wherever Python lets one in."""
    inner: list[Callable[[], None]] = []
    setters = driver.argument_setters

    def watched(kernel: object) -> tuple[Callable[..., None], Callable[..., None]]:
        set_memory, set_numbers = setters(kernel)

        def come_in(arguments: object) -> None:
            set_numbers(arguments)
            if inner:
                inner.pop()()

        return set_memory, come_in

    monkeypatch.setattr(driver, "argument_setters", watched)
    program = device.load(device.compile(add).binary)
    y, other = (hal.Buffer(device, 64, hal.int32).allocate().fill(0) for _ in range(2))
    program(y, vals=(1, 64), threads=64)
    for _ in range(2):
        inner.append(lambda: program(other, vals=(100, 32), threads=64))
        program(y, vals=(10, 64), threads=64)
        assert not inner
    assert y.numpy().tolist() == [21] * 64
    assert other.numpy().tolist() == [200] * 32 + [0] * 32
