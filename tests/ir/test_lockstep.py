"""Loops that threads run in step do what they did, and only loops that gain by it are."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from barrier_kernels import BLOCKS, drawn
from builder import Builder
from stepping import Block, Memory, listing
from worked_examples import side_by_side

import hal_core as hal
from hal_core.dtypes import int32
from hal_kernel.ir import Kernel, UOp, loops
from hal_kernel.ir.blocks import lockstep, nest_parts, nests
from hal_kernel.ir.blocks.fission import split
from hal_kernel.ir.verify import verify

# mypy: disable-error-code="no-untyped-def"

ORDERS = ("forward", "reversed", "shuffled", "interleaved")
Run = Callable[[Block], None]


def outcome(kernel: Kernel, memory: Memory, n: int, run: Run, split_: bool = True) -> list[int]:
    threads = kernel.block[0] if kernel.block else 4
    uops = split(kernel, grouped=True) if split_ else kernel.uops
    memory = {key: list(values) for key, values in memory.items()}
    for number in range(BLOCKS):
        run(Block(uops, memory, {2: n}, number, threads))
    return memory[0]


def same(kernel: Kernel, memory: Memory, n: int) -> str | None:
    """In which order of the threads a split kernel does something else."""
    expected = outcome(kernel, memory, n, Block.run, split_=False)
    for order in ORDERS:
        if outcome(kernel, memory, n, lambda block, o=order: block.run_split(o)) != expected:
            return order
    return None


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every loop that can go outside does."""
    monkeypatch.setattr(lockstep, "_VECTOR_STRIDES", (None, *range(-(2**9), 2**9)))
    monkeypatch.setattr(loops, "_UNROLLED", -1)
    monkeypatch.setattr(loops, "_UNROLLED_STORES", -1)
    monkeypatch.setattr(lockstep, "_FEWEST_LANES", 1)


def test_drawn_kernels(eager: None) -> None:
    found = 0
    memory = {0: [3 * k for k in range(12)], 1: [(5 * k) % 7 - 2 for k in range(6)]}
    for seed in range(250):
        kernel = drawn(seed, barriers=seed % 3 > 0)
        found += lockstep.in_step(kernel) is not None
        order = same(kernel, memory, seed % 5 - 1)
        assert order is None, f"{seed}, {order}\n{listing(kernel.uops)}"
    assert found > 20


def test_drawn_loops_in_ifs(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nest_parts, "_is_guard", lambda test: True)
    monkeypatch.setattr(nest_parts, "_SHORT", -1)
    memory = {0: [3 * k for k in range(12)], 1: [(5 * k) % 7 - 2 for k in range(6)]}
    found: list[UOp] = []
    moved = nests.with_loops_outside

    def counted(uops: tuple[UOp, ...]) -> tuple[tuple[UOp, ...], list[UOp]]:
        uops, outermost = moved(uops)
        found.extend(outermost)
        return uops, outermost

    monkeypatch.setattr(lockstep, "with_loops_outside", counted)
    for seed in range(500, 750):
        kernel = drawn(seed, barriers=seed % 3 > 0)
        order = same(kernel, memory, seed % 5 - 1)
        assert order is None, f"{seed}, {order}\n{listing(kernel.uops)}"
    assert len(found) > 50


