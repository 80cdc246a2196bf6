"""Softmax over the rows of a matrix, one block for each row: exp(x - largest) / sum.

All threads of a block call one function, with barriers in it, to find the largest and the sum.

    python examples/softmax.py --rows 4096 --columns 1000 --device CPU
"""

import argparse
import math
import sys

import numpy as np
from numpy.typing import NDArray

import hal_core as hal

BLOCK = 128
TOLERANCE = 1e-5  # relative, against numpy in float64


@hal.func
def add(a: hal.float32, b: hal.float32) -> hal.float32:
    return a + b


@hal.func
def larger(a: hal.float32, b: hal.float32) -> hal.float32:
    return max(a, b)


@hal.func
def block_reduce(tree: hal.Ptr[hal.float32], value: hal.float32, combine) -> hal.float32:
    """Combine the values of all threads of the block; each thread gets the result."""
    t = hal.thread_idx(0)
    tree[t] = value
    hal.barrier()
    half = hal.int32(BLOCK // 2)
    while half > 0:
        if t < half:
            tree[t] = combine(tree[t], tree[t + half])
        hal.barrier()
        half >>= 1
    result = tree[0]
    hal.barrier()  # the next call writes into tree
    return result


@hal.kernel(block=(BLOCK, 1, 1))
def softmax(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], columns: hal.int32) -> None:
    tree = hal.shared(hal.float32, BLOCK)
    t = hal.thread_idx(0)
    row = hal.block_idx(0) * columns
    largest = hal.float32(-math.inf)
    for k in range(t, columns, BLOCK):
        largest = max(largest, x[row + k])
    largest = block_reduce(tree, largest, larger)
    total = hal.float32(0)
    for k in range(t, columns, BLOCK):
        power = hal.exp(x[row + k] - largest)
        y[row + k] = power
        total += power
    total = block_reduce(tree, total, add)
    for k in range(t, columns, BLOCK):
        y[row + k] /= total


def reference(x: NDArray[np.float32]) -> NDArray[np.float64]:
    powers = np.exp(x.astype("f8") - x.max(axis=1, keepdims=True))
    result: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return result


def run(device: hal.Compiled, x: NDArray[np.float32]) -> bool:
    """Print the device's lines; return True if its result is that of numpy."""
    rows, columns = x.shape
    source = hal.Buffer.from_numpy(x.reshape(-1), device)
    result = hal.Buffer(device, x.size, hal.float32)
    program = device.compile(softmax)
    seconds = min(
        program(result, source, vals=(columns,), grid=rows, block=BLOCK, wait=True)
        for _ in range(5)
    )
    y = result.numpy((rows, columns))
    exact = reference(x)
    error = float(np.max(np.abs(y - exact) / exact))
    speed = 2 * x.nbytes / seconds / 1e9
    print(f"{device.name}: y[0, :3] = {y[0, :3]}, rows sum to {y.sum(axis=1).mean():.6f}")
    print(f"    off by {error:.1e}; {speed:.1f} GB/s on {device.info.title}")
    return error <= TOLERANCE


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--columns", type=int, default=1000)
    chosen = parser.parse_args()
    shape = (chosen.rows, chosen.columns)
    x = 5 * np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    right = [run(hal.Device[name], x) for name in names]
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
