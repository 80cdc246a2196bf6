"""Shared memory and barriers: the threads of a block hand values to each other."""

from __future__ import annotations

import numpy as np
import pytest
from builder import Builder
from toolchains import Toolchain

from hal_core.dtypes import DTYPES, DType, int32
from hal_kernel.ir import Kernel


def reversal(dtype: DType, block: tuple[int, int, int] | None, size: int) -> Kernel:
    """Each block turns its elements around, through shared memory."""
    b = Builder("reversal", f"r: {dtype.name}*, x: const {dtype.name}*")
    t, n = b.special("thread_idx"), b.special("block_dim")
    i = b.index()
    tile = b.shared("tile", size, dtype)
    b.store(tile, t, b.load("x", i))
    b.barrier()
    b.store("r", i, b.load(tile, b.op("SUB", b.op("SUB", n, b.const(1)), t)))
    return b.kernel(block)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_dtype_in_shared_memory(toolchain: Toolchain, dtype: DType) -> None:
    stored = np.dtype(f"u{dtype.itemsize}") if dtype.kind != "b" else np.dtype(bool)
    x = np.arange(24).astype(stored) if dtype.kind != "b" else np.arange(24) % 3 == 0
    got = np.zeros_like(x)
    kernel = reversal(dtype, None, 8)
    toolchain.run(kernel, {"r": got, "x": x}, (3, 1, 1), (8, 1, 1))
    assert got.tolist() == x.reshape(3, 8)[:, ::-1].reshape(-1).tolist()


@pytest.mark.parametrize("block", [(1, 1, 1), (7, 1, 1), (64, 1, 1)])
def test_a_fixed_block(toolchain: Toolchain, block: tuple[int, int, int]) -> None:
    x = np.arange(3 * block[0], dtype=np.int32)
    got = np.zeros_like(x)
    toolchain.run(reversal(int32, block, 64), {"r": got, "x": x}, (3, 1, 1), block)
    assert got.tolist() == x.reshape(3, -1)[:, ::-1].reshape(-1).tolist()


def test_a_value_that_lives_across_a_barrier(toolchain: Toolchain) -> None:
    """Of a variable and of an expression, in a block of three dimensions."""
    block = (3, 2, 2)
    b = Builder("across", "r: int32*, x: const int32*")
    x, y, z = (b.special("thread_idx", axis) for axis in range(3))
    line = b.op("ADD", b.op("MUL", b.op("ADD", b.op("MUL", z, b.const(2)), y), b.const(3)), x)
    i = b.op("ADD", b.op("MUL", b.special("block_idx"), b.const(12)), line)
    tile = b.shared("tile", 12)
    loaded = b.load("x", i)
    kept = b.var("kept", b.op("MUL", loaded, b.const(10)))
    b.store(tile, line, loaded)
    b.barrier()
    other = b.load(tile, b.op("MOD", b.op("ADD", line, b.const(5)), b.const(12)))
    b.set(kept, b.op("ADD", b.get(kept), other))
    b.barrier()
    b.store("r", i, b.op("ADD", b.op("MUL", b.get(kept), b.const(2)), loaded))
    values = np.arange(24, dtype=np.int32) ** 2
    got = np.zeros(24, np.int32)
    toolchain.run(b.kernel(block), {"r": got, "x": values}, (2, 1, 1), block)
    rows = values.reshape(2, 12)
    expected = 2 * (10 * rows + np.roll(rows, -5, axis=1)) + rows
    np.testing.assert_array_equal(got.reshape(2, 12), expected)


def test_whole_blocks_return_before_a_barrier(toolchain: Toolchain) -> None:
    b = Builder("leaves", "r: int32*, n: int32")
    block, t = b.special("block_idx"), b.special("thread_idx")
    tile = b.shared("tile", 4)
    with b.when(b.op("GE", block, b.params["n"])):
        b.return_()
    k = b.range(b.const(0), b.const(3), b.const(1))
    with b.when(b.op("EQ", b.op("ADD", block, k), b.const(3))):
        b.return_()
    b.store(tile, t, b.op("ADD", t, k))
    b.barrier()
    turned = b.load(tile, b.op("SUB", b.const(3), t))
    b.store("r", b.index(), b.op("ADD", b.op("MUL", k, b.const(10)), turned))
    b.barrier()
    b.end(k)
    got = np.full(20, -1, np.int32)
    toolchain.run(b.kernel((4, 1, 1)), {"r": got, "n": 4}, (5, 1, 1), (4, 1, 1))
    expected = []
    for number in range(5):
        last = -1 if number > 3 else min(2, 2 - number if number > 0 else 2)
        expected += [10 * last + 3 - t + last if last >= 0 else -1 for t in range(4)]
    assert got.tolist() == expected


def test_a_value_read_before_a_barrier_stays_what_it_was(toolchain: Toolchain) -> None:
    """What was loaded before is not read again behind."""
    b = Builder("order", "r: int32*")
    t = b.special("thread_idx")
    tile = b.shared("tile", 8)
    b.store(tile, t, t)
    b.barrier()
    neighbour = b.load(tile, b.op("XOR", t, b.const(1)))
    b.barrier()
    b.store(tile, t, b.const(-7))
    b.barrier()
    b.store("r", t, b.op("ADD", neighbour, b.load(tile, t)))
    got = np.zeros(8, np.int32)
    toolchain.run(b.kernel((8, 1, 1)), {"r": got}, (1, 1, 1), (8, 1, 1))
    assert got.tolist() == [(t ^ 1) - 7 for t in range(8)]


def test_shared_memory_is_each_blocks_own(toolchain: Toolchain) -> None:
    """Blocks that run at the same time do not see each other's."""
    b = Builder("own", "r: int32*, turns: int32")
    t, block = b.special("thread_idx"), b.special("block_idx")
    tile = b.shared("tile", 16)
    b.store(tile, t, b.op("MUL", block, b.const(100)))
    k = b.range(b.const(0), b.params["turns"], b.const(1))
    b.barrier()
    other = b.load(tile, b.op("MOD", b.op("ADD", t, b.const(1)), b.const(16)))
    b.barrier()
    b.store(tile, t, b.op("ADD", other, b.const(1)))
    b.end(k)
    b.store("r", b.index(), b.load(tile, t))
    blocks = 40
    got = np.zeros(16 * blocks, np.int32)
    toolchain.run(b.kernel((16, 1, 1)), {"r": got, "turns": 50}, (blocks, 1, 1), (16, 1, 1))
    assert got.reshape(blocks, 16).tolist() == [[100 * n + 50] * 16 for n in range(blocks)]
