"""Kernels with barriers give what the interpreter gives; the kit has the plain forms."""

import textwrap

import numpy as np
import pytest
from kernel_files import IMPORTS, load

import hal_core as hal
from hal_kernel.interpreter import interpret

Ints, Given = hal.Ptr[hal.int32], hal.ConstPtr[hal.int32]

HEAD = """
@hal.kernel(block=(4, 1, 1))
def k(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32):
    i = hal.thread_idx(0)
    g = hal.global_idx(0)
    t = hal.shared(hal.int32, 4)
    t[i] = x[g]
    s = 0
"""
BODIES = {
    "return between": """
hal.barrier()
if n < 1:
    y[g] = -1
    return
a = t[3 - i]
hal.barrier()
t[i] = a * 2
hal.barrier()
y[g] = t[(i + 1) % 4]
""",
    "divergent loop": """
for j in range(i + 1):
    s += j * n
t[i] = s
hal.barrier()
for j in range(i):
    if t[j] > 3:
        break
    s += t[j]
hal.barrier()
t[i] = s
hal.barrier()
y[g] = t[3 - i]
""",
    "nested break": """
for a in range(n):
    for b in range(4):
        hal.barrier()
        s += t[(i + b) % 4]
        hal.barrier()
        t[i] = s + a
        if b == a:
            break
    s += 1
y[g] = s
""",
    "if else nested": """
if n > 0:
    if n > 2:
        hal.barrier()
        s = t[3 - i]
    else:
        s = 3
    hal.barrier()
    t[i] = s
    hal.barrier()
    s += t[(i + 1) % 4]
else:
    hal.barrier()
    s = t[0]
y[g] = s
""",
    "while if": """
j = 0
while j < 4:
    j += 1
    if j == 2:
        hal.barrier()
        s += t[0]
        continue
    hal.barrier()
    s += t[(i + j) % 4]
    if j == n:
        break
    hal.barrier()
    t[i] = s
y[g] = s
""",
    "return of all": """
while True:
    hal.barrier()
    s += t[(i + 1) % 4]
    hal.barrier()
    t[i] = s
    if n <= 0:
        y[g] = s
        return
    if n > 1:
        y[g] = s * 2
        return
    for j in range(n):
        hal.barrier()
        s += t[(i + j) % 4]
    y[g] = s
    return
""",
}


@pytest.mark.parametrize("name", BODIES)
def test_P7_all_threads_meet(device, name, tmp_path):
    kernel = load(tmp_path, IMPORTS + HEAD + textwrap.indent(BODIES[name], "    ")).k
    program = device.compile(kernel)
    x = (np.arange(12) * 7 % 11).astype("i4")
    given = hal.Buffer.from_numpy(x, device=device)
    for n in range(5):
        expected, y = np.full(12, -9, "i4"), hal.empty(12, hal.int32, device).fill(-9)
        interpret(kernel, expected, x, vals=(n,), grid=3)
        program(y, given, vals=(n,), grid=3)
        assert y.numpy().tolist() == expected.tolist(), f"n = {n}"


@hal.kernel
def neighbours(y: Ints, x: Ints, width: hal.int32):
    """Return the value of the thread at the opposite end of the block, of any size."""
    column = hal.global_idx(0)
    row = hal.global_idx(1)
    x[row * width + column] = 100 * row + column
    hal.barrier()
    other = hal.block_idx(0) * hal.block_dim(0) + hal.block_dim(0) - 1 - hal.thread_idx(0)
    y[row * width + column] = x[row * width + other] + hal.grid_dim(1) * 10000


@pytest.mark.parametrize("block", [(4, 1), (2, 3), (1, 1), (8, 6)])
def test_P6_blocks_of_any_size_meet(device, block):
    width, height = 8, 6
    expected = np.zeros(width * height, "i4")
    interpret(
        neighbours, expected, expected.copy(), vals=(width,), threads=(width, height), block=block
    )
    base = hal.zeros(width * height + 3, hal.int32, device)
    x = hal.zeros(width * height, hal.int32, device)
    program = device.compile(neighbours)
    for _ in range(2):
        program(base[3:], x, vals=(width,), threads=(width, height), block=block)
        assert base.numpy().tolist() == [0, 0, 0, *expected.tolist()]
    most = program.info.max_block_threads
    with pytest.raises(hal.InvalidArgument, match=f"got {most + 1}; limit {most}"):
        program(base[3:], x, vals=(width,), grid=1, block=most + 1)


def test_more_may_live_across_barriers_than_a_block_has_room_for(device):
    @hal.kernel(block=(1024, 1, 1))
    def many(y: Ints, x: Given):
        i = hal.global_idx(0)
        total = hal.int32(0)
        for k in hal.unroll(80):
            total += x[i * 80 + k]
        hal.barrier()
        y[i] = total
        hal.barrier()
        for k in hal.unroll(80):
            y[i] += x[i * 80 + k]

    if device.info.limits.max_block_threads < 1024:
        pytest.skip("its blocks are smaller")
    x = np.arange(1024 * 80, dtype="i4")
    y = hal.zeros(1024, hal.int32, device)
    device.compile(many)(y, hal.Buffer.from_numpy(x, device=device), grid=1)
    assert (y.numpy() == 2 * x.reshape(1024, 80).sum(1)).all()
