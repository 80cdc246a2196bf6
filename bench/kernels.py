"""Long kernels: one bound by memory, one by arithmetic."""

from __future__ import annotations

import ctypes
import os
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

import hal_core as hal
from bench import floors
from bench.measure import OURS, Effort, Task, compare
from bench.peers import Peers
from bench.report import Missing, Row, beside

COUNT = (64 << 20) // 4
FACTOR = 1e-9  # keeps a thousandfold sum finite and free of denormals
SMALL = 256 << 10
STEPS = floors.STEPS
Array = hal.Ptr[hal.float32]
Input = hal.ConstPtr[hal.float32]


def make_saxpy() -> hal.KernelFunction:
    @hal.kernel
    def saxpy(y: Array, x: Input, a: hal.float32, n: hal.int32):
        i = hal.global_idx(0)
        if i < n:
            y[i] = a * x[i] + y[i]

    return saxpy


saxpy = make_saxpy()


@hal.kernel
def steps(y: Array, x: Input, a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        v = x[i]
        for _k in range(STEPS):
            v = v * a + 0.5
        y[i] = v


def rows(effort: Effort) -> Iterator[Row | Missing]:
    library = floors.library()
    if library is None:
        yield Missing("saxpy over 64 MiB", "there is no C compiler for the floor")
        return
    yield memory_bound(library, effort.rarely())
    yield arithmetic_bound(library, effort.rarely())
    yield from speedup(library, effort.rarely())


def memory_bound(library: ctypes.CDLL, effort: Effort) -> Row:
    """Measure the memory-bound kernel against the best C loop on the same memory."""
    ours, floor = _both(library.saxpy, saxpy, COUNT, FACTOR)
    peers = Peers(numpy=_numpy, numba=_numba)
    times = compare({OURS: ours, "C": floor} | peers.tasks, effort)
    others = peers.results(times)
    return beside("saxpy over 64 MiB", times, "C", 0.95, name=floors.NAME, peers=others)


def arithmetic_bound(library: ctypes.CDLL, effort: Effort) -> Row:
    ours, floor = _both(library.steps, steps, SMALL, 0.5)
    times = compare({OURS: ours, "C": floor}, effort)
    what = f"{STEPS} multiply-adds on each of 256 Ki"
    return beside(what, times, "C", 0.9, name=floors.NAME)


def speedup(library: ctypes.CDLL, effort: Effort) -> Iterator[Row | Missing]:
    """Measure all cores against one. The row has C's gain too: it is small on a busy machine."""
    what = f"the same, all cores over one ({floors.cores()} cores)"
    if floors.cores() < 2:
        yield Missing(what, "this machine has one core")
        return
    _, floor = _both(library.steps, steps, SMALL, 0.5)
    alone = floor._replace(names={**floor.names, "threads": ctypes.c_int(1)})
    in_c = compare({"many": floor, "one": alone}, effort)
    one, many, ratios = [], [], []
    for _ in range(max(3, effort.rounds // 4)):
        one.append(_with_threads(1))
        many.append(_with_threads(floors.cores()))
        ratios.append(one[-1] / many[-1])
    yield Row(
        what,
        *(statistics.median(many), "one core", statistics.median(one)),
        statistics.median(ratios),
        target=1.7 * floors.cores() / 2,
        peers={"C gains": f"{in_c.ratio('one', 'many'):.2f} x"},
    )


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Open the device again: it reads the number of threads when it makes them."""
    hal.Device["CPU"].close()
    with patch.dict(os.environ, HAL_CPU_THREADS=str(count)):
        try:
            yield
        finally:
            hal.Device["CPU"].close()


def _with_threads(count: int) -> float:
    with threads(count):
        task, _ = _ours(steps, SMALL, 0.5)
        return compare({OURS: task}, Effort(3, 0.0)).best(OURS)


def _ours(kernel: Any, count: int, factor: float) -> tuple[Task, list[hal.Buffer]]:
    device = hal.Device["CPU"]
    buffers = [hal.Buffer.from_numpy(np.ones(count, "f4"), device=device) for _ in "yx"]
    names = {"program": device.compile(kernel), "f": factor, "n": count}
    names |= dict(zip("yx", buffers, strict=True))
    return Task("program(y, x, vals=(f, n), threads=n, wait=True)", names), buffers


def _both(
    function: ctypes._NamedFuncPointer, kernel: object, count: int, factor: float
) -> tuple[Task, Task]:
    ours, buffers = _ours(kernel, count, factor)
    y, x = (ctypes.c_void_p(np.asarray(buffer).ctypes.data) for buffer in buffers)
    names: dict[str, object] = {"function": function, "y": y, "x": x, "a": ctypes.c_float(factor)}
    names |= {"n": ctypes.c_int64(count), "threads": ctypes.c_int(floors.cores())}
    names |= {"owners": buffers}  # keeps the memory at these addresses alive
    return ours, Task("function(y, x, a, n, threads)", names)


def _numpy() -> Task:
    names = {name: np.ones(COUNT, "f4") for name in "yxt"} | {"np": np, "a": np.float32(FACTOR)}
    return Task("np.multiply(x, a, out=t); np.add(t, y, out=y)", names)


def _numba() -> Task:
    import numba

    def loop(y, x, a):
        for i in numba.prange(y.size):
            y[i] = a * x[i] + y[i]

    names = {name: np.ones(COUNT, "f4") for name in "yx"} | {"a": np.float32(FACTOR)}
    return Task("loop(y, x, a)", {"loop": numba.njit(parallel=True)(loop)} | names)
