"""The cost of a checked launch of a tiny kernel, compared with a call of the same function in C."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np

import hal_core as hal
from bench import floors
from bench.kernels import Array, Input
from bench.measure import OURS, Effort, Task, compare
from bench.peers import Peers
from bench.report import Missing, Row, beside

COUNT = 16
WHAT = "launch, 3 buffers + 1 int, checked"


@hal.kernel
def add(c: Array, a: Input, b: Input, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        c[i] = a[i] + b[i]


def rows(effort: Effort) -> Iterator[Row | Missing]:
    library = floors.library()
    if library is None:
        yield Missing(WHAT, "there is no C compiler for the floor")
        return
    device = hal.Device["CPU"]
    buffers = [hal.Buffer.from_numpy(np.ones(COUNT, "f4"), device=device) for _ in range(3)]
    program = device.compile(add)
    ours = {"program": program, "n": COUNT} | dict(zip("cab", buffers, strict=True))
    floor = {"add": library.add, "n": ctypes.c_int32(COUNT)} | {
        name: ctypes.c_void_p(np.asarray(buffer).ctypes.data)
        for name, buffer in zip("cab", buffers, strict=True)
    }
    peers = Peers(numba=_numba)
    tasks = {
        OURS: Task("program(c, a, b, vals=(n,), grid=(1, 1, 1), block=(16, 1, 1))", ours),
        "ctypes": Task("add(c, a, b, n)", floor),
    }
    times = compare(tasks | peers.tasks, effort)
    others = peers.results(times)
    yield beside(WHAT, times, "ctypes", 0.25, name="prebuilt ctypes call", peers=others)


def _numba() -> Task:
    import numba

    def plain(c, a, b, n):
        for i in range(n):
            c[i] = a[i] + b[i]

    compiled = numba.njit(plain)
    arrays = {name: np.ones(COUNT, "f4") for name in "cab"}
    return Task("add(c, a, b, n)", {"add": compiled, "n": COUNT} | arrays)
