"""The vectoriser: gangs of every width do what the interpreter does, and touch nothing else."""

import ctypes
import itertools
import mmap
import os
import re
import sys
from pathlib import Path
from random import Random
from textwrap import indent

import ml_dtypes
import numpy as np
import pytest
import vector_kernels
from index_kernels import LIMITED, SHAPED, made_of_itself
from kernel_files import function
from run_python import printed
from slices import usual
from vector_kernels import AVX2, CASES, compiled

import hal_core as hal
from hal_core.dtypes import DTYPES
from hal_cpu.vectors import LLVMRenderer
from hal_cpu.vectors.gangs import Gangs
from hal_cpu.vectors.width import WIDE as WIDE_REGISTERS
from hal_cpu.vectors.width import Registers
from hal_kernel.interpreter import interpret
from hal_kernel.ir.blocks.fission import at_barriers
from hal_kernel.ir.fold import fold

WIDTHS = usual([(None, 4), (1, 16)], "(None, 4)")
SIZES = [1, 3, 8, 17, 64, 65, 130]
NEON = Registers(32, 16)
ROLLED = ", !llvm.loop !1"


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.kernel.__name__))
def test_gangs_of_any_width_do_what_the_interpreter_does(case, widths):
    compare([compiled(case.kernel, width) for width in widths], case, SIZES)


def compare(programs, case, sizes):
    for size, program in itertools.product(sizes, programs):
        arrays, vals, geometry = case.made(size, np.random.default_rng(size))
        if program is programs[0]:
            expected = [array.copy() for array in arrays]
            interpret(case.kernel, *expected, vals=vals, races=False, **geometry)
        buffers = [hal.Buffer.from_numpy(array, "CPU") for array in arrays]
        program(*buffers, vals=vals, wait=True, **geometry)
        for buffer, array in zip(buffers, expected, strict=True):
            found = buffer.numpy()
            if array.dtype.kind == "f":
                np.testing.assert_allclose(found, array, rtol=2e-6, atol=1e-6, err_msg=str(size))
            else:
                np.testing.assert_array_equal(found, array, err_msg=str(size))


NEAR = [s * (end + d) for end in (2**30, 2**31) for d in (-70, -40, -1, 0) for s in (1, -1)]
SHAPES = [(1, 3), (33, 4), (3, 5), (7, 20), (4, 40), (32, 3), (130, 3), (-5, 2), (0, 3)]
LIMITS = [n for n in (0, 1, 5, 33, -1, -40, *NEAR) if n < 2**31]
WIDE = [*LIMITS, *(s * (end + d) for end in (2**32, 2**62) for d in (-40, 1) for s in (1, -1))]


def sizes_of(kernel, part):
    """A part of the pairs, with every number in either place."""
    if kernel in SHAPED:
        return SHAPES[part % 3 :: 3]
    of_64_bits = kernel.lower().signature.values[1].dtype is hal.int64
    numbers = [*WIDE, 2**63 - 1, -(2**63), 2**63 - 70] if of_64_bits else LIMITS
    pairs = itertools.product(enumerate((1, 13, *numbers)), enumerate(numbers))
    return [(w, h) for (i, w), (k, h) in pairs if (i + k) % 6 == part]