class Strided:
    """Kernels as reductions and sweeps are written: loops over a stride from the thread's number,
    in each other and under conditions, with sums that go on."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.b = b = Builder("strided", "y: int32*, x: const int32*, n: int32")
        self.wide = self.rng.choice([1, 3, 4])
        self.t, self.i, self.n = b.special("thread_idx"), b.index(), b.params["n"]
        guards = [b.if_(self.condition(guard=True)) for _ in range(self.rng.choice([0, 0, 1, 2]))]
        self.sum, self.other = b.var("sum", self.i), b.var("other", b.const(1))
        for _ in range(self.rng.randint(1, 3)):
            self.loop(2)
            self.step()
        b.store("y", self.i, b.op("XOR", b.get(self.sum), b.get(self.other)))
        for guard in reversed(guards):
            b.end(guard)

    def condition(self, guard: bool = False) -> UOp:
        left = self.rng.choice([self.t, self.i] if guard else [self.t, self.i, self.n])
        right = self.rng.choice([self.n, self.b.const(self.rng.randint(0, 9))])
        return self.b.op(self.rng.choice(["LT", "LE", "GT", "NE"]), left, right)

    def start(self) -> UOp:
        b, rng = self.b, self.rng
        return rng.choice([
            lambda: self.t, lambda: self.i, lambda: b.const(rng.randint(-3, 3)), lambda: self.n,
            lambda: b.op("ADD", self.t, b.const(rng.randint(0, 5))),
            lambda: b.op("ADD", self.i, b.const(1)), lambda: b.op("SUB", self.t, b.const(1)),
        ])()  # fmt: skip

    def loop(self, depth: int) -> None:
        b, rng = self.b, self.rng
        stop = rng.choice([self.n, b.const(rng.randint(-2, 14)), b.op("ADD", self.n, b.const(5))])
        step = rng.choice([1, 1, 2, 3, 4, 7, -1, -2])
        k = b.range(self.start(), stop, b.const(step), "k")
        for _ in range(rng.randint(1, 2)):
            self.step(k)
            if depth and rng.random() < 0.4:
                self.loop(depth - 1)
        if rng.random() < 0.3:
            block = b.if_(b.op("LT", k, self.n))
            self.step(k)
            b.end(block)
        b.end(k)

    def step(self, k: UOp | None = None) -> None:
        b, rng = self.b, self.rng
        value = self.i if k is None else k
        if rng.random() < 0.6:
            value = b.load("x", b.op("AND", value, b.const(7)))
        kept = rng.choice([self.sum, self.other])
        b.set(kept, b.op(rng.choice(["ADD", "MUL", "XOR", "MAX"]), b.get(kept), value))
        if rng.random() < 0.3:
            b.store("y", b.op("ADD", self.i, b.const(8)), b.get(kept))

    def kernel(self) -> Kernel:
        return self.b.kernel(block=(self.wide, 1, 1))


STRIDED_MEMORY: Memory = {0: list(range(24)), 1: [7, -3, 5, 2, 11, -8, 1, 4]}


def test_strided_loops(eager: None) -> None:
    found = turned = 0
    for seed in range(200):
        kernel, n = Strided(seed).kernel(), seed % 13 - 2
        verify(kernel)
        known = lockstep.in_step(kernel)
        if known:
            found += 1
            turned += any(node.op == "SUB" for node in known.hoisted)
        order = same(kernel, STRIDED_MEMORY, n)
        assert order is None, f"{seed}, {order}\n{listing(kernel.uops)}"
    assert found > 80 and turned > 40


@pytest.mark.parametrize("stop", [2**31 - 1, 2**31 - 3, 0, -(2**31)])
def test_a_stride_that_would_overflow(eager: None, stop: int) -> None:
    b = Builder("far", "y: int32*, x: const int32*, n: int32")
    total = b.var("total", b.const(0))
    k = b.range(b.special("thread_idx"), b.params["n"], b.const(2**30))
    b.set(total, b.op("ADD", b.op("MUL", b.get(total), b.const(3)), k))
    b.end(k)
    b.store("y", b.index(), b.get(total))
    kernel = b.kernel(block=(4, 1, 1))
    assert lockstep.in_step(kernel)
    assert same(kernel, {0: [0] * 8, 1: []}, stop) is None


# -- which loops


def _raised(kernel: Any) -> list[str]:
    known = lockstep.in_step(kernel.lower())
    return [node.arg for node in known.hoisted if node.op == "RANGE"] if known else []


@hal.kernel
def product(
    c: hal.Ptr[hal.float32], a: hal.ConstPtr[hal.float32], b: hal.ConstPtr[hal.float32],
    n: hal.int32,
):  # fmt: skip
    column = hal.global_idx(0)
    row = hal.global_idx(1)
    if row < n and column < n:
        total = 0.0
        for k in range(n):
            total += a[row * n + k] * b[k * n + column]
        c[row * n + column] = total


@hal.kernel
def sweep(y: hal.Ptr[hal.float32], n: hal.int32):
    for i in range(hal.global_idx(0), n, 1024):
        y[i] = y[i] * 2.0


@hal.kernel
def window(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], r: hal.int32, w: hal.int32):
    i = hal.global_idx(0)
    total = 0.0
    for dy in range(-r, r + 1):
        for dx in range(-r, r + 1):
            total += x[(dy + r) * w + i + dx + r]
    y[i] = total


@hal.kernel
def in_some_rows(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], h: hal.int32, w: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    total = 0.0
    for dy in range(h):
        if j + dy < h:
            for dx in range(w):
                if i + dx < w:
                    total += x[(j + dy) * w + i + dx]
    y[j * w + i] = total


@hal.kernel(block=64)
def behind_a_barrier(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32):
    weights = hal.shared(hal.float32, 64)
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    weights[t] = x[t]
    hal.barrier()
    if i < n:
        total = hal.float32(0)
        for k in range(n):
            total += weights[k] * x[i + k]
        y[i] = total


@hal.kernel
def in_few_threads(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    if i < 1:
        total = hal.float32(0)
        for k in range(n):
            total += x[i + k]
        y[i] = total
    y[i] += 1.0


@hal.kernel
def row_sums(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32):
    row = hal.global_idx(0)
    total = 0.0
    for k in range(n):
        total += x[row * n + k]  # a stride between threads: in step they would gather
    y[row] = total


@hal.kernel
def few_turns(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32]):
    i = hal.global_idx(0)
    for k in range(8):
        y[i] = y[i] + x[i + k]


@hal.kernel
def left_early(y: hal.Ptr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    for _ in range(n):
        if y[i] > 3.0:
            break
        y[i] = y[i] + 1.0


@hal.kernel
def own_turns(y: hal.Ptr[hal.float32]):
    i = hal.global_idx(0)
    for _ in range(i):
        y[i] = y[i] + 1.0


@hal.kernel
def apart(y: hal.Ptr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    if y[i] > 0:
        for _ in range(n):
            y[i] = y[i] + 1.0


@hal.kernel
def counting(y: hal.Ptr[hal.int32], n: hal.int32):
    for _ in range(n):
        hal.atomic_add(y, 0, 1)


@hal.kernel
def gathered(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], p: hal.ConstPtr[hal.int32]):
    i = hal.global_idx(0)
    for _ in range(p[0]):
        y[i] = y[i] + x[p[i]]


@hal.kernel
def chosen(
    y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], p: hal.ConstPtr[hal.int32], n: hal.int32
):
    i = hal.global_idx(0)
    for k in range(n):
        y[i] = y[i] + x[p[k * n + i] + i]


@hal.kernel
def chosen_bytes(
    y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.uint8], p: hal.ConstPtr[hal.int32], n: hal.int32
):
    i = hal.global_idx(0)
    for k in range(n):
        y[i] = y[i] + hal.int32(x[p[k * n + i]])


@hal.kernel
def by_largest(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    best = 0
    for k in range(n):
        if x[k * n + i] > x[best * n + i]:
            best = k
    y[i] = best


@hal.kernel
def by_largest_byte(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.uint8], n: hal.int32):
    i = hal.global_idx(0)
    best = 0
    for k in range(n):
        if x[k * n + i] > x[best * n + i]:
            best = k
    y[i] = best


@hal.kernel
def through_states(y: hal.Ptr[hal.uint8], x: hal.ConstPtr[hal.uint8], n: hal.int32):
    i = hal.global_idx(0)
    state = y[i]
    for _ in range(n):
        state = x[hal.int32(state)]
    y[i] = state


@hal.kernel
def running_row(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    c = i * n
    total = hal.float32(0)
    for _ in range(n):
        total += x[c]
        c += 1
    y[i] = total


@hal.kernel(block=(1, 256, 1))
def upright(y: hal.Ptr[hal.float32], n: hal.int32):
    i = hal.global_idx(1)
    for _ in range(n):
        y[i] = y[i] + 1.0


@pytest.mark.parametrize(("kernel", "loops"), [
    (product, ["k"]), (sweep, ["i"]), (window, ["dy", "dx"]),
    (in_some_rows, ["dy", "dx"]), (behind_a_barrier, ["k"]), (in_few_threads, []),
    (row_sums, []), (few_turns, []),
    (left_early, []), (own_turns, ["_"]), (apart, []),
    (counting, []), (gathered, []), (upright, []),
    (chosen, ["k"]), (chosen_bytes, []), (by_largest, ["k"]), (running_row, []),
    (by_largest_byte, ["k"]), (through_states, ["_"]),
], ids=lambda value: getattr(value, "name", ""))  # fmt: skip
def test_loops_that_gain(kernel: Any, loops: list[str]) -> None:
    assert _raised(kernel) == loops


def test_where_too_much_would_be_kept_loops_stay() -> None:
    b = Builder("many", "y: float64*, x: const float64*, n: int32")
    i = b.index()
    sums = [b.var(f"sum{number}", b.load("x", i)) for number in range(33)]
    k = b.range(b.const(0), b.params["n"], b.const(1))
    for variable in sums:
        b.set(variable, b.op("ADD", b.get(variable), b.load("x", k)))
    b.end(k)
    for variable in sums:
        b.store("y", i, b.get(variable))
    kernel = b.kernel()
    assert lockstep.in_step(kernel)
    made = split(kernel)
    assert not any(node.op == "SPILL" for node in made)
    assert any(node.op == "SPILL" for node in split(kernel._replace(block=(64, 1, 1))))


# -- the test of the test


def _no_test(loop: UOp, bounds: Any, first: Any, made: list[UOp]) -> Any:
    turned = _TURN(loop, bounds, first, made)
    true = UOp("CONST", hal.bool_, (), True)
    at = made.index(turned.inside)
    inside = UOp("IF", None, (true,))
    made[at : at + 1] = [true, inside]
    return turned._replace(inside=inside)


def _from_zero(loop: UOp) -> Any:
    found = _FIRST(loop)
    return (found[0], 0) if found else None


_TURN, _FIRST = lockstep._rewrite, lockstep.first_of


@pytest.mark.parametrize(("name", "broken"), [
    ("_rewrite", _no_test),
    ("first_of", _from_zero),
    ("without_guards", lambda uops: (_WITHOUT(uops)[0], ())),
], ids=["no end", "another start", "no guard"])  # fmt: skip
def test_a_mistake_is_noticed(
    name: str, broken: Any, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lockstep, name, broken)
    for seed in range(200):
        try:
            if same(Strided(seed).kernel(), STRIDED_MEMORY, seed % 13 - 2):
                return
        except (AttributeError, LookupError):
            return
    pytest.fail("nothing showed it")


_WITHOUT = lockstep.without_guards


def test_other_dtypes_count_as_they_did() -> None:
    b = Builder("wide", "y: float32*, x: const float32*, n: int64")
    i = b.index()
    k = b.range(b.const(0, hal.int64), b.params["n"], b.const(1, hal.int64))
    b.store("y", i, b.op("ADD", b.load("y", i), b.load("x", b.cast(k, int32))))
    b.end(k)
    known = lockstep.in_step(b.kernel())
    assert known and [node.op for node in known.hoisted] == ["RANGE"]


def test_the_module_begins_with_what_becomes_of_a_loop() -> None:
    @hal.kernel
    def strided(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32) -> None:
        t = hal.thread_idx(0)
        for k in range(t, n, 64):
            y[t] += x[k]

    kernel = strided.lower()
    known = lockstep.in_step(kernel)
    assert known and side_by_side(kernel.uops, known.uops) in str(lockstep.__doc__)
    assert [known.uops.index(node) for node in known.hoisted] == [6, 7]


def test_a_kernel_without_nodes_is_split() -> None:
    ops = [node.op for node in split(Builder("empty", "").kernel(), grouped=True)]
    assert ops == ["THREADS", "ENDTHREADS"]


@hal.kernel
def of_forty_loops(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    total = 0
    for q in hal.unroll(20):
        for k in range(n - i):
            total += x[k + i]
        if i < n + q:
            for k in range(n):
                total += x[k + i + q]
    y[i] = total


def test_many_loops_stay_in_their_ifs_and_by_their_own_ends() -> None:
    """Else the text of each is written twice and more, and a compiler takes half a minute."""
    lowered = of_forty_loops.lower()
    assert len(split(lowered, grouped=True)) < 1.5 * len(lowered.uops)
