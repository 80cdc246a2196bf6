"""Kernels from the front end that the tests of this folder share."""

from __future__ import annotations

import hal_core as hal


@hal.kernel
def saxpy(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], a: hal.float32, n: hal.int32):  # type: ignore[no-untyped-def]
    i = hal.global_idx(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@hal.kernel
def blur(
    out: hal.Ptr[hal.float32], image: hal.ConstPtr[hal.float32], width: hal.int32, height: hal.int32
):  # type: ignore[no-untyped-def]
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
):  # type: ignore[no-untyped-def]
    i = hal.global_idx(0)
    count = 0
    for k in range(first, half, 3):
        if x[k] > 0.1:
            count += k // 7 % half
        else:
            count -= 1
    long[i] = hal.uint8(hal.sqrt(x[i])) + hal.uint8(count)


SAMPLES = {kernel.name: kernel for kernel in (saxpy, blur, mixed)}
