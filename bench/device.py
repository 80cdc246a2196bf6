"""The speed of hal on one device of any family, compared with the driver's own interface."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import hal_core as hal
from bench import report
from bench.bare import Bare
from bench.kernels import FACTOR, Array, Input, make_saxpy, saxpy
from bench.launch import COUNT, add
from bench.measure import OURS, Effort, Task, call, compare
from bench.peers import Peers
from bench.report import Figure, Missing, Row, Work
from bench.sizes import Sizes, choose, multiplication, readable

BATCH = 64  # launches before a wait: fewer than a queue holds
BATCH_SECONDS = (
    0.005  # that long launches take together, so that the wait after them does not count
)
Found = Row | Figure | Missing


@hal.kernel
def copied(y: Array, x: Input, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[i]


@hal.kernel
def copied_by_four(y: Array, x: Input, n: hal.int32):
    i = 4 * hal.global_idx(0)
    if i < n:
        a, b, c, d = hal.load(x, i, 4)
        hal.store(y, i, a, b, c, d)


@hal.kernel
def saxpy_by_four(y: Array, x: Input, f: hal.float32, n: hal.int32):
    i = 4 * hal.global_idx(0)
    if i < n:
        a, b, c, d = hal.load(x, i, 4)
        e, g, h, j = hal.load(y, i, 4)
        hal.store(y, i, f * a + e, f * b + g, f * c + h, f * d + j)


class Stream(NamedTuple):
    """A kernel that is bound by memory."""

    what: str
    kernel: hal.KernelFunction
    each: int  # elements of a thread
    moved: int  # arrays that are read or written
    vals: tuple[float, ...] = ()


STREAMS = (
    Stream("copy kernel", copied, 1, 2),
    Stream("copy kernel, 4 elements a thread", copied_by_four, 4, 2),
    Stream("saxpy", saxpy, 1, 3, (FACTOR,)),
    Stream("saxpy, 4 elements a thread", saxpy_by_four, 4, 3, (FACTOR,)),
)


def floor_of(device: hal.Compiled) -> Bare | None:
    """Return the driver's own interface, or None for a family without one in this folder."""
    if device.family == "CUDA":
        from bench.cuda import CUDA

        return CUDA(device)
    if device.family == "HIP":
        from bench.hip import HIP

        return HIP(device)
    if device.family == "OPENCL":
        from bench.opencl import OpenCL

        return OpenCL(device)
    return None


class Bench(NamedTuple):
    """The device and the settings of a run. `floor` is None for a family without one."""

    device: hal.Compiled
    floor: Bare | None
    sizes: Sizes
    effort: Effort

    @property
    def rarely(self) -> Effort:
        return self.effort.rarely()

    def beside(self, what: str, kind: str, tasks: dict[str, Task], effort: Effort) -> Row | Figure:
        """Make a row of hal, the floor if there is one, and the peers."""
        times = compare(tasks, effort)
        peers = {name: times.typical(name) for name in tasks if name not in (OURS, "floor")}
        if self.floor is None:
            return Figure(what, times.typical(OURS), peers)
        target = self.floor.targets.get(kind)
        return report.beside(what, times, "floor", target, name=self.floor.name, peers=peers)


def rows(name: str, effort: Effort, quick: bool) -> Iterator[tuple[str, list[Found]]]:
    """Yield each part's name, then its rows. A part that fails gives a row that says so."""
    # A driver's own cache would make a cold compile look warm. It is read when the driver starts.
    os.environ |= {"CUDA_CACHE_DISABLE": "1", "POCL_KERNEL_CACHE": "0"}
    device = hal.Device[name]
    bench = Bench(device, floor_of(device), choose(device, quick), effort)
    yield "sizes", [Missing("sizes", bench.sizes.note)] if bench.sizes.note else []
    for part in PARTS:
        yield part.__name__, list(_guarded(part, bench))


def _guarded(part: Callable[[Bench], Iterator[Found]], bench: Bench) -> Iterator[Found]:
    try:
        yield from part(bench)
    except Exception as error:  # the rows of other parts are still useful
        why = f"failed: {type(error).__name__}: {error}"
        yield Missing(part.__name__, " ".join(why.split())[:300], failed=True)


# -- the parts of the table


def launching(bench: Bench) -> Iterator[Found]:
    """Measure the call alone: the wait for its work is not timed."""
    device, floor = bench.device, bench.floor
    buffers = [hal.Buffer.from_numpy(np.ones(COUNT, "f4"), device) for _ in "cab"]
    names = {"program": device.compile(add), "turns": range(BATCH), "n": COUNT}
    names |= dict(zip("cab", buffers, strict=True))
    statement = "for _ in turns: program(c, a, b, vals=(n,), grid=(1, 1, 1), block=(16, 1, 1))"
    tasks = {OURS: Task(statement, names, BATCH, device.synchronize)}
    peers = Peers()
    if floor is not None:
        tasks["floor"] = floor.launch(add, COUNT, BATCH)
        peers = Peers(**floor.peers(add, COUNT, BATCH))
    effort = Effort(bench.effort.rounds, 0.0)
    row = bench.beside("launch, 3 buffers + 1 int", "launch", tasks | peers.tasks, effort)
    yield row._replace(peers={**row.peers, **peers.reasons})


def allocating(bench: Bench) -> Iterator[Found]:
    names = {"Buffer": hal.Buffer, "device": bench.device, "f4": hal.float32}
    tasks = {OURS: Task("Buffer(device, 256, f4).allocate()", names)}
    if bench.floor is not None:
        tasks["floor"] = bench.floor.allocate(1024)
    effort = bench.effort._replace(seconds=min(bench.effort.seconds, 1e-3))
    yield bench.beside("allocate and free 1 KiB, from the cache", "allocate", tasks, effort)


