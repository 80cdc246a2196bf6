"""c = a @ b in tiles: a block copies tiles of a and b to shared memory and reads them there.

Without tiles, every element of a and b would be read from device memory once for each row or column
of the result; with tiles, once for each row or column of tiles.

    python examples/matmul.py --size 512 --device CPU
"""

import argparse
import sys

import numpy as np
from numpy.typing import NDArray

import hal_core as hal

TOLERANCE = 1e-5  # relative to the largest sum of absolute products; numpy computes in float64


def make_matmul(tile: int) -> hal.KernelFunction:
    """Make a kernel for tiles of `tile` x `tile`; sizes need not be multiples of `tile`."""

    @hal.kernel(block=(tile, tile, 1))
    def matmul(
        c: hal.Ptr[hal.float32], a: hal.ConstPtr[hal.float32], b: hal.ConstPtr[hal.float32],
        rows: hal.int32, inner: hal.int32, columns: hal.int32,
    ) -> None:  # fmt: skip
        left = hal.shared(hal.float32, (tile, tile))
        right = hal.shared(hal.float32, (tile, tile))
        x = hal.thread_idx(0)
        y = hal.thread_idx(1)
        column = hal.global_idx(0)
        row = hal.global_idx(1)
        total = hal.float32(0)
        for start in range(0, inner, tile):
            k = start + x
            left[y, x] = a[row * inner + k] if row < rows and k < inner else 0.0
            k = start + y
            right[y, x] = b[k * columns + column] if k < inner and column < columns else 0.0
            hal.barrier()  # both tiles are complete
            for step in range(tile):
                total += left[y, step] * right[step, x]
            hal.barrier()  # no thread reads them any more
        if row < rows and column < columns:
            c[row * columns + column] = total

    return matmul


matmul = make_matmul(16)


def run(device: hal.Compiled, a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    """Print the device's lines; return True if its result is that of numpy."""
    (rows, inner), columns = a.shape, b.shape[1]
    left = hal.Buffer.from_numpy(a.reshape(-1), device)
    right = hal.Buffer.from_numpy(b.reshape(-1), device)
    result = hal.Buffer(device, rows * columns, hal.float32)
    program = device.compile(matmul)
    seconds = min(
        program(
            *(result, left, right), vals=(rows, inner, columns), threads=(columns, rows), wait=True
        )
        for _ in range(5)
    )
    c = result.numpy((rows, columns))
    exact = a.astype("f8") @ b.astype("f8")
    scale = np.abs(a).astype("f8") @ np.abs(b).astype("f8")
    error = float(np.max(np.abs(c - exact) / np.max(scale, initial=1e-30)))
    speed = 2 * rows * inner * columns / seconds / 1e9
    print(f"{device.name}: c[0, :3] = {c[0, :3]}, off by {error:.1e} of the largest sum")
    print(f"    {seconds * 1e3:.2f} ms, {speed:.1f} GFLOP/s, on {device.info.title}")
    return error <= TOLERANCE


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--size", type=int, default=512, help="rows of the result, about")
    chosen = parser.parse_args()
    size: int = chosen.size
    random = np.random.default_rng(0)
    a = random.standard_normal((size, size + 5), dtype=np.float32)
    b = random.standard_normal((size + 5, size - size // 7), dtype=np.float32)
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    right = [run(hal.Device[name], a, b) for name in names]
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
