"""Math functions of float64 on the CPU, one thread: ours beside numpy's and numba's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import hal_core as hal
from bench.measure import OURS, Effort, Task, call, compare
from bench.peers import Peers
from bench.report import Missing, Row, beside

COUNT = 16 << 10  # elements: they lie in the cache, and one thread runs them
Array = hal.Ptr[hal.float64]
Input = hal.ConstPtr[hal.float64]


@hal.kernel
def sine(y: Array, x: Input, z: Input, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = hal.sin(x[i])


@hal.kernel
def tangent(y: Array, x: Input, z: Input, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = hal.tan(x[i])


@hal.kernel
def power(y: Array, x: Input, z: Input, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = hal.pow(x[i], z[i])


@hal.kernel
def left_over(y: Array, x: Input, z: Input, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = hal.fmod(x[i], z[i])


# kernel -> numpy's function, and the least score; on some processors numpy's tan and pow are
# vectors of Intel's library.
FUNCTIONS: dict[hal.KernelFunction, tuple[Callable[..., Any], float]] = {
    sine: (np.sin, 1.0),
    tangent: (np.tan, 0.4),
    power: (np.power, 0.3),
    left_over: (np.fmod, 3.0),
}


def rows(effort: Effort) -> Iterator[Row | Missing]:
    random = np.random.default_rng(0)
    x, z = random.uniform(0.1, 100, COUNT), random.uniform(0.5, 8, COUNT)
    for kernel, (function, target) in FUNCTIONS.items():
        given = (x, z) if function in (np.power, np.fmod) else (x,)
        program = hal.Device["CPU"].compile(kernel)
        buffers = [hal.Buffer.from_numpy(array, "CPU") for array in (np.zeros(COUNT), x, z)]
        names = {"program": program, "buffers": buffers, "v": (COUNT,), "t": COUNT}
        out = np.empty(COUNT)
        peers = Peers(numba=lambda f=function, a=given: _numba(f, a))  # type: ignore[misc]
        tasks = {
            OURS: Task("program(*buffers, vals=v, threads=t)", names),
            "numpy": call(lambda f=function, a=given, y=out: f(*a, out=y)),  # type: ignore[misc]
        }
        times = compare(tasks | peers.tasks, effort)
        what = f"{function.__name__} of {COUNT >> 10} Ki float64"
        yield beside(what, times, "numpy", target, peers=peers.results(times))


def _numba(function: Callable[..., Any], given: tuple[Any, ...]) -> Task:
    import numba

    def one(y, x):
        for i in range(len(x)):
            y[i] = function(x[i])

    def two(y, x, z):
        for i in range(len(x)):
            y[i] = function(x[i], z[i])

    compiled, y = numba.njit(fastmath=True)(two if len(given) == 2 else one), np.empty(COUNT)
    return call(lambda: compiled(y, *given))