def copying(bench: Bench) -> Iterator[Found]:
    for nbytes in bench.sizes.copies:
        for direction in ("in", "out"):
            for pinned in (True, False):
                yield _copy(bench, direction, nbytes, pinned)


def _copy(bench: Bench, direction: str, nbytes: int, pinned: bool) -> Found:
    device = bench.device
    there = hal.Buffer(device, nbytes, hal.uint8).fill(1)
    names: dict[str, object] = {"there": there, "wait": device.synchronize}
    if pinned:
        names["here"] = hal.Buffer(device, nbytes, hal.uint8, hal.BufferSpec(host=True)).fill(1)
        ends = "there.copy_from(here)" if direction == "in" else "here.copy_from(there)"
        statement = f"{ends}; wait()"
    else:
        names["here"] = np.ones(nbytes, np.uint8)
        statement = f"there.copy{direction}(here)" + "; wait()" * (direction == "in")
    tasks = {OURS: Task(statement, names)}
    if bench.floor is not None:
        make = bench.floor.copy_in if direction == "in" else bench.floor.copy_out
        tasks["floor"] = make(nbytes, pinned)
    what = f"copy {direction} {readable(nbytes)}, {'pinned' if pinned else 'numpy'} memory"
    effort = bench.effort if nbytes <= 1 << 20 else bench.rarely
    # Below this the two calls of a copy and its wait count, in the floor's language and in ours.
    bound_by_bus = pinned and nbytes >= 16 << 20
    row = bench.beside(what, "copy" if bound_by_bus else "", tasks, effort)
    return row._replace(work=Work(nbytes, nbytes, "GB/s"))


def streaming(bench: Bench) -> Iterator[Found]:
    """Measure kernels that are bound by memory, compared with a copy within the device."""
    for stream in STREAMS:
        for pair in pairs(bench.device):
            yield _stream(bench, stream, pair, bench.sizes.array)


def _stream(bench: Bench, stream: Stream, pair: str, nbytes: int) -> Found:
    device, n = bench.device, nbytes // 4
    threads = n // stream.each
    y, x = (hal.empty(n, hal.float32, device).fill(1) for _ in "yx")
    with using(device, pair):
        program = device.compile(stream.kernel.lower())  # a plain Kernel is compiled for each pair
    once = program(y, x, vals=(*stream.vals, n), threads=threads, wait=True)
    batch = max(1, min(BATCH, int(BATCH_SECONDS / max(once, 1e-6))))

    def run() -> None:
        for _ in range(batch):
            program(y, x, vals=(*stream.vals, n), threads=threads)
        device.synchronize()

    tasks = {OURS: call(run, batch)}
    if bench.floor is not None:
        tasks["floor"] = bench.floor.copy(nbytes, batch)
    what = f"{stream.what} over {readable(nbytes)}, {pair}"
    # On a GPU an element a thread leaves too few bytes under way.
    row = bench.beside(what, "kernel" if stream.each > 1 else "", tasks, bench.rarely)
    # A copy moves every byte twice: it reads and writes.
    if isinstance(row, Row):
        row = row._replace(score=row.score * stream.moved / 2)
    return row._replace(work=Work(stream.moved * nbytes, 2 * nbytes, "GB/s"))


def compiling(bench: Bench) -> Iterator[Found]:
    """Measure from a function to a loaded program, each time for a new function."""
    device, effort = bench.device, bench.rarely
    with tempfile.TemporaryDirectory() as folder:
        for pair in pairs(device):
            for cached in (False, True):
                with using(device, pair, HAL_CCACHE=str(int(cached)), HAL_CACHE_DIR=folder):
                    times = compare({OURS: call(lambda: device.compile(make_saxpy()))}, effort)
                where = "from the cache on disk" if cached else "no cache"
                yield Figure(f"saxpy to a loaded program, {pair}, {where}", times.typical(OURS))


def multiplying(bench: Bench) -> Iterator[Found]:
    for size in bench.sizes.matrices:
        run, is_right = multiplication(bench.device, size)
        run()
        if not is_right():
            raise ValueError(f"the product of {size} x {size} is wrong")
        multiply = bench.floor.multiply(size) if bench.floor is not None else {}
        peers = Peers(**multiply)
        times = compare({OURS: call(run), **peers.tasks}, bench.rarely)
        work = Work(2 * size**3, 0, "GFLOP/s")
        what = f"tiled matmul {size} float32"
        yield Figure(what, times.typical(OURS), peers.results(times), work)


PARTS = (launching, allocating, copying, streaming, compiling, multiplying)


# -- compilers


def compilers(device: hal.Compiled) -> dict[str, str]:
    """Map each pair for rendered kernels to the reason why it cannot serve, or to ""."""
    found = {}
    for pair in device.compilers:
        if pair.renderer is None:
            continue
        found[pair.name] = ""
        try:
            with using(device, pair.name):
                device.compiler  # noqa: B018  # makes the compiler
        except hal.CompilerUnavailable as error:
            found[pair.name] = error.problem
    return found


def pairs(device: hal.Compiled) -> list[str]:
    return [name for name, why in compilers(device).items() if not why]


def using(device: hal.Compiled, pair: str, **environment: str) -> AbstractContextManager[Any]:
    """Make the device compile with this pair and these settings inside the block."""
    return patch.dict(os.environ, {f"{device.family}_CC": pair, **environment})
