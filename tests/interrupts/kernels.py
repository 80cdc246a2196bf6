"""Compiling: rendered anew, taken from the cache on disk, and the first launch."""

from ctrl_c import Scene, expect

import hal_core as hal


def made():
    """Make a kernel that no device has seen, of a text that is always the same."""

    @hal.kernel
    def added(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
        i = hal.global_idx(0)
        if i < n:
            y[i] = y[i] + x[i]

    return added


def compiles(device):
    """The work compiles for an empty cache, then takes it from there, then from the device."""
    hal.cache.clear()
    kernels, programs = [made(), made()], list[hal.Program]()

    def work():
        programs.extend(device.compile(kernels[number]) for number in (0, 1, 1))

    def check(heard):
        for kernel in kernels:
            expect(device.compile(kernel) is device.compile(kernel), "it was compiled twice")
            assert_adds(device.compile(kernel))

    return Scene(work, check)


def launches(device):
    """The first launch, which binds, one like it, one of other sizes, and one that waits."""
    program = device.compile(made())
    x, y = hal.zeros(64, hal.int32, device), hal.zeros(64, hal.int32, device)

    def work():
        for _ in range(2):
            program(y, x, vals=(64,), threads=64)
        program(y, x, vals=(32,), grid=2, block=16)
        program(y, x, vals=(64,), threads=64, wait=True)

    def check(heard):
        assert_adds(program)

    return Scene(work, check)


def shares(device):
    """A launch that is large enough for several threads of the processor."""
    program = device.compile(made())
    count = 64 if device.info.kind == "interpreter" else 1 << 18
    x, y = hal.zeros(count, hal.int32, device), hal.zeros(count, hal.int32, device)

    def work():
        program(y, x, vals=(count,), threads=count)
        device.synchronize()

    def check(heard):
        x.fill(1)
        y.fill(2)
        program(y, x, vals=(count,), threads=count)
        expect((y.numpy() == 3).all(), "the launch after it is wrong")

    return Scene(work, check)


def assert_adds(program):
    y, x = (hal.zeros(40, hal.int32, program.device).fill(value) for value in (1, 2))
    program(y, x, vals=(40,), threads=40)
    expect(y.numpy().tolist() == [3] * 40, "the launch after it is wrong")


SCENES = (compiles, launches, shares)
