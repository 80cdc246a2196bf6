"""Shared memory and barriers: the threads of a block hand values to each other."""

from __future__ import annotations

import numpy as np
from builder import Builder
from toolchains import Toolchain


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
