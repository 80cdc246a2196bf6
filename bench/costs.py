"""Measure spellings that cost on the CPU beside others that do as much, on one core and in cache.

The rows of the table in docs/speed.md. They have no target: the page says what each costs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import hal_core as hal
from bench import kernels, launch, programs
from bench.kernels import Array, Input
from bench.measure import OURS, Effort, Task, compare
from bench.report import Row, beside

COUNT = 32 << 10  # elements of an array
BLOCK = 256
ROW = 33
LISTS, LENGTH = 2048, 64  # that are searched
Ints = hal.Ptr[hal.int32]
Places = hal.ConstPtr[hal.int32]


@hal.kernel
def by_range(y: Array, x: Input, a: hal.float32, n: hal.int32):
    for i in range(hal.global_idx(0), n, hal.grid_dim(0) * hal.block_dim(0)):
        y[i] = a * x[i] + y[i]


@hal.kernel
def behind_the_first(y: Array, x: Input, a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    if 0 < i < n:
        y[i] = a * x[i] + y[i]


@hal.kernel
def positive(y: Array, x: Input, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w * h and x[i] > 0.0:
        y[i] = x[i] + x[i]


@hal.kernel
def selected(y: Array, x: Input, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w * h:
        y[i] = x[i] + x[i] if x[i] > 0.0 else y[i]


@hal.kernel
def saxpy64(y: hal.Ptr[hal.float64], x: hal.ConstPtr[hal.float64], a: hal.float64, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@hal.kernel
def copy(y: Array, x: Input, p: Places, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[i] + hal.float32(p[i])


@hal.kernel
def gather(y: Array, x: Input, p: Places, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[p[i]]


@hal.kernel
def scatter(y: Array, x: Input, p: Places, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[p[i]] = x[i]


@hal.kernel
def neighbours(y: Array, x: Input, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[i] + x[i + n] + x[i + 2 * n]


@hal.kernel
def two_sides(y: Array, x: Input, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if x[i] > 0.0:
            y[i] = hal.exp(hal.sin(x[i]))
        else:
            y[i] = hal.log(hal.cos(x[i]) + 2.0)


@hal.kernel
def search_range(y: Ints, x: Input, m: hal.int32, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        at = -1
        for k in range(m):
            if x[k * n + i] > 0.97:
                at = k
                break
        y[i] = at


@hal.kernel
def search_while(y: Ints, x: Input, m: hal.int32, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        k = 0
        while k < m and x[k * n + i] <= 0.97:
            k += 1
        y[i] = k


@hal.kernel
def heat_flat(y: Array, x: Input, a: hal.float32, w: hal.int32, h: hal.int32):
    c = hal.global_idx(0)
    i, j = c % w, c // w
    if 0 < i < w - 1 and 0 < j < h - 1:
        y[c] = x[c] + a * (x[c - 1] + x[c + 1] + x[c - w] + x[c + w] - 4.0 * x[c])


@hal.kernel
def rows_of_three(y: Array, x: Input, a: hal.float32, n: hal.int32):
    c = hal.global_idx(0)
    j = hal.global_idx(1)
    if c < 3 and j < n:
        y[3 * j + c] = a * x[3 * j + c] + y[3 * j + c]


@hal.kernel
def atomic_in_memory(y: Ints, x: Places, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        hal.atomic_add(y, 0, x[i])


@hal.kernel(block=BLOCK)
def atomic_in_block(y: Ints, x: Places, n: hal.int32):
    total = hal.shared(hal.int32, 1)
    i = hal.global_idx(0)
    if hal.thread_idx(0) == 0:
        total[0] = 0
    hal.barrier()
    if i < n:
        hal.atomic_add(total, 0, x[i])
    hal.barrier()
    if hal.thread_idx(0) == 0:
        hal.atomic_add(y, 0, total[0])


@hal.kernel
def strided_sums(y: Array, x: Input, n: hal.int32):
    total = hal.float32(0)
    i = hal.global_idx(0)
    for k in range(i, n, BLOCK):
        total += x[k]
    y[i] = total


@hal.kernel(block=BLOCK)
def halves(y: Array, x: Input, n: hal.int32):
    part = hal.shared(hal.float32, BLOCK)
    t = hal.thread_idx(0)
    part[t] = x[hal.global_idx(0)]
    hal.barrier()
    half = hal.int32(BLOCK // 2)
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        hal.barrier()
        half //= 2
    if t == 0:
        y[hal.block_idx(0)] = part[0]


@hal.kernel(block=BLOCK)
def every_other(y: Array, x: Input, n: hal.int32):
    part = hal.shared(hal.float32, BLOCK)
    t = hal.thread_idx(0)
    part[t] = x[hal.global_idx(0)]
    hal.barrier()
    step = hal.int32(1)
    while step < BLOCK:
        if t % (2 * step) == 0:
            part[t] += part[t + step]
        hal.barrier()
        step *= 2
    if t == 0:
        y[hal.block_idx(0)] = part[0]


def make_sums(by_rows: bool) -> hal.KernelFunction:
    @hal.kernel
    def sums(y: Array, x: Input, w: hal.int32, h: hal.int32):
        i = hal.global_idx(0)
        if i < w:
            total = hal.float32(0)
            for k in range(h):
                total += x[i * h + k] if by_rows else x[k * w + i]
            y[i] = total

    return sums


def make_strided(step: int) -> hal.KernelFunction:
    @hal.kernel
    def strided(y: Array, x: Input, n: hal.int32):
        i = hal.global_idx(0)
        if i < n:
            y[i] = x[step * i] + x[step * i + 1] + x[step * i + 2]

    return strided


def make_local(varies: bool) -> hal.KernelFunction:
    @hal.kernel
    def own_places(y: Array, x: Input, p: Places, n: hal.int32):
        own = hal.local(hal.float32, 8)
        i = hal.global_idx(0)
        if i < n:
            for k in range(8):
                own[k] = x[k * n + i]
            total = hal.float32(0)
            for k in range(8):
                total += own[k] * own[(p[i] + k) % 8 if varies else 7 - k]
            y[i] = total

    return own_places


def make_blur(clamps: bool) -> hal.KernelFunction:
    edge = 0 if clamps else 1

    @hal.kernel
    def blur(y: Array, x: Input, w: hal.int32, h: hal.int32):
        i = hal.global_idx(0)
        j = hal.global_idx(1)
        if edge <= i < w - edge and edge <= j < h - edge:
            total = hal.float32(0)
            for b in range(-1, 2):
                for a in range(-1, 2):
                    row = min(max(j + b, 0), h - 1) if clamps else j + b
                    column = min(max(i + a, 0), w - 1) if clamps else i + a
                    total += x[row * w + column]  # type: ignore[operator, arg-type]
            y[j * w + i] = total

    return blur


def make_scaled(divides: bool) -> hal.KernelFunction:
    @hal.kernel
    def scaled(y: Ints, x: Places, n: hal.int32):
        i = hal.global_idx(0)
        if i < n:
            y[i] = x[i] // n if divides else x[i] * n

    return scaled


class Case(NamedTuple):
    """A kernel and its launch; `arrays` are copied."""

    kernel: hal.KernelFunction
    arrays: tuple[np.ndarray[Any, Any], ...]
    vals: tuple[object, ...]
    threads: int | tuple[int, int]


def cases() -> Iterator[tuple[str, Case, str, Case]]:
    """Yield what costs, its launch, and the spelling beside it with its own launch."""
    random = np.random.default_rng(0)
    x = random.random(COUNT, "f4")
    two, places = (x, x), random.permutation(COUNT).astype("i4")
    signed = x - np.float32(0.5)
    ints, a = (255 * x).astype("i4"), 1e-9
    each = Case(kernels.saxpy, two, (a, COUNT), COUNT)
    yield "if 0 < i < n", each._replace(kernel=behind_the_first), "if i < n", each
    strides = Case(by_range, two, (a, COUNT), 2048)
    yield "range(i, n, 2048)", strides, "a thread for each element", each
    wide = Case(saxpy64, tuple(v.astype("f8") for v in two), (a, COUNT), COUNT)
    yield "float64", wide, "float32", each
    for kernel in (gather, scatter):
        yield (
            kernel.name, Case(kernel, (x, x, places), (COUNT,), COUNT),
            "the same bytes in order", Case(copy, (x, x, places), (COUNT,), COUNT),
        )  # fmt: skip
    long = random.random(17 * COUNT // 8, "f4")
    near = Case(neighbours, (x, long), (COUNT // 8,), COUNT // 8)
    for name, step in (("every_eighth", 8), ("every_seventeenth", 17)):
        yield name, near._replace(kernel=make_strided(step)), "neighbours", near
    known = Case(make_local(False), (x, x, places), (COUNT // 8,), COUNT // 8)
    name = "hal.local with an index that varies"
    yield name, known._replace(kernel=make_local(True)), "constant indices", known
    table, size = random.random(LISTS * LENGTH, "f4"), (LISTS, LENGTH)
    down = Case(make_sums(False), (x, table), size, LISTS)
    rows = Case(make_sums(True), (x, table), size, LISTS)
    yield "sums, a thread for each row", rows, "a thread for each column", down
    stored = Case(positive, (x, signed), (COUNT, 1), COUNT)
    chosen = Case(selected, (x, signed), (COUNT, 1), COUNT)
    yield "a store under a test of random data", stored, "a choice", chosen
    apart = Case(two_sides, (x, signed), (COUNT,), COUNT)
    yield (
        "two long sides, random data", apart,
        "sorted data", apart._replace(arrays=(x, np.sort(signed))),
    )  # fmt: skip
    found = Case(search_range, (np.zeros(LISTS, "i4"), table), (LENGTH, LISTS), LISTS)
    yield "a search by while", found._replace(kernel=search_while), "range and break", found
    plate = (a, 1024, 32), (1024, 32)
    level = Case(programs.heat, two, *plate)
    for width in (8, ROW, 256):
        height = COUNT // width
        short = Case(programs.heat, two, (a, width, height), (width, height))
        yield f"heat equation in rows of {width}", short, "rows of 1024", level
        flat = short._replace(kernel=heat_flat, threads=width * height)
        yield f"k // {width} in each thread", flat, "two dimensions", short
    three = Case(rows_of_three, two, (a, COUNT // 3), (3, COUNT // 3))
    row = Case(kernels.saxpy, two, (a, COUNT // 3 * 3), COUNT // 3 * 3)
    yield "threads=(3, n)", three, "threads=3 * n", row
    border = Case(make_blur(True), two, (256, 128), (256, 128))
    yield (
        "3 x 3 with clamps, rows of 256",
        border,
        "without",
        border._replace(kernel=make_blur(False)),
    )
    divided = Case(make_scaled(True), (ints, ints), (COUNT,), COUNT)
    yield "x[i] // n", divided, "x[i] * n", divided._replace(kernel=make_scaled(False))
    inside = Case(atomic_in_block, (ints, ints), (COUNT,), COUNT)
    outside = inside._replace(kernel=atomic_in_memory)
    yield "an atomic sum in memory", outside, "in hal.shared", inside
    tree = Case(halves, two, (COUNT,), COUNT)
    yield ("a sum by halves", tree, "sums at a stride", Case(strided_sums, two, (COUNT,), BLOCK))
    yield "a sum by t % (2 * s) == 0", tree._replace(kernel=every_other), "by halves", tree


FORMS = {  # of a launch of few threads; `sizes` are new each time, `known` are not
    "vals as a list": "program(*buffers, vals=[n], threads=n)",
    "numbers of numpy": "program(*buffers, vals=(number,), threads=n)",
    "the order of the kernel": "program(*buffers, n, threads=n)",
    "grid=[1], block=[n]": "program(*buffers, vals=(n,), grid=[1], block=[n])",
    "threads=[n]": "program(*buffers, vals=(n,), threads=[n])",
    "threads= that changes": "program(*buffers, vals=(n,), threads=next(sizes))",
    "threads= in new blocks": "program(*buffers, vals=(n,), threads=next(shapes))",
    "threads= in known sizes": "program(*buffers, vals=(n,), threads=next(known))",
}


def forms(effort: Effort) -> Iterator[Row]:
    """Measure launches by the form of their arguments."""
    device, n = hal.Device["CPU"], launch.COUNT
    buffers = [hal.Buffer.from_numpy(np.ones(n, "f4"), device) for _ in range(3)]
    names: dict[str, Any] = {"program": device.compile(launch.add), "buffers": buffers, "n": n}
    names |= {"number": np.int32(n), "known": itertools.cycle(range(5000, 5100))}
    names |= {"sizes": itertools.cycle(range(257, 4353))}
    names |= {"shapes": itertools.cycle(itertools.product(range(1, 60), range(1, 50)))}
    usual, name = Task("program(*buffers, vals=(n,), threads=n)", names), "vals=(n,), threads=n"
    tasks = {form: Task(statement, names) for form, statement in FORMS.items()}
    times = compare({name: usual, **tasks}, effort)
    for form in FORMS:
        yield beside(f"launch, {form}", times, name, None, ours=form)


def rows(effort: Effort) -> Iterator[Row]:
    """Measure on one core, as the times of the page are."""
    with kernels.threads(1):
        yield from forms(effort)
        for what, slow, name, fast in cases():
            times = compare({OURS: _task(slow), name: _task(fast)}, effort)
            yield beside(what, times, name, None)


def _task(case: Case) -> Task:
    buffers = [hal.Buffer.from_numpy(array, device="CPU") for array in case.arrays]
    names = {"program": hal.Device["CPU"].compile(case.kernel), "buffers": buffers}
    names |= {"v": case.vals, "t": case.threads}
    return Task("program(*buffers, vals=v, threads=t)", names)
