"""Solve a large system of equations by conjugate gradients: a sparse matrix, in compressed rows.

The system is a step of the heat equation, 200 times longer than an explicit one may be. An
iteration is five launches. Its dot products stay on the device, in buffers of one number that the
next kernel reads, so the host does not wait for them; it looks at one every 20 iterations.

    python examples/sparse.py --size 200 --device CPU
"""

import argparse
import sys
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import hal_core as hal

BLOCK = 256
TOLERANCE = 1e-4  # of the rest that is left, relative to the right side
LOOK_EVERY = 20  # iterations
STEP = 50.0  # time step * conductivity / distance ** 2; explicit steps blow up above 0.25

Numbers = hal.Ptr[hal.float32]
Input = hal.ConstPtr[hal.float32]
Places = hal.ConstPtr[hal.int32]


@hal.kernel
def multiply(
    y: Numbers, starts: Places, columns: Places, values: Input, x: Input, rows: hal.int32
) -> None:
    """Compute y = A @ x; row i has the elements from starts[i] to starts[i + 1]."""
    i = hal.global_idx(0)
    if i < rows:
        total = hal.float32(0)
        for k in range(starts[i], starts[i + 1]):
            total += values[k] * x[columns[k]]
        y[i] = total


@hal.kernel(block=BLOCK)
def dot(out: Numbers, x: Input, y: Input, n: hal.int32) -> None:
    """Compute the sum of x * y in one block."""
    tree = hal.shared(hal.float32, BLOCK)
    t = hal.thread_idx(0)
    total = hal.float32(0)
    for i in range(t, n, BLOCK):
        total += x[i] * y[i]
    tree[t] = total
    hal.barrier()
    half = hal.int32(BLOCK // 2)
    while half > 0:
        if t < half:
            tree[t] += tree[t + half]
        hal.barrier()
        half //= 2
    if t == 0:
        out[0] = tree[0]


@hal.kernel
def advance(
    x: Numbers, rest: Numbers, way: Input, pushed: Input, square: Input, slope: Input, n: hal.int32
) -> None:
    """Go along `way` as far as the rest becomes smaller; `pushed` is A @ way."""
    i = hal.global_idx(0)
    if i < n:
        far = square[0] / slope[0] if slope[0] > 0 else 0.0
        x[i] += far * way[i]
        rest[i] -= far * pushed[i]


@hal.kernel
def turn(way: Numbers, rest: Input, new: Input, old: Input, n: hal.int32) -> None:
    """Choose the next way: along the rest, and never one that was gone before."""
    i = hal.global_idx(0)
    if i < n:
        way[i] = rest[i] + (new[0] / old[0] if old[0] > 0 else 0.0) * way[i]


class Matrix(NamedTuple):
    """A sparse matrix in compressed rows."""

    starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float32]

    def __matmul__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Multiply by numpy, in float64; every row has an element."""
        sums: NDArray[np.float64] = np.add.reduceat(self.values * x[self.columns], self.starts[:-1])
        return sums


def make_plate(size: int) -> Matrix:
    """Make the matrix of a step for a plate of size x size points, whose rim stays cold."""
    own = np.arange(size * size).reshape(size, size)
    row, column, value = [own.ravel()], [own.ravel()], [np.full(own.size, 1 + 4 * STEP)]
    for one, other in ((own[1:], own[:-1]), (own[:, 1:], own[:, :-1])):
        row += [one.ravel(), other.ravel()]
        column += [other.ravel(), one.ravel()]
        value += [np.full(2 * one.size, -STEP)]
    rows, columns, values = map(np.concatenate, (row, column, value))
    order = np.lexsort((columns, rows))
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows))])
    return Matrix(starts.astype("i4"), columns[order].astype("i4"), values[order].astype("f4"))


def solve(
    device: hal.Compiled, matrix: Matrix, right: NDArray[np.float32]
) -> tuple[NDArray[np.float32], int]:
    """Return the solution and the number of iterations."""
    n = right.size
    stored = [hal.Buffer.from_numpy(array, device) for array in matrix]
    rest, way = (hal.Buffer.from_numpy(right, device) for _ in range(2))
    x, pushed = (hal.zeros(n, hal.float32, device) for _ in range(2))
    old, new, slope = (hal.zeros(1, hal.float32, device) for _ in range(3))
    kernels = multiply, dot, advance, turn
    to_multiply, to_dot, to_advance, to_turn = (device.compile(kernel) for kernel in kernels)
    to_dot(old, rest, rest, vals=(n,), grid=1)
    enough = (TOLERANCE / 10) ** 2 * float(old.numpy()[0])
    number = 0
    while number < 10 * n:
        number += 1
        to_multiply(pushed, *stored, way, vals=(n,), threads=n)
        to_dot(slope, way, pushed, vals=(n,), grid=1)
        to_advance(x, rest, way, pushed, old, slope, vals=(n,), threads=n)
        to_dot(new, rest, rest, vals=(n,), grid=1)
        to_turn(way, rest, new, old, vals=(n,), threads=n)
        old, new = new, old
        if number % LOOK_EVERY == 0 and old.numpy()[0] <= enough:
            break
    return x.numpy(), number


def run(device: hal.Compiled, matrix: Matrix, right: NDArray[np.float32]) -> bool:
    """Print the device's lines; return True if numpy finds that the equations hold."""
    solve(device, matrix, right[:])  # compiles
    start = time.perf_counter()
    x, iterations = solve(device, matrix, right)
    seconds = time.perf_counter() - start
    left = float(np.linalg.norm(matrix @ x.astype("f8") - right) / np.linalg.norm(right))
    speed = 2 * iterations * matrix.values.size / seconds / 1e9
    print(f"{device.name}: {right.size} unknowns in {iterations} iterations, up to {np.max(x):.3f}")
    print(f"    {left:.1e} is left; {speed:.2f} GFLOP/s of the products on {device.info.title}")
    return left <= TOLERANCE


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--size", type=int, default=200, help="points of a side of the plate")
    chosen = parser.parse_args()
    matrix = make_plate(chosen.size)
    plate = np.zeros((chosen.size, chosen.size), "f4")
    plate[chosen.size // 3 : chosen.size * 2 // 3] = 100  # a hot band across it
    right = plate.reshape(-1)
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    good = [run(hal.Device[name], matrix, right) for name in names]
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
