"""Atomic operations, on buffers by several workers at once and on a block's shared memory."""

import functools
import operator
from collections import Counter

import numpy as np
import pytest
from builder import Builder
from slices import usual

from hal_core.dtypes import DTYPES, float32
from hal_kernel.ir.uop import ATOMICS

SLOTS, BLOCKS, BLOCK = 3, 60, 20
INTEGERS = [DTYPES[name] for name in ("int32", "uint32", "int64", "uint64")]
FLOATS = [float32, DTYPES["float64"]]


def ops_of(dtype):
    return sorted(ATOMICS) if dtype.is_integer else ["ADD", "EXCHANGE"]


def kernel_of(dtype, shared):
    """Every operation of `dtype`, on `SLOTS` places each; what was there goes to `old_...`."""
    ops = ops_of(dtype)
    names = ", ".join(f"{op}: {dtype.name}*, old_{op}: {dtype.name}*" for op in ops)
    b = Builder("atomics", f"{names}, x: const {dtype.name}*")
    i, t = b.index(), b.special("thread_idx")
    slot = b.op("MOD", i, b.const(SLOTS))
    first = b.op("LT", t, b.const(SLOTS))
    for op in ops:
        where = op
        if shared:
            where = b.shared(f"tile_{op}", SLOTS, dtype)
            with b.when(first):
                b.store(where, t, b.load(op, t))
            b.barrier()
        old = b.atomic(op, where, slot, b.load("x", i))
        b.store(f"old_{op}", i, old)
        if shared:
            b.barrier()
            with b.when(first):
                b.store(op, t, b.load(where, t))
    return b.kernel()


def check(op, dtype, start, given, old, end):
    """What one place has seen: its values in some order, whatever order that was."""
    if op == "EXCHANGE":
        assert Counter([*old, end]) == Counter([start, *given])
    elif op in _BITS:
        check_bits(_BITS[op], int(start), [*map(int, given)], [*map(int, old)], int(end))
    elif op in ("MIN", "MAX"):
        better = min if op == "MIN" else max
        assert end == better([start, *given])
        assert start in old and set(old) <= {start, *given}
        assert all(better(value, end) == end for value in old)
    else:
        with np.errstate(over="ignore"):
            kind = dtype.to_numpy().type
            values = np.array([start, *given], kind)
            assert end == values.sum(dtype=kind)
            # what was found and what was added is found by the next one, or left at the end
            after = [kind(a) + kind(b) for a, b in zip(old, given, strict=True)]
            assert Counter([*old, end]) == Counter([start, *(one.item() for one in after)])


_BITS = {"AND": operator.and_, "OR": operator.or_, "XOR": operator.xor}


def check_bits(combine, start, given, old, end):
    """What was found and what was given makes what the next one finds, or what is left."""
    assert end == functools.reduce(combine, given, start)
    after = [combine(a, b) for a, b in zip(old, given, strict=True)]
    assert Counter([*old, end]) == Counter([start, *after])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    "dtype", usual([*INTEGERS, *FLOATS], "int32", "uint64", "float32"), ids=str
)
def test_every_atomic_operation(toolchain, dtype, shared):
    kind = dtype.to_numpy().type
    blocks = 1 if shared else BLOCKS
    threads = blocks * BLOCK
    random = np.random.default_rng(7)
    high = int(min(dtype.max, 2**62)) if dtype.is_integer else 1000
    low = int(max(dtype.min, -(2**62))) if dtype.is_integer else -1000
    x = random.integers(low, high, threads, endpoint=True).astype(kind)
    start = [kind(value) for value in ((high, 1, low) if dtype.is_integer else (0, 1, -5))]
    places = {op: np.array(start) for op in ops_of(dtype)}
    old = {f"old_{op}": np.zeros(threads, kind) for op in ops_of(dtype)}
    arrays = {**places, **old, "x": x}
    toolchain.run(kernel_of(dtype, shared), arrays, (blocks, 1, 1), (BLOCK, 1, 1), workers=4)
    for op, got in places.items():
        for slot in range(SLOTS):
            given, seen = x[slot::SLOTS].tolist(), old[f"old_{op}"][slot::SLOTS].tolist()
            check(op, dtype, start[slot].item(), given, seen, got[slot].item())


