"""Kernels from the front end that the tests of this folder share."""

import hal_core as hal
from hal_testing.conformance.language import histogram, products

# mypy: disable-error-code="no-untyped-def"


@hal.kernel
def saxpy(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@hal.kernel
def blur(
    out: hal.Ptr[hal.float32], image: hal.ConstPtr[hal.float32], width: hal.int32, height: hal.int32
):
    x = hal.global_idx(0)
    y = hal.global_idx(1)
    if x > 0 and y > 0 and x < width - 1 and y < height - 1:
        total = 0.0
        for dy in range(-1, 2):
            for dx in range(-1, 2):
                total += image[(y + dy) * width + x + dx]
        out[y * width + x] = total / 9.0


@hal.kernel(block=(8, 4, 1), contract=False)
def mixed(
    long: hal.Ptr[hal.uint8], x: hal.ConstPtr[hal.float64], first: hal.int32, half: hal.int32
):
    i = hal.global_idx(0)
    count = 0
    for k in range(first, half, 3):
        if x[k] > 0.1:
            count += k // 7 % half
        else:
            count -= 1
    long[i] = hal.uint8(hal.sqrt(x[i])) + hal.uint8(count)


@hal.kernel(contract=False)
def search(
    found: hal.Ptr[hal.int32],
    best: hal.Ptr[hal.float32],
    x: hal.ConstPtr[hal.float32],
    limit: hal.float32,
    n: hal.int32,
):
    """Loops and threads that end early."""
    i = hal.global_idx(0)
    if i >= n:
        return
    turns = 0
    value = x[i]
    while value > limit:
        value = value * 0.5
        turns += 1
        if turns == 100:
            break
        if turns % 10 != 0:
            continue
        if hal.isnan(value):
            return
    hal.atomic_store(found, i, turns)
    hal.atomic_exchange(best, 0, value)
    if hal.atomic_load(found, i) > 9:
        hal.atomic_store(found, i, hal.atomic_load(found, i, hal.acquire) + 1, hal.release)


@hal.kernel(contract=False)
def halves(
    y: hal.Ptr[hal.float16],
    z: hal.Ptr[hal.bfloat16],
    x: hal.ConstPtr[hal.float16],
    sign: hal.Ptr[hal.uint32],
    n: hal.int32,
):
    """16-bit floats in memory, computed with as float32; bits of numbers."""
    i = hal.global_idx(0)
    if i < n:
        value = x[i] * 2.0 + 1.0
        y[i] = value
        z[i] = value if value < hal.exp(x[i]) else x[i]
        sign[i] = hal.bitcast(hal.uint32, value) >> 31


SAMPLES = {
    kernel.name: kernel for kernel in (saxpy, blur, mixed, products, histogram, search, halves)
}
