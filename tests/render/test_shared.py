"""Shared memory and barriers: the threads of a block hand values to each other."""

import numpy as np
from builder import Builder


def test_whole_blocks_return_before_a_barrier(toolchain):
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
