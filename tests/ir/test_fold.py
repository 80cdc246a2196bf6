"""Folding changes no meaning, leaves nothing half done, and takes what it should."""

import itertools
import math
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import oracles
import pytest
from builder import Builder
from counts import calls
from everything import ops_of
from generator import generate
from harness import OK, Runner, Trial, Verdict
from oracles import same
from slices import usual

from hal_core.dtypes import bool_, float32, float64, int32, int64
from hal_kernel.interpreter import interpret
from hal_kernel.ir.fold import fold
from hal_kernel.ir.uop import COMPARISON
from hal_kernel.ir.verify import verify


def ops(kernel):
    return [node.op for node in kernel.uops]


class Folded(Runner):
    """The interpreter, on what folding makes of a kernel."""

    def launch(self, kernel, case, before):
        folded = fold(kernel.lower())
        verify(folded)
        again = fold(folded)
        assert all(a is b for a, b in zip(again.uops, folded.uops, strict=True)), "nothing is left"
        inside = [array[case.guard : -case.guard] for array in before]
        with redirect_stdout(StringIO()):  # of `hal.print`
            interpret(folded, *inside, vals=case.vals, races=False, **case.launch)
        return before


@pytest.mark.parametrize("first", usual(range(0, 160, 20), "0", "20"))
def test_a_folded_kernel_does_the_same(first):
    for seed in range(first, first + 20):
        trial = Trial(generate(seed))
        assert Folded().run(trial) == Verdict(OK), trial.case
        twin = fold(Trial(trial.case).kernel.lower())
        assert [*map(repr, twin.uops)] == [*map(repr, fold(trial.kernel.lower()).uops)]


def test_the_time_it_takes_grows_with_the_kernel_only():
    def folding(count):
        b = Builder("chain", "y: int32*, n: int32")
        chain = [b.var(f"v{k}", b.const(0)) for k in range(count)]
        with_turns = b.range(b.const(0), b.params["n"], b.const(1))
        for earlier, later in itertools.pairwise(chain):  # each round could know one more
            branch = b.if_(b.op("NE", b.get(earlier), b.const(0)))
            b.set(later, b.const(1))
            b.end(branch)
        b.end(with_turns)
        b.store("y", b.const(0), b.get(chain[-1]))
        kernel = b.kernel()
        return calls(lambda: fold(kernel))

    assert folding(160) < 5 * folding(40)


# -- what goes and what stays


def folded_value(make, dtype):
    """What is stored by a kernel that stores this value."""
    b = Builder("k", f"y: {dtype.name}*, a: {dtype.name}, n: int32")
    b.store("y", b.const(0), make(b))
    kernel = b.kernel()
    verify(kernel)
    folded = fold(kernel)
    verify(folded)
    assert ops(folded)[-1:] == ["STORE"]
    return folded.uops[-1].src[2]


LEAST = -(2**31)
NAN = float("nan")


# All devices give the same for them: none is so small that some would flush it to zero.
NUMBERS = [0.0, -0.0, 1.0, -1.5, 2.5, 0.1, 3e9, 1e20, -math.inf, math.inf, NAN]


def compared(dtype, made):
    """Return the folded kernel that stores values, which are those without folding."""
    b = Builder("k", f"y: {dtype.name}*")
    values = made(b)
    for place, value in enumerate(values):
        b.store("y", b.const(place), value)
    kernel, results = b.kernel(), np.zeros((2, len(values)), dtype.to_numpy())
    folded = fold(kernel)
    for one, result in zip((kernel, folded), results, strict=True):
        interpret(one, result, threads=1)
    for value, expected, found in zip(values, *results, strict=True):
        assert same(found.item(), expected.item()), f"{value.op} {[src.arg for src in value.src]}"
    return folded


