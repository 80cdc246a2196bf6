"""The kernels in Warp's language, in a file without postponed annotations: Warp needs objects."""

import warp as wp

wp.config.log_level = wp.LOG_ERROR

Array = wp.array(dtype=wp.float32)


@wp.kernel
def add_kernel(c: Array, a: Array, b: Array, n: wp.int32):
    i = wp.tid()
    if i < n:
        c[i] = a[i] + b[i]


@wp.kernel
def saxpy_kernel(y: Array, x: Array, a: wp.float32):
    i = wp.tid()
    y[i] = a * x[i] + y[i]