@pytest.mark.parametrize("dtype", usual(INTEGERS, "int32", "uint64"), ids=str)
@pytest.mark.parametrize("shared", [False, True])
def test_compare_exchange(toolchain, dtype, shared):
    """Counts by a loop of attempts; one that fails changes nothing and says what is there."""
    b = Builder("cas", f"r: {dtype.name}*, old: {dtype.name}*, first: {dtype.name}")
    i, t = b.index(), b.special("thread_idx")
    where = "r"
    zero, one = b.const(0), b.const(1, dtype)
    if shared:
        where = b.shared("tile", 1, dtype)
        with b.when(b.op("EQ", t, zero)):
            b.store(where, zero, b.load("r", zero))
        b.barrier()
    expected = b.var("expected", b.params["first"])
    loop = b.loop()
    seen = b.atomic("CAS", where, zero, b.get(expected), b.op("ADD", b.get(expected), one))
    with b.when(b.op("EQ", seen, b.get(expected))):
        b.break_(loop)
    b.set(expected, seen)
    b.end(loop)
    b.store("old", i, b.get(expected))
    if shared:
        b.barrier()
        with b.when(b.op("EQ", t, zero)):
            b.store("r", zero, b.load(where, zero))
    start = int(dtype.max) - 10  # goes past the end of the dtype
    blocks = 1 if shared else toolchain.rivals // BLOCK
    r, old = np.array([start], dtype.to_numpy()), np.zeros(blocks * BLOCK, dtype.to_numpy())
    arrays = {"r": r, "old": old, "first": 3}
    toolchain.run(b.kernel(), arrays, (blocks, 1, 1), (BLOCK, 1, 1), workers=4)
    counted = np.arange(blocks * BLOCK + 1).astype(r.dtype) + r.dtype.type(start)
    assert r[0] == counted[-1]
    assert sorted(old.tolist()) == sorted(counted[:-1].tolist())


@pytest.mark.parametrize(
    "dtype", usual([*INTEGERS, *FLOATS], "int32", "uint64", "float32"), ids=str
)
def test_workers_that_add_to_one_place_at_the_same_time(toolchain, dtype):
    """Long enough for them to meet; a sum that is not atomic loses most of it."""
    turns = toolchain.turns
    b = Builder("contended", f"r: {dtype.name}*, turns: int32, one: {dtype.name}")
    k = b.range(b.const(0), b.params["turns"], b.const(1))
    b.atomic("ADD", "r", b.const(0), b.params["one"])
    b.end(k)
    r = np.zeros(1, dtype.to_numpy())
    arrays = {"r": r, "turns": turns, "one": 1}
    toolchain.run(b.kernel(), arrays, (8, 1, 1), (4, 1, 1), workers=4)
    assert r[0] == 32 * turns


def test_reads_around_an_atomic_stay_where_they_are(toolchain):
    """A load in front of it sees the old value, one behind it the new one; its own result too."""
    b = Builder("order", "r: int32*, p: int32*")
    zero = b.const(0)
    before = b.load("p", zero)
    old = b.atomic("ADD", "p", zero, b.const(5))
    after = b.load("p", zero)
    b.atomic("EXCHANGE", "p", zero, b.op("ADD", after, b.const(100)))
    b.atomic("CAS", "p", zero, b.op("ADD", after, b.const(100)), b.const(-1))
    last = b.load("p", zero)
    b.atomic("ATOMICSTORE", "p", zero, b.op("ADD", last, b.const(5)))
    stored = b.load("p", zero)
    b.store("p", zero, b.op("ADD", stored, b.const(100)))
    loaded = b.atomic("ATOMICLOAD", "p", zero)
    b.store("p", zero, b.const(77))
    for place, value in enumerate((before, old, after, last, stored, loaded)):
        b.store("r", b.const(place), value)
    r, p = np.zeros(6, np.int32), np.array([10], np.int32)
    toolchain.run(b.kernel(), {"r": r, "p": p})
    assert r.tolist() == [10, 10, 15, -1, 4, 104] and p[0] == 77
