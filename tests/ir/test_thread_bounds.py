"""With the bounds of a row as nodes, the threads that have an effect run, and no others need to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from barrier_kernels import BLOCKS, SIZE, drawn
from stepping import Block, Memory, listing
from worked_examples import side_by_side

import hal_core as hal
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.blocks import thread_bounds
from hal_kernel.ir.blocks.fission import split
from hal_kernel.ir.blocks.thread_bounds import with_bounds
from hal_kernel.ir.fold import fold

# mypy: disable-error-code="no-untyped-def"

Ints, Given = hal.Ptr[hal.int32], hal.ConstPtr[hal.int32]
KERNELS: list[hal.KernelFunction] = []


def guarded(function) -> hal.KernelFunction:
    KERNELS.append(hal.kernel(function))
    return KERNELS[-1]


@guarded
def below(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[i % 3] + 1


@guarded
def leaves(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    if n <= i:
        return
    y[i] = 2


@guarded
def interior(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    if 0 < i < n - 1 and n > 2:
        y[i] += x[0] + 3


@guarded
def from_one_on(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0) + 1
    if i <= n and x[1] > -9:
        y[i - 1] = i


@guarded
def only_one(y: Ints, x: Given, n: hal.int32):
    if hal.global_idx(0) - 2 == n:
        y[hal.global_idx(0)] = 5


@guarded
def of_the_block(y: Ints, x: Given, n: hal.int32):
    if hal.thread_idx(0) >= n and hal.block_idx(0) == 1:
        y[hal.global_idx(0)] = 6


@guarded
def in_64_bits(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    if hal.int64(i) < hal.int64(n) * 3:
        y[i] = 7


@guarded
def with_another_side(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = 8
    else:
        y[i] = 9


@guarded
def used_again(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    few = i < n
    if few:
        y[i] = 10 if few else 11


def run(kernel: Kernel, uops: Sequence[UOp] | None, n: int) -> list[int]:
    memory: Memory = {
        0: [3 * k for k in range(BLOCKS * SIZE)],
        1: [(5 * k) % 7 - 2 for k in range(SIZE)],
    }
    threads = kernel.block[0] if kernel.block else SIZE
    for block in range(BLOCKS):
        made = Block(kernel.uops if uops is None else uops, memory, {2: n}, block, threads)
        made.run() if uops is None else made.run_split("shuffled")
    return memory[0]


def is_right(kernel: Kernel, n: int) -> bool:
    return run(kernel, with_bounds(split(kernel)), n) == run(kernel, None, n)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_bounded_kernel_does_what_the_kernel_does(kernel: hal.KernelFunction) -> None:
    for n in range(-2, BLOCKS * SIZE + 3):
        assert is_right(fold(kernel.lower()), n), n


def test_so_do_kernels_with_barriers() -> None:
    for seed in range(200):
        kernel = drawn(seed)
        assert is_right(kernel, seed % 5 - 1), f"{seed}\n{listing(kernel.uops)}"


@pytest.mark.parametrize("kernel", KERNELS[:4], ids=lambda kernel: kernel.name)
def test_no_test_of_the_index_is_left_in_the_loop(kernel: hal.KernelFunction) -> None:
    uops = with_bounds(split(fold(kernel.lower())))
    tests = [node.src[0] for node in uops if node.op == "IF"]
    assert not any("SPECIAL" in {source.op for source in test.src} for test in tests)


def test_the_module_shows_what_becomes_of_a_region() -> None:
    @hal.kernel
    def few(y: Ints, n: hal.int32):
        i = hal.thread_idx(0)
        if i < n:
            y[i] = 1

    before = split(fold(few.lower()))
    assert side_by_side(before, with_bounds(before)) in str(thread_bounds.__doc__)


_Bounded = thread_bounds._Bounded
_place, _within, _ends = _Bounded._place, _Bounded._within, _Bounded._start_and_end


def _none_ahead(self, limits, zero, width):
    return zero, _within(self, limits, zero, width)[1]


def _past_the_end(self, limits, zero, width):
    return _within(self, limits, zero, width)[0], width


MUTANTS = {
    "begins with the first thread": ("_within", _none_ahead),
    "runs to the last thread": ("_within", _past_the_end),
    "counts from the grid's first thread": (
        "_place",
        lambda self, limit: self._new("CAST", hal.int64, self.made.get(limit.end, limit.end)),
    ),
    "takes LE for LT": (
        "_within",
        lambda self, limits, *sides: _within(
            self, [one._replace(op=one.op.replace("LE", "LT")) for one in limits], *sides
        ),
    ),
    "runs rows that do nothing": (
        "_start_and_end",
        lambda self, found: _ends(self, found._replace(rows=[])),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Bounded, *MUTANTS[name])
    made = [fold(kernel.lower()) for kernel in KERNELS]
    if all(is_right(kernel, n) for kernel in made for n in range(-1, BLOCKS * SIZE)):
        pytest.fail(f"a bound that {name} does the same")
