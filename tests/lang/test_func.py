"""`@hal.func`: functions that kernels call."""

from pathlib import Path

import kernel_files
import numpy as np
import pytest
from kernel_files import IMPORTS, load, refusal

import hal_core as hal
from hal_kernel.interpreter import interpret
from hal_kernel.ir.verify import verify

pytestmark = pytest.mark.syntax

KERNEL = """
@hal.kernel
def f(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
"""


def written(functions, body):
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return IMPORTS + functions + KERNEL + lines


def lowered(functions, body, tmp_path):
    return kernel_files.lowered(IMPORTS + functions + KERNEL, body, tmp_path)


CLAMP = """
@hal.func
def clamp(x: hal.float32, low: hal.float32, high: hal.float32) -> hal.float32:
    \"\"\"x between two others\"\"\"
    return min(max(x, low), high)
"""
RUNS = {
    "an expression": (CLAMP, "y[i] = clamp(x[i], 1, 2.0)", [1, 1, 2, 2]),
    "each call has names of its own": (
        "@hal.func\ndef g(a):\n    v = a * 2\n    v += 1\n    return v\n",
        "v = x[i]\nv += g(v) + g(v + 1)\ny[i] = v",
        [4, 9, 14, 19],
    ),
    "only the else returns": (
        "@hal.func\ndef g(a):\n    if a < 2:\n        b = a * 2\n    else:\n        return a\n"
        "    return b + 10\n",
        "y[i] = g(x[i])",
        [10, 12, 2, 3],
    ),
    "a procedure": (
        "@hal.func\ndef put(p: hal.Ptr[hal.float32], i, v) -> None:\n    p[i] = v\n",
        "put(y, i, x[i] + 1)",
        [1, 2, 3, 4],
    ),
    "a procedure that returns early": (
        "@hal.func\ndef put(p, i, n):\n    if i >= n - 2:\n        return\n    p[i] = 1\n"
        "    p[i] += i and 1 if False else 6\n",
        "put(y, i, n)",
        [7, 7, 0, 0],
    ),
    "any dtype": (
        "@hal.func\ndef twice(a, dtype):\n    return dtype(a) * 2\n",
        "y[i] = twice(x[i], hal.float32) + hal.float32(twice(i, hal.int64))",
        [0, 4, 8, 12],
    ),
    "numbers stay numbers": (
        "@hal.func\ndef square(a):\n    return a * a\n@hal.func\ndef size():\n    return 3\n",
        "t = hal.shared(hal.int32, (square(2), size()))\nfor k in hal.unroll(square(2)):\n"
        "    if k == size():\n        y[i] += k",
        [3, 3, 3, 3],
    ),
    "functions call functions": (
        CLAMP + "@hal.func\ndef unit(a):\n    return clamp(a, 0.0, 1.0)\n"
        "@hal.func\ndef apply(g, a):\n    return g(a) + g(a)\n",
        "y[i] = apply(unit, x[i])",
        [0, 2, 2, 2],
    ),
    "a closure of its own": (
        "def make(step):\n    @hal.func\n    def add(a):\n        return a + step\n    return add\n"
        "one, ten, step = make(1), make(10), 7\n",
        "y[i] = one(x[i]) + ten(x[i]) + step",
        [18, 20, 22, 24],
    ),
    "a pointer that is only read": (
        "@hal.func\ndef first(p: hal.ConstPtr[hal.float32]) -> hal.float32:\n    return p[1]\n",
        "y[i] = 3\ny[i] = first(x) + y[i]",
        [4, 4, 4, 4],
    ),
    "an array as a pointer is flat": (
        "@hal.func\ndef put(p: hal.Ptr[hal.float32], i: hal.int32, v):\n    p[i] = v\n",
        "t = hal.shared(hal.float32, (2, 2))\nput(t, i, x[i])\nhal.barrier()\n"
        "y[i] = t[i % 2, i // 2]",
        [0, 2, 1, 3],
    ),
    "shared memory and a barrier": (
        "@hal.func\ndef left(tile: hal.Ptr[hal.float32], i, value):\n    tile[i] = value\n"
        "    hal.barrier()\n    return tile[max(i - 1, 0)]\n"
        "@hal.func\ndef count(c, by):\n    hal.atomic_add(c, (0, 0), by)\n",
        "t = hal.shared(hal.float32, 4)\nc = hal.shared(hal.int32, (1, 1))\nif i == 0:\n"
        "    c[0, 0] = 0\nv = left(t, i, x[i])\ncount(c, 2)\nhal.barrier()\n"
        "y[i] = v + hal.float32(c[0, 0])",
        [8, 8, 9, 10],
    ),
    "not called where Python would not": (
        "@hal.func\ndef bump(p, i):\n    p[i] += 1\n    return p[i] > 1\n",
        "v = i > 1 and bump(y, i)\nw = bump(y, i) if i > 2 else v",
        [0, 0, 1, 2],
    ),
    "several values, each side with work of its own": (
        "@hal.func\ndef parts(a, p):\n    if a > 1:\n        p[hal.int32(a)] = 7\n"
        "        return hal.int32(a), a / 2\n    return -1, 4\n"
        "@hal.func\ndef twice(a, p):\n    return parts(a, p)\n",
        "k, v = twice(x[i], y)\ny[i] += hal.float32(k) + v + parts(1.0, y)[1]",
        [7, 7, 14, 15.5],
    ),
    "numbers of several values": (
        "@hal.func\ndef both():\n    return 2, 0.5\n",
        "n, v = both()\nfor k in hal.unroll(both()[0]):\n    y[i] += v + k",
        [2, 2, 2, 2],
    ),
    "a return inside loops inside loops": (
        "@hal.func\ndef find(v):\n    for k in hal.unroll(3):\n        j = 0\n        while True:\n"
        "            if j > k:\n                break\n            for m in range(2):\n"
        "                if hal.float32(k * 4 + j * 2 + m) == v * 3:\n"
        "                    return k, hal.float32(j * 10 + m)\n            j += 1\n"
        "    return 9, 9\n",
        "k, v = find(x[i])\ny[i] = v + hal.float32(100 * k)",
        [0, 909, 110, 201],
    ),
    "a name of a loop that a return left": (
        "@hal.func\ndef find(p, k):\n    while True:\n        v = p[k]\n        if v == 2:\n"
        "            return -1\n        if v > 0.5:\n            break\n        k += 1\n"
        "    return v * 10 + hal.float32(k)\n",
        "y[i] = find(x, i)",
        [11, 11, -1, 33],
    ),
    "a loop that only returns": (
        "@hal.func\ndef find(v):\n    while True:\n        if v > 4:\n            return v\n"
        "        v += 2\n",
        "y[i] = find(x[i])",
        [6, 5, 6, 5],
    ),
    "a procedure that returns inside a loop": (
        "@hal.func\ndef fill(p, i, n):\n    for k in range(n):\n        if k == i:\n"
        "            return\n        p[i] += 1\n    p[i] = 50\n",
        "fill(y, i, 3)\nfill(y, i, 3)",
        [0, 2, 4, 50],
    ),
    "a return inside a loop after another": (
        "@hal.func\ndef find(p, n, v):\n    for k in range(n):\n        if p[k] > v:\n"
        "            return 1.0\n    for k in range(n):\n        if p[k] == v:\n"
        "            return 2.0\n        elif p[k] > 100:\n            break\n    return 3.0\n",
        "y[i] = find(x, n, x[i] + 1) + 10 * find(x, n, x[i])",
        [11, 11, 12, 23],
    ),
    "a constant decides": (
        "@hal.func\ndef pick(a, dtype):\n    if dtype is hal.float64:\n        return nothing\n"
        "    elif dtype == hal.float32:\n        return a\n    return 0\n",
        "y[i] = pick(x[i], hal.float32) + pick(x[i], hal.int32)",
        [0, 1, 2, 3],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_a_call_is_the_body_where_it_stands(name, tmp_path):
    functions, body, expected = RUNS[name]
    y, x = np.zeros(4, "f4"), np.arange(4, dtype="f4")
    interpret(lowered(functions, body, tmp_path), y, x, vals=(4,), threads=4, block=4)
    assert y.tolist() == expected


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_annotations_may_be_text(future, tmp_path):
    text = future + written(
        "def make(T):\n    @hal.func\n    def g(p: hal.ConstPtr[T], a: 'T') -> 'T':\n"
        "        return p[0] + a\n    return g\ng = make(hal.float32)\n",
        "y[i] = g(x, 1)",
    )
    verify(load(tmp_path, text).f.lower())


def test_the_object_says_what_it_is():
    @hal.func
    def mix(a: hal.float32, b: hal.float32) -> hal.float32:
        """a and b"""
        return a + b

    assert repr(mix) == "<func mix(a, b)>"
    assert isinstance(mix, hal.InlineFunction)
    assert mix.__doc__ == "a and b" and mix.__wrapped__.__code__.co_name == "mix"
    with pytest.raises(hal.Unsupported, match="mix.*inside @hal.kernel functions only"):
        mix(1, 2)


@pytest.mark.parametrize("thing", [3, len, object()])
@pytest.mark.parametrize("decorate", [hal.func, hal.kernel])
def test_only_functions_become_functions(decorate, thing):
    with pytest.raises(hal.InvalidArgument, match="not a Python function"):
        decorate(thing)


# Functions, the kernel's body, what stands at the caret, what is said, what to do.
G = "@hal.func\ndef g(a: hal.float32, p: hal.Ptr[hal.float32]):\n    {}\n"
BAD = [
    # the call
    ("def g(a):\n    return a\n", "v = g(x[i])", "g(x[i])", "the function g", "Put @hal.func abo"),
    ("g = lambda a: a\n", "v = g(x[i])", "g(x[i])", "the function <lambda>", "Write it as a def"),
    (G.format("return a"), "v = g(x[i])", "g(x[i])", "takes 2 argument(s), not 1", "Write g(a, p)"),
    (G.format("return a"), "v = g(a=1, p=y)", "g(a=1", "plain arguments", "without name"),
    (G.format("return a"), "v = g(i, y)", "i, y", "int32 where float32", "hal.float32"),
    (G.format("return a"), "v = g(x, y)", "x, y", "the pointer 'x' is not a value", "x[i]"),
    (G.format("return a"), "v = g(1, x[i])", "x[i]", "takes a pointer, p: hal.Ptr[hal.float32]",
     "without an index"),
    (G.format("return a"), "v = g(1, x)", "x)", "g writes p, and 'x' is only read", "ConstPtr"),
    (G.format("return a"), "t = hal.shared(hal.int32, 3)\nv = g(1, t)", "t)", "not one of int32",
     "Leave out the annotation"),
    (G.format("p[0] = a"), "v = g(1, y)", "g(1", "g gives no value", "a line of its own"),
    (G.format("p[0] = a"), "y[i] = 1 + g(1, y)", "g(1", "g gives no value", "a line of its own"),
    (G.format("return a"), "g(1, y)", "g(1", "the value is not used", "leave the line out"),
    ("@hal.func\ndef g(a):\n    return h(a)\n@hal.func\ndef h(a):\n    return g(a)\n",
     "v = g(x[i])", "g(a)", "g calls itself", "a loop"),
    ("@hal.func\ndef g(p: hal.Ptr[hal.int32]):\n    p[6] = 1\n",
     "t = hal.shared(hal.int32, (2, 3))\ng(t)", "6]", "the index 6 is outside", "index is 5"),
    # the body
    (G.format("return b"), "v = g(1, y)", "b", "'b' is not defined", "parameter"),
    (G.format("v = p\n    return a"), "v = g(1, y)", "p", "'p' is not a value", "p[i]"),
    (G.format("return a, a"), "v = g(1, y)", "g(1", "g gives 2 values", "a, b = g(1, y)"),
    (G.format("return a, a"), "v, w, u = g(1, y)", "v, w, u", "gives 2 values", "for each value"),
    (G.format("return a, p"), "v, w = g(1, y)", "p", "'p' is not a value", "p[i]"),
    (G.format("if a > 0:\n        return a, a\n    return a"), "v = g(1, y)", "a",
     "gives 1 value(s), another 2", "as many on each path"),
    (G.format("for k in range(3):\n        if a > 0:\n            return k\n    return a"),
     "v = g(1, y)", "a", "the value is float32 where int32", "hal.int32"),
    ("@hal.func\ndef g(a) -> tuple[hal.float32, hal.int32]:\n    return a\n", "v = g(x[i])", "a",
     "gives 1 value(s) here, it says -> tuple[hal.float32, hal.int32]", "Correct"),
    ("@hal.func\ndef g(a) -> tuple[hal.float32, hal.int32]:\n    return a, a\n",
     "v, w = g(x[i])", "a", "float32 where int32", "hal.int32"),
    ("@hal.func\ndef g(a) -> hal.float32:\n    return a, a\n", "v, w = g(x[i])", "a, a",
     "it says -> hal.float32", "Correct"),
    (G.format("return a\n    a = 1"), "v = g(1, y)", "a = 1", "never runs", "under if"),
    (G.format("for k in range(3):\n        return a"), "v = g(1, y)", "def g", "on some paths only",
     "End each"),
    (G.format("while True:\n        if a > 0:\n            return a\n    return 1"),
     "v = g(1, y)", "return 1", "never runs", "under if"),
    (G.format("if a > 0:\n        return a"), "v = g(1, y)", "if a > 0", "on some paths only",
     "End each"),
    (G.format("if a > 0:\n        return a\n    return"), "v = g(1, y)", "return",
     "on some paths only", "End each"),
    (G.format("if a > 0:\n        return a\n    return hal.int32(1)"), "v = g(1, y)", "hal.int32",
     "int32 where float32", "hal.float32"),
    (G.format("if a > 0:\n        if a > 1:\n            return a\n    a += 1\n    return a"),
     "v = g(1, y)", "if a > 0", "both sides of this if go on", "return on every path"),
    (G.format("if a > 0:\n        b = a\n        return b\n    return b"), "v = g(1, y)", "b",
     "'b' is not assigned on every path", "Assign b"),
    (G.format("t = hal.shared(hal.int32, 3)\n    return a"), "v = g(1, y)", "hal.shared",
     "declared in the kernel itself", "pass it to the function"),
    ("@hal.func\ndef g(a) -> hal.int32:\n    return a\n", "v = g(x[i])", "a", "float32 where int32",
     "hal.int32"),
    ("@hal.func\ndef g(a) -> hal.int32:\n    a = a\n", "v = g(x[i])", "def g", "on some paths only",
     "End each"),
    ("@hal.func\ndef g(a) -> None:\n    return a\n", "v = g(x[i])", "a", "its type is -> None",
     "Write -> hal.float32"),
    ("@hal.func\ndef g(p: hal.ConstPtr[hal.float32]):\n    p[0] = 1\n", "g(y)", "p[0]",
     "'p' is only read", "p: hal.Ptr[hal.float32]"),
    ("@hal.func\ndef g(t):\n    t[0] = 1\n", "t = hal.shared(hal.int32, (2, 2))\ng(t)", "t[0]",
     "takes both indices", "Write t[i, j]"),
    ("@hal.func\ndef g(a):\n    hal.barrier()\n", "if i > 0:\n    g(1)", "hal.barrier",
     "not all threads of a block", "Move it"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("functions", "body", "at", "says", "fix"), BAD, ids=lambda part: part[:40]
)
def test_refused_with_place_and_advice(functions, body, at, says, fix, tmp_path):
    error = refusal(lambda: lowered(functions, body, tmp_path), at, says, fix)
    assert error.lineno is not None
    start = (IMPORTS + functions + KERNEL).count("\n")
    inside = error.lineno <= start
    assert (": in g, called in line " in str(error) or "in h, called" in str(error)) == inside


def test_an_error_names_the_calls_that_lead_to_it(tmp_path):
    inner = "@hal.func\ndef inner(a):\n    return a + nothing\n"
    outer = "@hal.func\ndef outer(a):\n    return inner(a)\n"
    with pytest.raises(hal.KernelSyntaxError) as raised:
        lowered(inner + outer, "y[i] = outer(x[i])", tmp_path)
    said = str(raised.value)
    assert said.startswith(
        "kernel f: in inner, called in line 10, in outer, called in line 15: "
    ), said
    assert raised.value.kernel == "f" and raised.value.lineno == 7


def test_a_function_of_another_file(tmp_path):
    library = load(tmp_path, IMPORTS + "@hal.func\ndef bad(a):\n    return a + nothing\n")
    text = written("", "y[i] = bad(x[i])")
    module = load(tmp_path, text)
    module.bad = library.bad
    with pytest.raises(hal.KernelSyntaxError) as raised:
        module.f.lower()
    error = raised.value
    assert error.filename == library.__file__ and error.lineno == 7
    assert f"in bad, called in line 9 of {Path(str(module.__file__)).name}: " in str(error)


def test_nodes_carry_lines_of_the_kernels_file(tmp_path):
    pad = "\n" * 500
    source = pad + "@hal.func\ndef deep(a):\n    return a * 3\n@hal.func\ndef g(a):\n"
    library = load(tmp_path, IMPORTS + source + "    return deep(a) + 1\n")
    module = load(tmp_path, written("", "y[i] = g(x[i])"))
    module.g = library.g
    assert max(node.line for node in module.f.lower().uops) == 9


@pytest.mark.parametrize("body", ["return {0}(a) + {0}(a)", "b = {0}(a)\n    return {0}(b)"])
def test_calls_that_multiply_are_stopped(body, tmp_path):
    functions = "@hal.func\ndef g0(a):\n    return a\n"
    for k in range(20):
        functions += f"@hal.func\ndef g{k + 1}(a):\n    {body.format(f'g{k}')}\n"
    with pytest.raises(hal.KernelSyntaxError, match="more than 50000 operations"):
        lowered(functions, "y[i] = g20(x[i])", tmp_path)


def test_numbers_do_not_grow_without_end(tmp_path):
    functions = "@hal.func\ndef square(a):\n    return a * a\n"
    body = "v = " + "square(" * 40 + "3" + ")" * 40
    with pytest.raises(hal.KernelSyntaxError, match="more than 256 bits"):
        lowered(functions, body, tmp_path)


HEADS = [
    ("def g(*a):", "def g", "a function may have plain parameters only", "without *"),
    ("def g(a=1):", "def g", "a function's parameter must have no default", "in the call"),
    ("def g(a: float):", "a: float", "float is not a parameter's type", "a: hal.float32"),
    ("def g(a: hal.float16):", "a: hal", "float16 is for memory", "hal.float32"),
    ("def g(a) -> hal.bfloat16:", "hal.bfloat16", "bfloat16 is for memory", "hal.float32"),
    ("def g(a) -> bool:", "bool", "bool is not what a function gives", "Write -> hal.bool_"),
    ("def g(a) -> hal.Ptr[hal.int32]:", "hal.Ptr", "not what a function gives", "-> hal.float32"),
    ("async def g(a):", "", "a function must be a plain function", "with def"),
]


@pytest.mark.parametrize(("head", "at", "says", "fix"), HEADS)
def test_bad_signature_is_refused_at_the_definition(head, at, says, fix, tmp_path):
    text = f"{IMPORTS}@hal.func\n{head}\n    return a\n"
    error = refusal(lambda: load(tmp_path, text), at, says, fix)
    assert str(error).startswith("kernel: in g: ")


@hal.func
def with_half(x):
    return x, hal.float32(x) / 2


@hal.kernel
def dropping(y: hal.Ptr[hal.float32], x: hal.int32):
    _, y[0] = with_half(x)
    y[1], _ = with_half(hal.float32(7))
    _ = hal.int64(x)


def test_results_that_are_dropped_have_any_dtypes():
    """The first value of `_` decided the dtype of all."""
    y = np.zeros(2, "f4")
    interpret(dropping, y, vals=(3,), threads=1)
    assert y.tolist() == [1.5, 7]
