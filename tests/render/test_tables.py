"""Constant tables in every language."""

import numpy as np
import pytest
from builder import Builder
from slices import usual

from hal_core.dtypes import DTYPES, STORAGE_DTYPES, bool_

SIZED = [dtype for dtype in DTYPES.values() if dtype not in STORAGE_DTYPES]


def numbers(dtype):
    if dtype is bool_:
        return (True, False, False)
    if dtype.is_float:
        return (0.1, -0.0, float(dtype.max))
    return (int(dtype.min), int(dtype.max), 3)


@pytest.mark.parametrize("dtype", usual(SIZED, "uint8", "int16", "float32", "float64"), ids=str)
def test_every_dtype(toolchain, dtype):
    b = Builder("looked_up", f"r: {dtype.name}*")
    i = b.index()
    b.store("r", i, b.load(b.table(numbers(dtype), dtype), b.op("MOD", i, b.const(3))))
    got = np.zeros(8, dtype.to_numpy())
    toolchain.run(b.kernel(), {"r": got}, (2, 1, 1), (4, 1, 1))
    expected = np.resize(np.array(numbers(dtype), dtype.to_numpy()), 8)
    assert got.tobytes() == expected.tobytes()


def test_a_long_table_beside_another_and_a_barrier(toolchain):
    b = Builder("two", "y0: int32*")
    i = b.index()
    long = b.add("TABLE", DTYPES["int32"], arg=("y0", tuple(k * k for k in range(1000))))
    short = b.table((-1, 1))
    first = b.load(long, b.op("ADD", i, b.const(500)))
    b.barrier()
    b.store("y0", i, b.op("MUL", first, b.load(short, b.op("AND", i, b.const(1)))))
    got = np.zeros(8, "i4")
    toolchain.run(b.kernel(), {"y0": got}, (2, 1, 1), (4, 1, 1))
    assert got.tolist() == [(500 + k) ** 2 * (1 if k % 2 else -1) for k in range(8)]
