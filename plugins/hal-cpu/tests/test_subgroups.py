"""A gang is a subgroup in LLVM's text: its lanes pass values on as the interpreter says."""

import re

import numpy as np
import pytest
from kernel_files import IMPORTS, load
from slices import usual
from vector_kernels import compiled

import hal_core as hal
from hal_cpu import processor
from hal_cpu.vectors import LLVMRenderer
from hal_cpu.vectors.width import Registers, subgroup_of
from hal_kernel.interpreter import interpret

P, C, I32, F = hal.Ptr, hal.ConstPtr, hal.int32, hal.float32


def all_calls(dtype):
    @hal.kernel
    def calls(y: hal.Ptr[dtype], b: hal.Ptr[hal.uint64], x: hal.ConstPtr[dtype]) -> None:
        width = hal.grid_dim(0) * hal.block_dim(0)
        i = (hal.global_idx(2) * hal.grid_dim(1) * hal.block_dim(1) + hal.global_idx(1)) * width
        i += hal.global_idx(0)
        v, lane, last = x[i], hal.subgroup_lane(), hal.subgroup_size() - 1
        y[9 * i] = hal.subgroup_sum(v)
        y[9 * i + 1] = hal.subgroup_inclusive_sum(v)
        y[9 * i + 2] = hal.subgroup_exclusive_sum(v)
        y[9 * i + 3] = hal.subgroup_min(v)
        y[9 * i + 4] = hal.subgroup_max(v)
        y[9 * i + 5] = hal.shuffle(v, lane // 2)
        y[9 * i + 6] = hal.shuffle_xor(v, lane ^ max(lane - 1, 0))
        y[9 * i + 7] = hal.shuffle(v, min(hal.int32(v) & last, lane))
        y[9 * i + 8] = hal.shuffle(v, hal.subgroup_idx() * 0)
        b[2 * i] = hal.ballot(v > 2)
        b[2 * i + 1] = hal.uint64(hal.subgroup_idx() * 100 + lane)

    return calls


@hal.kernel
def by_subgroup(y: P[I32], x: C[I32], n: I32) -> None:
    """Go by what the threads of a subgroup agree on, and write where they do not."""
    i = hal.global_idx(0)
    if hal.subgroup_idx() % 2 == 1:
        rounds = hal.shuffle(x[i] & 7, 0)
        while hal.popcount(hal.ballot(x[i] > 0)) > 0 and rounds > 0:
            if x[i] % 2 == 0:
                y[i] += rounds
            y[i] += hal.subgroup_sum(rounds + i)
            rounds -= 1
    elif hal.ballot(x[i] > n) != 0:
        y[i] = hal.shuffle_xor(x[i], hal.subgroup_lane() & 1)
        return
    if x[i] < 0:
        y[i] -= 1


@hal.kernel
def across_barriers(y: P[I32], x: C[I32], n: I32) -> None:
    """Add up a block: in subgroups, and by way of shared memory their sums."""
    sums = hal.shared(hal.int32, 256)
    i, own = hal.global_idx(0), hal.subgroup_idx()
    scan = hal.subgroup_inclusive_sum(x[i])
    sums[own] = 0
    hal.barrier()
    for k in range(2):
        if hal.subgroup_lane() == 0:
            sums[own] += hal.subgroup_size() * k
        hal.barrier()
    total = hal.subgroup_sum(x[i])
    if hal.subgroup_lane() == 0:
        sums[own] += total
    hal.barrier()
    before = 0
    for k in range(own):
        before += sums[k]
    y[i] = scan + before


@hal.kernel
def in_loops(y: P[I32], x: C[I32], n: I32) -> None:
    """Run loops of many kinds: uniform ones, and ones that lanes leave one by one."""
    i = hal.global_idx(1) * (hal.grid_dim(0) * hal.block_dim(0)) + hal.global_idx(0)
    lane, total = hal.subgroup_lane(), 0
    for k in range(n):
        total += hal.shuffle(x[i] + k, hal.subgroup_idx() * 0) + hal.subgroup_max(total % 7)
    for k in range(lane, hal.thread_idx(0)):
        total += k * x[i]
    for k in range(hal.thread_idx(0) - 2, hal.thread_idx(0) + 2):
        if k > x[i]:
            break
        total += k
    y[i] = hal.subgroup_exclusive_sum(total)


@hal.kernel
def guarded_twice(y: P[I32], x: C[I32], n: I32) -> None:
    """Tell something between two guards, each of which some lanes pass."""
    i = hal.global_idx(0)
    if 2 * i < n:
        y[2 * i] = x[2 * i]
    votes = hal.popcount(hal.ballot(i >= 0))
    if 2 * i + 1 < n:
        y[2 * i + 1] = hal.int32(votes)


WIDTHS = usual([None, 4, 8, 16], "None", "4")
SHAPES = [
    ((2, 1, 1), (64, 1, 1)), ((3, 1, 1), (45, 1, 1)), ((2, 2, 1), (9, 5, 1)),
    ((2, 1, 1), (32, 4, 1)), ((1, 2, 2), (5, 3, 2)), ((4, 1, 1), (3, 1, 1)),
]  # fmt: skip


def same(kernel, cases, width):
    """Compare what a kernel leaves in arrays, for their values and launches."""
    program = compiled(kernel, width)
    subgroup = width or subgroup_of(Registers(*processor.vector_registers()))
    for arrays, vals, geometry in cases:
        expected = [array.copy() for array in arrays]
        interpret(kernel, *expected, vals=vals, subgroup=subgroup, races=False, **geometry)
        buffers = [hal.Buffer.from_numpy(array, "CPU") for array in arrays]
        program(*buffers, vals=vals, wait=True, **geometry)
        for buffer, array in zip(buffers, expected, strict=True):
            np.testing.assert_array_equal(buffer.numpy(), array, err_msg=str(geometry))


@pytest.mark.parametrize("width", WIDTHS, ids=str)
@pytest.mark.parametrize("name", ["int32", "uint32", "int64", "uint64", "float32", "float64"])
def test_every_call_on_every_dtype(name, width):
    cases = []
    for grid, block in SHAPES:
        count = int(np.prod(grid) * np.prod(block))
        x = np.random.default_rng(count).integers(0 if name[0] == "u" else -50, 50, count)
        x = (x * 1.1 if name[0] == "f" else x).astype(name)
        arrays = [np.zeros(9 * count, name), np.zeros(2 * count, "u8"), x]
        cases.append((arrays, (), {"grid": grid, "block": block}))
    same(all_calls(getattr(hal, name)), cases, width)


@pytest.mark.parametrize("width", WIDTHS, ids=str)
@pytest.mark.parametrize("kernel", [by_subgroup, across_barriers, in_loops, guarded_twice])
@pytest.mark.parametrize("fixed", usual([0, 45, 64], "0", "45"))
def test_control_flow_around_calls(kernel, width, fixed):
    cases = []
    blocks = [fixed] if fixed else [1, 7, 45, 64, 200]
    for block in [*blocks, *[(9, 5)] * (kernel is in_loops and not fixed)]:
        count = int(np.prod(block))
        x = np.random.default_rng(count).integers(-20, 20, 4 * count).astype("i4")
        for n in (0, 5, 3 * count):
            vals = (min(n, 9) if kernel is in_loops else n,)
            cases.append(
                ([np.zeros(4 * count, "i4"), x], vals,
                 {"grid": (2, 1)[: np.size(block)], "block": block})
            )  # fmt: skip
    lowered = kernel.lower()
    same(lowered._replace(block=(fixed, 1, 1)) if fixed else lowered, cases, width)


@hal.kernel(block=(64, 1, 1))
def sums(y: P[F], x: C[F]) -> None:
    y[hal.global_idx(0)] = hal.subgroup_sum(x[hal.global_idx(0)])


def test_a_sum_is_one_addition_of_vectors_for_each_step():
    """Sixteen floats are added in four steps, and nothing goes through memory or lane by lane."""
    text = LLVMRenderer().render(sums.lower())
    whole, masked = text.split("\nmix.")
    for part in (whole, masked):
        assert len(re.findall(r"= fadd <16 x float>", part)) == 4
        assert len(re.findall(r"= shufflevector <16 x float> .* i32 11>", part)) == 1


def test_the_size_is_what_a_register_holds():
    sizes = [subgroup_of(Registers(number, nbytes)) for number, nbytes in ((32, 64), (16, 32))]
    assert [*sizes, subgroup_of(Registers(32, 16))] == [16, 8, 8]


def test_blocks_too_deep_for_vectors_are_refused(tmp_path):
    head = "@hal.kernel\ndef f(y: hal.Ptr[hal.int32], n: hal.int32):\n"
    body = "".join(f"{' ' * k}if n > {k}:\n" for k in range(4, 66))
    deep = load(tmp_path, f"{IMPORTS}{head}{body}{' ' * 66}y[0] = hal.int32(hal.ballot(n > 0))\n").f
    with pytest.raises(hal.Unsupported, match="it uses subgroups, and blocks are nested too deep"):
        LLVMRenderer().render(deep.lower())