def pairs(dtype):
    numbers = NUMBERS if dtype.is_float else oracles.numbers(dtype)
    every = list(itertools.product(numbers, repeat=2))
    return every[:: 1 + len(every) // 100]


@pytest.mark.parametrize("dtype", oracles.COMPUTED, ids=str)
def test_constants_have_the_values_of_the_interpreter(dtype):
    known = {"ADD", "SUB", "MUL", "DIV", "NEG", "ABS", "MIN", "MAX", "FLOOR", "CEIL", "ROUND"}
    for op, count, gives in ops_of(dtype):
        if op in COMPARISON or not dtype.is_float or op in known:
            rows = pairs(dtype)
            folded = compared(gives, lambda b: [
                b.add(op, gives, *(b.const(value, dtype) for value in row[:count]))  # noqa: B023
                for row in rows  # noqa: B023
            ])  # fmt: skip
            assert op not in ops(folded)


@pytest.mark.parametrize("target", oracles.COMPUTED, ids=str)
@pytest.mark.parametrize("source", oracles.COMPUTED, ids=str)
def test_casts_have_the_values_of_the_interpreter(source, target):
    numbers = [*NUMBERS, 1e300] if source is float64 else NUMBERS
    numbers = numbers if source.is_float else oracles.numbers(source)
    folded = compared(
        target, lambda b: [b.cast(b.const(value, source), target) for value in numbers]
    )
    # An integer beyond a double's is rounded once by the device.
    beyond = target is float32 and source.itemsize == 8
    assert "CAST" not in ops(folded) or beyond


@pytest.mark.parametrize(
    ("op", "values", "dtype"),
    [
        ("POW", (1.0, NAN), float32),
        ("MUL", (1e-30, 1e-10), float32),  # which some devices flush to zero
        ("ADD", (1e-45, 0.0), float32),
        ("SQRT", (2.0,), float32),
        ("EXP", (1.0,), float64),
        ("FMA", (1.0, 2.0, 3.0), float32),
    ],
)
def test_what_devices_may_give_otherwise_is_left_to_them(op, values, dtype):
    value = folded_value(lambda b: b.op(op, *(b.const(one, dtype) for one in values)), dtype)
    assert value.op == op


def test_the_bits_of_a_NaN_are_left_to_the_device():
    found = folded_value(lambda b: b.add("BITCAST", int32, b.const(NAN, float32)), int32)
    assert found.op == "BITCAST"
    found = folded_value(lambda b: b.add("BITCAST", float32, b.const(0x7FC00001)), float32)
    assert found.op == "BITCAST"
    found = folded_value(lambda b: b.add("BITCAST", int32, b.const(1.0, float32)), int32)
    assert found.arg == 0x3F800000


def test_an_integer_beyond_a_doubles_is_rounded_once_by_the_device():
    found = folded_value(lambda b: b.cast(b.const(2**62 + 2**38 + 1, int64), float32), float32)
    assert found.op == "CAST"


A = "the parameter"


OPERANDS = [
    ("ADD", (A, 0), A), ("ADD", (0, A), A), ("SUB", (A, 0), A), ("SUB", (0, A), None),
    ("MUL", (A, 1), A), ("MUL", (1, A), A), ("MUL", (0, A), 0), ("MUL", (A, 2), None),
    ("FLOORDIV", (A, 1), A), ("FLOORDIV", (A, 0), 0), ("FLOORDIV", (1, A), None),
    ("TRUNCDIV", (A, 1), A), ("TRUNCDIV", (A, 0), 0), ("TRUNCDIV", (1, A), None),
    ("TRUNCMOD", (A, 1), 0), ("TRUNCMOD", (A, -1), 0), ("TRUNCMOD", (A, 2), None),
    ("MOD", (A, 1), 0), ("MOD", (A, -1), 0), ("MOD", (A, 0), 0), ("MOD", (A, 2), None),
    ("SHL", (A, 0), A), ("SHL", (A, 32), A), ("SHR", (A, 64), A), ("SHR", (0, A), None),
    ("AND", (A, 0), 0), ("AND", (-1, A), A), ("AND", (A, 1), None),
    ("OR", (A, 0), A), ("OR", (A, -1), -1), ("OR", (A, 1), None),
    ("XOR", (0, A), A), ("XOR", (A, -1), None), ("XOR", (A, A), 0), ("SUB", (A, A), 0),
    ("MIN", (A, A), A), ("AND", (A, A), A), ("ADD", (A, A), None),
    ("LT", (A, A), 0), ("GT", (A, A), 0), ("NE", (A, A), 0),
    ("LE", (A, A), 1), ("GE", (A, A), 1), ("EQ", (A, A), 1),
]  # fmt: skip


@pytest.mark.parametrize(("op", "operands", "expected"), OPERANDS)
def test_one_operand_may_be_enough(op, operands, expected):
    def make(b):
        made = b.op(op, *(b.params["a"] if x is A else b.const(x) for x in operands))
        return made if made.dtype is int32 else b.cast(made, int32)

    found = folded_value(make, int32)
    if expected is A:
        assert found.op == "PARAM"
    else:
        assert (found.op, found.arg) == ((op, None) if expected is None else ("CONST", expected))


def test_floats_have_no_identities():
    for op, value in (("ADD", 0.0), ("MUL", 1.0), ("MUL", 0.0), ("SUB", 0.0)):
        found = folded_value(lambda b: b.op(op, b.params["a"], b.const(value, float32)), float32)  # noqa: B023
        assert found.op == op
    assert folded_value(lambda b: b.op("SUB", b.params["a"], b.params["a"]), float32).op == "SUB"
    turned = folded_value(lambda b: b.op("NEG", b.op("NEG", b.params["a"])), float32)
    assert turned.op == "NEG"


@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL", "DIV", "FMOD", "ATAN2"])
def test_a_NaN_spreads_whatever_the_other_operand_is(op):
    """PoCL 3.1 was seen to give numbers for `exp` of a value that is always NaN."""

    def nan(b):
        return b.const(NAN, float32)

    def bits(b):
        return b.add("BITCAST", float32, b.const(-1))

    for make in (nan, bits):
        found = folded_value(lambda b: b.op(op, make(b), b.params["a"]), float32)  # noqa: B023
        assert found.op == "CONST" and found.arg != found.arg
        found = folded_value(lambda b: b.op("EXP", b.op(op, b.params["a"], make(b))), float32)  # noqa: B023
        assert found.op == "CONST" and found.arg != found.arg
    assert folded_value(lambda b: b.op("POW", nan(b), b.params["a"]), float32).op == "POW"
    assert folded_value(lambda b: b.op("MAX", nan(b), b.params["a"]), float32).op == "MAX"


def test_what_is_undone_is_not_done():
    for op in ("NOT", "NEG"):
        assert folded_value(lambda b: b.op(op, b.op(op, b.params["a"])), int32).op == "PARAM"  # noqa: B023


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("other", [True, False])
def test_a_known_condition_takes_its_side(taken, other):
    b = Builder("k", "y: int32*")
    branch = b.if_(b.const(taken, bool_))
    b.store("y", b.const(0), b.const(1))
    if other:
        b.else_(branch)
        b.store("y", b.const(0), b.const(2))
    b.end(branch)
    folded = fold(b.kernel())
    stored = [node.src[2].arg for node in folded.uops if node.op == "STORE"]
    assert stored == ([1] if taken else [2] if other else [])
    assert not {"IF", "ELSE", "ENDIF"} & set(ops(folded))


def test_what_both_sides_agree_on_is_known_behind_them():
    def stored(first, second):
        b = Builder("k", "y: int32*, n: int32")
        v = b.var("v", b.const(0))
        branch = b.if_(b.op("LT", b.params["n"], b.const(5)))
        b.set(v, b.const(first))
        b.else_(branch)
        b.set(v, b.const(second))
        b.end(branch)
        b.store("y", b.const(0), b.get(v))
        folded = fold(b.kernel())
        verify(folded)
        return folded.uops[-1].src[2]

    assert (stored(3, 3).op, stored(3, 4).op) == ("CONST", "GET")


def test_a_loop_without_turns_goes_and_one_with_turns_stays():
    for stop, step, stays in ((0, 1, False), (1, 1, True), (1, -1, False), (-1, -1, True)):
        b = Builder("k", "y: int32*")
        loop = b.range(b.const(0), b.const(stop), b.const(step))
        b.store("y", b.const(0), loop)
        b.end(loop)
        assert ("RANGE" in ops(fold(b.kernel()))) is stays


def test_a_loop_that_is_left_at_once_is_none():
    b = Builder("k", "y: int32*")
    loop = b.add("LOOP")
    branch = b.if_(b.const(True, bool_))  # while False
    b.add("BREAK", None, loop)
    b.end(branch)
    b.store("y", b.const(0), b.const(1))
    b.add("ENDLOOP", None, loop)
    b.store("y", b.const(1), b.const(2))
    folded = fold(b.kernel())
    assert [op for op in ops(folded) if op not in ("PARAM", "CONST")] == ["STORE"]


def test_nothing_stays_behind_a_return():
    b = Builder("k", "y: int32*")
    branch = b.if_(b.const(True, bool_))
    b.add("RETURN")
    b.end(branch)
    b.store("y", b.const(0), b.const(1))
    folded = fold(b.kernel())
    verify(folded)
    assert ops(folded) == ["RETURN"]


def test_what_a_launch_can_see_stays():
    b = Builder("k", "y: int32*, n: int32")
    b.add("SHARED", float32, arg=("tile", 4))
    b.load("y", b.const(0))
    b.add("ASSERT", None, b.op("LT", b.params["n"], b.const(3)), arg="only interpreted")
    b.add("ASSERT", None, b.params["n"], b.const(3), arg="only interpreted")
    b.add("PRINT", None, b.params["n"], arg="goes too, {}")
    b.add("BARRIER")
    b.add("ATOMIC", int32, b.params["y"], b.const(0), b.const(0), arg="ADD")
    loop = b.add("LOOP")
    b.add("ENDLOOP", None, loop)
    kept = [op for op in ops(fold(b.kernel())) if op not in ("PARAM", "CONST")]
    assert kept == ["SHARED", "LOAD", "BARRIER", "ATOMIC", "LOOP", "ENDLOOP"]


def test_what_nothing_depends_on_goes_with_its_loops_and_branches():
    b = Builder("k", "y: int32*, n: int32")
    total = b.var("total", b.const(0))
    loop = b.range(b.const(0), b.params["n"], b.const(1))
    branch = b.if_(b.op("LT", loop, b.const(3)))
    b.set(total, b.op("ADD", b.get(total), loop))
    b.else_(branch)
    b.add("BREAK", None, loop)
    b.end(branch)
    b.end(loop)
    assert fold(b.kernel()).uops == ()


def test_a_fixed_block_is_a_constant():
    def stored(kind, axis, block):
        b = Builder("k", "y: int32*")
        b.store("y", b.const(0), b.special(kind, axis))
        return fold(b.kernel(block=block)).uops[-1].src[2]

    assert stored("block_dim", 1, (4, 8, 1)).arg == 8
    assert stored("thread_idx", 2, (4, 8, 1)).arg == 0
    for kind, axis, block in [
        ("thread_idx", 1, (4, 8, 1)), ("block_dim", 1, None), ("block_dim", 0, (2**31, 1, 1)),
        ("grid_dim", 2, (4, 8, 1)), ("global_idx", 2, (4, 8, 1)),
    ]:  # fmt: skip
        assert stored(kind, axis, block).op == "SPECIAL"


def test_a_block_times_its_size_plus_the_thread_is_the_global_index():
    def stored(block, size, axes="111"):
        b = Builder("k", "y: int32*")
        parts = [b.special("block_idx", int(axes[0])), b.special("block_dim", int(axes[1]))]
        if size:
            parts[1] = b.const(size)
        thread = b.special("thread_idx", int(axes[2]))
        first = b.op("MUL", *(parts if axes[0] == "1" else parts[::-1]))
        b.store("y", b.const(0), b.op("ADD", *((first, thread) if size else (thread, first))))
        return fold(b.kernel(block=block)).uops[-1].src[2].arg

    assert stored(None, 0) == ("global_idx", 1)
    assert stored((4, 8, 2), 0) == ("global_idx", 1)
    assert stored((4, 8, 2), 8) == ("global_idx", 1)
    assert stored((4, 8, 2), 2, "222") == ("global_idx", 2)
    for other in [(None, 8), ((4, 8, 2), 4), (None, 0, "110"), (None, 0, "101"), (None, 0, "011")]:
        assert stored(*other) is None