@pytest.mark.parametrize("part", usual(range(6), "1"))  # 1 shows a test that is off by one
@pytest.mark.parametrize("kernel", SHAPED + LIMITED, ids=lambda kernel: str(kernel.name))
def test_indices_are_what_the_interpreter_computes(kernel, part):
    """With sizes that are 0 and less, and with numbers whose sums leave int32 and int64."""
    programs = [compiled(kernel, width) for width in (None, 4)]
    dtype = programs[0].signature.pointers[0].dtype.to_numpy()
    for w, h in sizes_of(kernel, part):
        count = 3 * w * h + 32 if kernel in SHAPED else 64
        x = np.random.default_rng(0).integers(0, 120, max(count, 80)).astype(dtype)
        for block in (64, 5) if kernel in SHAPED else (64,):
            grid = (max(1, -(-w * h // block)), 3) if kernel in SHAPED else (1, 1)
            expected = np.full(max(x.size, grid[0] * block), 5, dtype)
            results = [hal.Buffer.from_numpy(expected, "CPU") for _ in programs]
            launch = {"vals": (w, h), "grid": grid, "block": block}
            if kernel.name != "short_rows":
                launch["grid"] = grid[:1]
            interpret(kernel, expected, x, races=False, **launch)
            for program, y in zip(programs, results, strict=True):
                program(y, hal.Buffer.from_numpy(x, "CPU"), wait=True, **launch)
                np.testing.assert_array_equal(y.numpy(), expected, f"{w}, {h} in {block}")


TERMS = "i < w, j < h, i > a, j > a, i != a, j % 3 != 1, i % 2 == 0, a % 2 == 0, i < j, x[j] > 3"


def condition(random, depth):
    """Return comparisons that vary in a gang, and some that do not, joined at random."""
    if depth == 0 or random.random() < 0.25:
        return random.choice(TERMS.split(", "))
    parts = [condition(random, depth - 1) for _ in range(random.randint(2, 3))]
    return random.choice(["({})", "not ({})"]).format(random.choice([" and ", " or "]).join(parts))


@pytest.mark.parametrize("seed", usual(range(50, 60), "53"))
def test_conditions_of_any_shape(seed, tmp_path):
    """An inner condition may be uniform where an outer one is not."""
    random = Random(seed)
    head = """
import hal_core as hal
@hal.kernel
def f(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], a: hal.int32, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
"""
    body = "".join(
        f"if {condition(random, 2)}:\n    y[j * w + i] += {1 << bit}\n" for bit in range(4)
    )
    kernel = function(head, f"if i < w and j < h:\n{indent(body, '    ')}", tmp_path)
    x, launch = np.arange(8, dtype="i4"), {"vals": (2, 33, 5), "grid": (9, 5), "block": (4, 1)}
    expected = np.zeros(33 * 5, "i4")
    interpret(kernel, expected, x, races=False, **launch)
    for width in (None, 4):
        y = hal.Buffer.from_numpy(np.zeros_like(expected), "CPU")
        program = compiled(kernel, width)
        program(y, hal.Buffer.from_numpy(x, "CPU"), wait=True, **launch)
        np.testing.assert_array_equal(y.numpy(), expected, body)


@hal.kernel
def between(y: hal.Ptr[hal.int32], first: hal.int32, end: hal.int32):
    i = hal.global_idx(0)
    if first <= i < end:
        y[i] += i + 1


@pytest.mark.parametrize("block", [256, 40, 5])
def test_rows_that_begin_within_a_vector_run_each_thread_once(block):
    """Their gangs begin at a vector, or at the first thread of the row."""
    programs = [compiled(between, width) for width in (None, 4, 1)]
    size = -(-700 // block) * block
    for first, end in itertools.product((-5, 0, 1, 15, 16, 17, 63, 300), (0, 250, 513, 700)):
        expected = np.zeros(size, "i4")
        expected[max(first, 0) : end] = np.arange(max(first, 0), max(first, end, 0)) + 1
        for program in programs:
            y = hal.Buffer.from_numpy(np.zeros(size, "i4"), "CPU")
            program(y, vals=(first, end), grid=size // block, block=block, wait=True)
            np.testing.assert_array_equal(y.numpy(), expected, f"{first} to {end}")


@pytest.mark.full
@pytest.mark.parametrize("registers", [WIDE_REGISTERS, NEON], ids=["avx512", "neon"])
@pytest.mark.parametrize("case", CASES[:20], ids=lambda case: str(case.kernel.__name__))
def test_gangs_of_any_processor_give_the_same(case, registers):
    compare([compiled(case.kernel, None, registers)], case, [65])


def guarded(array, at_end):
    """Return a copy that ends with the last byte of a page, or begins with the first of one.

    The pages on both sides of it cannot be read.
    """
    page = mmap.PAGESIZE
    pages = -(-array.nbytes // page) or 1
    memory = mmap.mmap(-1, (pages + 2) * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    offset = page + (pages * page - array.nbytes if at_end else 0)
    copy = np.frombuffer(memory, array.dtype, array.size, offset)
    copy[:] = array
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for place in (start, start + (pages + 1) * page):
        if protect(ctypes.c_void_p(place), ctypes.c_size_t(page), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    return copy, memory


def touch_nothing_else():
    """Run all cases in memory between pages that end the process when they are touched."""
    for case in CASES:
        program = compiled(case.kernel, None)
        for size in SIZES[::2]:
            for at_end in (True, False):
                arrays, vals, geometry = case.made(size, np.random.default_rng(size))
                kept = [guarded(array, at_end) for array in arrays]
                buffers = [external(array) for array, _ in kept]
                print(case.kernel.__name__, size, at_end, flush=True)
                program(*buffers, vals=vals, wait=True, **geometry)


def external(array):
    spec = hal.BufferSpec(external_ptr=array.ctypes.data)
    return hal.Buffer(hal.Device["CPU"], array.size, DTYPES[array.dtype.name], spec).allocate()


@pytest.mark.skipif(os.name == "nt", reason="it protects pages by mprotect")
def test_a_gang_touches_nothing_that_no_lane_accesses():
    folders = [str(Path(__file__).parent), *sys.path]  # tests/render has a test_vectors, too
    code = f"import sys; sys.path[:] = {folders!r}\n"
    code += "import test_vectors; test_vectors.touch_nothing_else()"
    printed(code)


def gangs_of(kernel, registers=AVX2):
    folded = fold(kernel.lower())
    return Gangs(folded._replace(uops=at_barriers(folded)), True, True, registers)


def notes(kernel, registers=AVX2):
    gangs = gangs_of(kernel, registers)
    gangs.text()
    return [f"{node.op}: {how}" for node, how in gangs.notes.items()]


def test_what_is_usual_is_one_vector():
    for kernel in (
        vector_kernels.clamped, vector_kernels.wrapped, vector_kernels.flat_index,
        vector_kernels.interleaved, vector_kernels.parted, vector_kernels.backwards,
        vector_kernels.sums_of_sixteen,
    ):  # fmt: skip
        assert not [note for note in notes(kernel) if "gathered" in note or "lane by lane" in note]
    assert notes(vector_kernels.digits).count("STORE: part of one store at stride 2") == 2
    eights = notes(vector_kernels.sums_of_eight_until_the_end)
    assert eights.count("LOAD: part of one load at stride 8") == 8


def test_a_store_of_one_lane_leaves_what_lies_behind():
    """LLVM 22 made a wider store of a narrowed element whose mask it knew: of thread 4 of 5."""
    y = hal.Buffer.from_numpy(np.full(20, 1.0, ml_dtypes.bfloat16), "CPU")
    z, x = hal.zeros(10, hal.int64, "CPU"), hal.zeros(3, hal.uint64, "CPU")
    compiled(vector_kernels.narrowed, None)(y, z, x, grid=2, block=5, wait=True)
    assert y.numpy().astype("f4").tolist() == [1.0] * 10 + [4.0] * 10


@pytest.mark.parametrize("shift", [0, 1, 1024])
def test_memories_that_overlap_keep_the_order_of_a_thread(shift):
    """`y` is `x` some elements on: with 1, `x[4 * i + 1]` is what the thread has stored before."""
    count = 256
    kernels = [vector_kernels.behind_the_first, vector_kernels.behind_the_first_in_turns]
    if shift != 1:  # then a thread loads what another one stores
        kernels.append(vector_kernels.backwards)
    for kernel in kernels:
        found = []
        for width in (None, 1):
            whole = hal.Buffer.from_numpy(np.arange(4 * count + 1024, dtype="f4"), "CPU")
            x, y = (whole.view(4 * count, hal.float32, 4 * at) for at in (0, shift))
            compiled(kernel, width)(y, x, vals=(count,), threads=count, wait=True)
            found.append(whole.numpy())
        np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("kernel", "why"),
    [(vector_kernels.sparse_rows, "it gathers more than it computes"),
     (vector_kernels.takes_turns, "threads may wait for each other")],
)  # fmt: skip
def test_threads_run_one_by_one_for_a_reason(kernel, why):
    gangs = gangs_of(kernel)
    assert gangs.widths.whole == 1
    assert gangs.widths.why.startswith(why)


def test_the_variables_of_a_gang_fit_the_registers():
    few = gangs_of(vector_kernels.sums).widths
    many = gangs_of(vector_kernels.sixteen_sums).widths
    assert few.whole > many.whole == many.few == 8
    eights = vector_kernels.sums_of_eight_until_the_end
    assert [gangs_of(eights, one).widths.whole for one in (AVX2, WIDE_REGISTERS)] == [8, 32]


def test_a_long_kernel_has_no_body_for_what_is_left_of_a_row():
    """Its time in LLVM would be a fifth of the whole: MIX takes the last gangs."""
    kernels = vector_kernels.clamped, made_of_itself
    assert ["begin.few" in gangs_of(kernel).text() for kernel in kernels] == [True, False]


@hal.kernel
def scaled_quotients(y: hal.Ptr[hal.int32], w: hal.int32, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = i // w + i // w


def test_a_guess_that_does_not_hold_is_no_poison():
    """A test of its quotient is joined with the test of the guess: poison would be both."""

    @hal.kernel
    def pairs(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32):
        i = hal.global_idx(0)
        y[i] = x[i // 2 % n]

    text = compiled(pairs, 8).source
    assert re.search(r"= sdiv i32 %[\w.]+, 2\n", text) and " exact " not in text


def test_what_no_loop_changes_is_written_once_ahead_of_all():
    text = LLVMRenderer().render(scaled_quotients.lower())
    assert text.count("fdiv double 1.0") == 1  # for all bodies
    assert text.index("fdiv double 1.0") < text.index("\nblocks:")


def test_a_variable_begins_empty_in_each_gang():
    """Or what the gang before has left would go, as a vector, through all loops of the kernel."""
    text = LLVMRenderer().render(vector_kernels.leaves.lower())
    variables = re.findall(r"(%var\.\d+) = alloca <", text)
    assert len(variables) == 6  # two, in three bodies
    for name in variables:
        first, *others = re.findall(rf"store .* (\S+), ptr {name}\b", text)
        assert first == "zeroinitializer"
        assert first not in others


@hal.kernel
def loaded_again(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        for _ in range(3):
            y[i] = x[i] + 1.0
        y[i] += x[i]


@pytest.mark.parametrize("width", [None, 1, 4], ids=str)
def test_a_store_may_change_what_is_loaded_through_another_pointer(width):
    y = hal.Buffer.from_numpy(np.arange(100, dtype="f4"), "CPU")
    compiled(loaded_again, width)(y, y, vals=(100,), threads=100, wait=True)
    np.testing.assert_array_equal(y.numpy(), 2 * (np.arange(100, dtype="f4") + 3))


@hal.kernel
def below_a_limit(y: hal.Ptr[hal.int32], first: hal.uint32) -> None:
    i = hal.global_idx(0)
    if first + hal.uint32(i) < 5:
        y[i] = 1


@hal.kernel
def above_a_limit(y: hal.Ptr[hal.int32], first: hal.uint32) -> None:
    i = hal.global_idx(0)
    if first - hal.uint32(i) > 4:
        y[i] = 1


def test_numbers_that_wrap_in_one_lane_are_no_pattern():
    up, down = (compiled(kernel, 4) for kernel in (below_a_limit, above_a_limit))
    lanes = np.arange(8, dtype="u4")
    for far in np.arange(-9, 9).astype("u4"):
        for program, expected in ((up, far + lanes < 5), (down, far - lanes > 4)):
            y = hal.zeros(8, hal.int32, "CPU")
            program(y, vals=(int(far),), threads=8, wait=True)
            np.testing.assert_array_equal(y.numpy(), expected, err_msg=str(far))


@hal.kernel
def sums_of_none(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], w: hal.int32) -> None:
    i = hal.global_idx(0)
    total = hal.float32(0)
    for _ in range(w):
        total += x[i] + x[0]
    y[i] = total


@hal.kernel
def wrap_by_factor(y: hal.Ptr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    a, b, c = (i + n) * 1826858247, (i + n) * 65537 * 65537, hal.uint32(i) * 2863311531
    if a > 0:
        y[3 * i] = 1
    if hal.int64(b) > hal.int64(n):
        y[3 * i + 1] = 2
    if c > 3221225472:
        y[3 * i + 2] = 3


@pytest.mark.parametrize("n", [0, 1367863533, -(1 << 31)])
def test_lanes_that_a_constant_factor_wraps_are_tested_as_what_they_hold(n):
    expected, made = np.zeros(768, "i4"), hal.zeros(768, hal.int32, "CPU")
    interpret(wrap_by_factor, expected, vals=(n,), threads=256)
    compiled(wrap_by_factor, None)(made, vals=(n,), threads=256)
    np.testing.assert_array_equal(made.numpy(), expected)


@pytest.mark.parametrize("width", [None, 1, 4], ids=str)
def test_a_loop_without_iterations_loads_nothing(width):
    """Though what it loads is loaded ahead of it."""
    y, none = hal.zeros(100, hal.float32, "CPU"), hal.Buffer("CPU", 0, hal.float32)
    compiled(sums_of_none, width)(y, none, vals=(0,), threads=100, wait=True)
    assert not y.numpy().any()


@hal.kernel
def short_loops(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32]) -> None:
    i = hal.global_idx(0)
    for a in range(8):
        for b in range(8):
            for c in range(8):
                for d in range(8):
                    for e in range(8):
                        y[8 * i + e] = x[8 * i + e] + hal.float32(a + b + c + d)


def test_loops_within_each_other_stay_loops():
    """Or 32,768 iterations stood one behind the other."""
    assert LLVMRenderer().render(short_loops.lower()).count("\n") < 4000


def test_llvm_unrolls_only_short_loops_without_masks():
    for kernel, ends in (
        (sums_of_none, ["", "", ROLLED]),
        (vector_kernels.sixteen_sums, [ROLLED] * 3),
    ):
        text = LLVMRenderer().render(kernel.lower())  # of ON, FEW and MIX
        assert re.findall(r"br i1 \S+, label %body\.\d+, label %end\.\d+(.*)", text) == ends
