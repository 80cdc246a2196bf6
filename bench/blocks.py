"""Kernels with shared memory and barriers, compared with loops written by hand."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import hal_core as hal
from bench import floors
from bench.measure import OURS, Effort, Task, call, compare
from bench.peers import Peers
from bench.report import Missing, Row, beside

SIZE = 512  # rows and columns of the matrices
TILE = 16
ROWS, COLUMNS = 4096, 1024
BLOCK = 256
SUMMED = (64 << 20) // 4
Array = hal.Ptr[hal.float32]
Input = hal.ConstPtr[hal.float32]


@hal.kernel(block=(TILE, TILE, 1))
def matmul(c: Array, a: Input, b: Input, n: hal.int32):
    left = hal.shared(hal.float32, (TILE, TILE))
    right = hal.shared(hal.float32, (TILE, TILE))
    x = hal.thread_idx(0)
    y = hal.thread_idx(1)
    column = hal.global_idx(0)
    row = hal.global_idx(1)
    total = hal.float32(0)
    for tile in range(n // TILE):
        left[y, x] = a[row * n + tile * TILE + x]
        right[y, x] = b[(tile * TILE + y) * n + column]
        hal.barrier()
        for k in range(TILE):
            total += left[y, k] * right[k, x]
        hal.barrier()
    c[row * n + column] = total


@hal.kernel(block=(BLOCK, 1, 1))
def softmax(y: Array, x: Input, columns: hal.int32):
    part = hal.shared(hal.float32, BLOCK)
    t = hal.thread_idx(0)
    row = hal.block_idx(0) * columns
    most = x[row + t]
    for k in range(t + BLOCK, columns, BLOCK):
        most = max(most, x[row + k])
    part[t] = most
    hal.barrier()
    half = BLOCK // 2
    while half > 0:
        if t < half:
            part[t] = max(part[t], part[t + half])
        hal.barrier()
        half = half // 2
    most = part[0]
    hal.barrier()
    total = hal.float32(0)
    for k in range(t, columns, BLOCK):
        value = hal.exp(x[row + k] - most)
        y[row + k] = value
        total += value
    part[t] = total
    hal.barrier()
    half = BLOCK // 2
    while half > 0:
        if t < half:
            part[t] = part[t] + part[t + half]
        hal.barrier()
        half = half // 2
    scale = 1.0 / part[0]
    for k in range(t, columns, BLOCK):
        y[row + k] *= scale


@hal.kernel(block=(BLOCK, 1, 1))
def block_sum(out: Array, x: Input, n: hal.int32):
    part = hal.shared(hal.float32, BLOCK)
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    part[t] = x[i] if i < n else 0.0
    hal.barrier()
    half = BLOCK // 2
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        hal.barrier()
        half = half // 2
    if t == 0:
        out[hal.block_idx(0)] = part[0]


def rows(effort: Effort) -> Iterator[Row | Missing]:
    yield from product(effort.rarely())
    library = floors.library()
    if library is None:
        yield Missing("row softmax", "there is no C compiler for the floor")
        return
    yield row_softmax(library, effort.rarely())
    yield reduction(library, effort.rarely())


def product(effort: Effort) -> Iterator[Row]:
    what = f"tiled matmul {SIZE} float32"
    others = {"numba": _numba_matmul, "pyopencl": _pyopencl_matmul}
    peers = Peers(hal_opencl=lambda: _our_matmul("OPENCL"), numpy=_numpy_matmul, **others)
    times = compare({OURS: _our_matmul("CPU")} | peers.tasks, effort)
    results = peers.results(times)
    for name, target in (("numba", 0.5), ("pyopencl", 2.0)):
        if name in peers.tasks:
            rest = {peer: value for peer, value in results.items() if peer != name}
            yield beside(f"{what} beside {name}'s", times, name, target, peers=rest)


def row_softmax(library: ctypes.CDLL, effort: Effort) -> Row:
    x, y = _buffers(ROWS * COLUMNS, ROWS * COLUMNS)
    program = hal.Device["CPU"].compile(softmax)
    ours = call(lambda: program(y, x, vals=(COLUMNS,), grid=ROWS, block=BLOCK, wait=True))
    floor = _c(library.softmax_rows, y, x, ROWS, COLUMNS)
    times = compare({OURS: ours, "C": floor}, effort)
    return beside(f"row softmax, {ROWS} x {COLUMNS}", times, "C", 0.9, name=floors.NAME)


def reduction(library: ctypes.CDLL, effort: Effort) -> Row:
    blocks = SUMMED // BLOCK
    x, out = _buffers(SUMMED, blocks)
    program = hal.Device["CPU"].compile(block_sum)
    ours = call(lambda: program(out, x, vals=(SUMMED,), grid=blocks, block=BLOCK, wait=True))
    floor = _c(library.block_sums, out, x, blocks, BLOCK)
    times = compare({OURS: ours, "C": floor}, effort)
    return beside(f"sums of {BLOCK}, 64 MiB", times, "C", 0.9, name=floors.NAME)


def _buffers(*sizes: int) -> list[hal.Buffer]:
    generator = np.random.default_rng(0)
    arrays = [generator.random(size, dtype=np.float32) for size in sizes]
    return [hal.Buffer.from_numpy(array, device="CPU") for array in arrays]


def _c(function: ctypes._NamedFuncPointer, y: hal.Buffer, x: hal.Buffer, *sizes: int) -> Task:
    pointers = [ctypes.c_void_p(np.asarray(buffer).ctypes.data) for buffer in (y, x)]
    numbers = [ctypes.c_int64(size) for size in sizes]
    return call(lambda: function(*pointers, *numbers, ctypes.c_int(floors.cores())))


# -- the matrix product, by every library


def _matrices() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    generator = np.random.default_rng(0)
    a, b = (generator.random((SIZE, SIZE), dtype=np.float32) for _ in "ab")
    return a, b


def _checked(c: npt.NDArray[Any]) -> None:
    a, b = _matrices()
    if not np.allclose(c.reshape(SIZE, SIZE), a @ b, rtol=1e-3):
        raise ValueError("the product is wrong")


def _our_matmul(name: str) -> Task:
    device = hal.Device[name]
    a, b = (hal.Buffer.from_numpy(matrix.ravel(), device=device) for matrix in _matrices())
    c = hal.Buffer(device, SIZE * SIZE, hal.float32)
    program = device.compile(matmul)

    def run() -> None:
        program(c, a, b, vals=(SIZE,), threads=(SIZE, SIZE), wait=True)

    run()
    _checked(c.numpy())
    return call(run)


def _numpy_matmul() -> Task:
    a, b = _matrices()
    c = np.empty_like(a)
    return call(lambda: np.matmul(a, b, out=c))


def _numba_matmul() -> Task:
    import numba

    def tiles(c, a, b):
        n = a.shape[0]
        for strip in numba.prange(n // TILE):
            i0 = strip * TILE
            total = np.empty((TILE, TILE), np.float32)
            for j0 in range(0, n, TILE):
                total[:, :] = 0
                for k0 in range(0, n, TILE):
                    for i in range(TILE):
                        for k in range(TILE):
                            left = a[i0 + i, k0 + k]
                            for j in range(TILE):
                                total[i, j] += left * b[k0 + k, j0 + j]
                c[i0 : i0 + TILE, j0 : j0 + TILE] = total

    a, b = _matrices()
    c = np.empty_like(a)
    compiled = numba.njit(parallel=True)(tiles)
    compiled(c, a, b)
    _checked(c)
    return call(lambda: compiled(c, a, b))


_OPENCL_TEXT = """
__kernel __attribute__((reqd_work_group_size(T, T, 1)))
void matmul(__global float *c, __global const float *a, __global const float *b, int n) {
    __local float left[T][T], right[T][T];
    int x = get_local_id(0), y = get_local_id(1), column = get_global_id(0), row = get_global_id(1);
    float total = 0;
    for (int tile = 0; tile < n / T; tile++) {
        left[y][x] = a[row * n + tile * T + x];
        right[y][x] = b[(tile * T + y) * n + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < T; k++) total += left[y][k] * right[k][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * n + column] = total;
}
"""


def _pyopencl_matmul() -> Task:
    import pyopencl as cl

    queue = cl.CommandQueue(cl.Context([cl.get_platforms()[0].get_devices()[0]]))
    kernel = cl.Program(queue.context, _OPENCL_TEXT).build([f"-DT={TILE}"]).matmul
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    matrices = [np.zeros((SIZE, SIZE), "f4"), *_matrices()]
    c, a, b = (cl.Buffer(queue.context, flags, hostbuf=matrix) for matrix in matrices)
    kernel.set_args(c, a, b, np.int32(SIZE))

    def run() -> None:
        cl.enqueue_nd_range_kernel(queue, kernel, (SIZE, SIZE), (TILE, TILE))
        queue.finish()

    run()
    cl.enqueue_copy(queue, matrices[0], c)
    _checked(matrices[0])
    return Task("function()", {"function": run, "owners": (c, a, b)})
