"""Accesses of several elements at once, in every language."""

import numpy as np
import pytest
from builder import Builder
from offline import NVRTC
from slices import OF_EACH_SIZE, usual

from hal_core.dtypes import DTYPES, float32, uint8
from hal_kernel.ir.uop import VECTORS
from hal_kernel.ir.vectors import vectors

THREADS, BLOCK = 8, 4
SOME = usual(DTYPES.values(), *OF_EACH_SIZE)
PART = 16 * THREADS  # elements of the result for each number of lanes


def load(b, memory, index, count):
    lanes = range(count)
    return [b.add("LOAD", memory.dtype, memory, index, arg=(k, count)) for k in lanes]


def store(b, memory, index, values):
    for k, value in enumerate(values):
        b.add("STORE", None, memory, index, value, arg=(k, len(values)))


def turned(dtype):
    """Each vector of x in reverse, for every number of lanes."""
    b = Builder("turned", f"r: {dtype.name}*, x: const {dtype.name}*")
    r, x, i = b.params["r"], b.params["x"], b.index()
    for part, count in enumerate(VECTORS):
        first = b.op("MUL", i, b.const(count))
        values = load(b, x, first, count)
        store(b, r, b.op("ADD", first, b.const(part * PART)), values[::-1])
    return b.kernel()


def swapped(dtype):
    """The vectors of a block's threads in reverse, by way of a shared tile."""
    b = Builder("swapped", f"r: {dtype.name}*, x: const {dtype.name}*")
    r, x, i, t = b.params["r"], b.params["x"], b.index(), b.special("thread_idx")
    tile = b.shared("tile", 16 * BLOCK, dtype)
    place = b.op("MUL", i, b.const(16))
    store(b, tile, b.op("MUL", t, b.const(16)), load(b, x, place, 16))
    b.barrier()
    other = b.op("MUL", b.op("SUB", b.const(BLOCK - 1), t), b.const(16))
    for half in (0, 8):
        from_tile = load(b, tile, b.op("ADD", other, b.const(half)), 8)
        store(b, r, b.op("ADD", place, b.const(half)), from_tile)
    return b.kernel()


def expected(x):
    parts = [np.zeros(PART, x.dtype) for _ in VECTORS]
    for part, count in zip(parts, VECTORS, strict=True):
        used = x[: count * THREADS]
        part[: len(used)] = used.reshape(-1, count)[:, ::-1].reshape(-1)
    return np.concatenate(parts)


def numbers(dtype):
    stored = np.dtype(bool if dtype.kind == "b" else f"u{dtype.itemsize}")
    return (np.arange(PART) % 7 * 37 % 5).astype(stored)


@pytest.mark.parametrize("dtype", SOME, ids=str)
def test_every_dtype_and_number_of_lanes(toolchain, dtype):
    """The result begins within a vector, which costs time and nothing else."""
    x = numbers(dtype)
    memory = np.zeros(1 + len(VECTORS) * PART, x.dtype)
    toolchain.run(turned(dtype), {"r": memory[1:], "x": x}, (2, 1, 1), (BLOCK, 1, 1))
    assert memory[1:].tolist() == expected(x).tolist()


@pytest.mark.parametrize("dtype", SOME, ids=str)
def test_every_dtype_over_a_tile(toolchain, dtype):
    x = numbers(dtype)
    memory = np.zeros(1 + PART, x.dtype)
    toolchain.run(swapped(dtype), {"r": memory[1:], "x": x}, (2, 1, 1), (BLOCK, 1, 1))
    assert memory[1:].tolist() == x.reshape(-1, BLOCK, 16)[:, ::-1].reshape(-1).tolist()


@pytest.mark.parametrize("begin", [0, 1, 2])
def test_a_view_that_begins_anywhere(toolchain, begin):
    x, memory = np.arange(PART + 4, dtype="f4"), np.zeros(len(VECTORS) * PART, "f4")
    arguments = {"r": memory, "x": x[begin : begin + PART]}
    toolchain.run(turned(float32), arguments, (2, 1, 1), (BLOCK, 1, 1))
    assert memory.tolist() == expected(x[begin : begin + PART]).tolist()


def test_compilers_make_one_access_of_it(offline):
    """And keep those of each element apart, which NVRTC 13 otherwise takes for aligned as well."""
    made, narrow = offline.compile(turned(float32)), offline.compile(turned(uint8))
    tiled = offline.compile(swapped(float32))
    if isinstance(offline, NVRTC) and offline.image == "PTX":
        assert b"ld.global.v4." in made and b"st.global.v4." in made and b"shared.v4." in tiled
        for how in (b"ld.volatile.global.", b"st.volatile.global."):
            assert narrow.count(how) == sum(VECTORS)


def test_what_stands_alone_is_no_vector():
    b = Builder("alone", "r: float32*, x: const float32*")
    r, x, i = b.params["r"], b.params["x"], b.index()
    pair = load(b, x, i, 2)
    b.add("LOAD", float32, x, i, arg=(1, 2))
    four = load(b, x, i, 4)[:3]
    b.add("LOAD", float32, x, b.const(0), arg=(0, 2))
    store(b, r, i, pair)
    found = vectors([node for node in b.uops if node.arg != (3, 4)])
    assert list(found) == [pair[0], *(node for node in b.uops if node.op == "STORE")][:2]
    assert four[0] not in found
