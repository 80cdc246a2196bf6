"""Compute y = a * x + y on one device: the README's first example."""

import numpy as np

import hal_core as hal


@hal.kernel
def saxpy(
    y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], a: hal.float32, n: hal.int32
) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = a * x[i] + y[i]


dev = hal.Device[hal.Device.DEFAULT]  # or "CPU", "OPENCL:1", "GPU"
x = hal.Buffer.from_numpy(np.arange(1024, dtype="f4"), device=dev)
y = hal.Buffer.from_numpy(np.ones(1024, dtype="f4"), device=dev)
program = dev.compile(saxpy)  # render -> compile (cached on disk) -> load
seconds = program(y, x, 2.0, 1024, threads=1024, wait=True)
print(f"y = {y.numpy()}, in {seconds * 1e6:.1f} us on {dev.name}")
