"""Sum and maximum of many numbers: each block reduces its share, another launch the results.

A block combines its numbers in a tree: half of the threads add the values of the other half, then
a quarter those of the next quarter, ... with a barrier after each step. The order is fixed, so the
sum is the same in each run.

    python examples/reduction.py --count 10000000 --device CPU
"""

import argparse
import math
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import hal_core as hal

BLOCK = 256
ITEMS = 16  # numbers that one thread combines before the tree begins
SHARE = BLOCK * ITEMS


@hal.func
def add(a: hal.float32, b: hal.float32) -> hal.float32:
    return a + b


@hal.func
def larger(a: hal.float32, b: hal.float32) -> hal.float32:
    return max(a, b)


def make_reduction(
    combine: Callable[[hal.float32, hal.float32], hal.float32], start: float
) -> hal.KernelFunction:
    """Make a kernel that writes one number for each block; `start` is the neutral element."""

    @hal.kernel(block=(BLOCK, 1, 1))
    def reduce(
        out: hal.Ptr[hal.float32], values: hal.ConstPtr[hal.float32], count: hal.int32
    ) -> None:
        tree = hal.shared(hal.float32, BLOCK)
        t = hal.thread_idx(0)
        first = hal.block_idx(0) * SHARE + t
        total = hal.float32(start)
        for k in range(ITEMS):
            i = first + k * BLOCK
            if i < count:
                total = combine(total, values[i])
        tree[t] = total
        hal.barrier()
        half = hal.int32(BLOCK // 2)
        while half > 0:
            if t < half:
                tree[t] = combine(tree[t], tree[t + half])
            hal.barrier()
            half >>= 1
        if t == 0:
            out[hal.block_idx(0)] = tree[0]

    return reduce


sum_blocks = make_reduction(add, 0.0)
max_blocks = make_reduction(larger, -math.inf)


def reduce(device: hal.Compiled, kernel: hal.KernelFunction, values: hal.Buffer) -> float:
    """Combine all `values`: launch the kernel until one number is left."""
    program = device.compile(kernel)
    while values.size > 1:
        blocks = -(-values.size // SHARE)
        shares = hal.Buffer(device, blocks, hal.float32)
        program(shares, values, vals=(values.size,), grid=blocks, block=BLOCK)
        values = shares
    return float(values.numpy()[0])


def seconds(device: hal.Compiled, kernel: hal.KernelFunction, values: hal.Buffer) -> float:
    """Return the time of the first launch, which reads every number."""
    blocks = -(-values.size // SHARE)
    shares, program = hal.Buffer(device, blocks, hal.float32), device.compile(kernel)
    return min(
        program(shares, values, vals=(values.size,), grid=blocks, block=BLOCK, wait=True)
        for _ in range(5)
    )


def run(device: hal.Compiled, values: NDArray[np.float32]) -> bool:
    """Print the device's lines; return True if its results are those of numpy."""
    buffer = hal.Buffer.from_numpy(values, device)
    total, largest = (reduce(device, kernel, buffer) for kernel in (sum_blocks, max_blocks))
    exact = float(values.sum(dtype="f8"))
    error = abs(total - exact) / max(float(np.abs(values).sum(dtype="f8")), 1e-30)
    speed = values.nbytes / seconds(device, sum_blocks, buffer) / 1e9
    print(f"{device.name}: sum {total:.6g} (numpy {exact:.6g}), largest {largest:.6g}")
    print(f"    {speed:.1f} GB/s on {device.info.title}")
    return error <= 1e-6 and largest == float(np.max(values))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--count", type=int, default=10_000_000, help="how many numbers")
    chosen = parser.parse_args()
    values = np.random.default_rng(0).standard_normal(chosen.count, dtype=np.float32)
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    right = [run(hal.Device[name], values) for name in names]
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
