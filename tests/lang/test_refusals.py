"""Everything outside the kernel language is refused: where, why, and what to write instead."""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from kernel_files import IMPORTS, load
from remedies import REMEDIES

import hal_core as hal
from hal_kernel.interpreter import interpret

pytestmark = pytest.mark.syntax

# What a body may use; the body starts on line LINE of the file.
HEAD = (
    IMPORTS
    + """
import numpy as np

WEIGHTS = (1.0, 2.0)
STEPS = (1, 2)
STOPS = [1, 2]
TABLE = np.zeros(3)
NAME = "text"
THING = object()
APPEND = [].append
HALF = np.complex64(0.5)
HUGE = 10**5000


def helper(x):
    return x


@hal.func
def both(x):
    return x


@hal.kernel
def other(y: hal.Ptr[hal.float32]):
    y[0] = 1.0


@hal.kernel
def bad(
    y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], u: hal.Ptr[hal.uint8],
    a: hal.float32, d: hal.float64, n: hal.int32, m: hal.int64, b: hal.uint8, t: hal.bool_,
    w: hal.uint32, z: hal.uint64,
):
    i = hal.global_idx(0)
"""
)
LINE = HEAD.count("\n") + 1


def indented(body):
    return "".join(f"    {line}\n" for line in body.splitlines())


class Bad(NamedTuple):
    body: str
    at: str  # what stands at the caret
    says: str
    fix: str


BAD = [
    # statements
    Bad("while n > 0:\n    pass\nelse:\n    n = 0", "n = 0", "while ... else", "Set a variable"),
    Bad("while True:\n    n += 1", "while", "never ends", "break into it"),
    Bad("while n:\n    n -= 1", "n", "a condition must be a bool", "x != 0"),
    Bad("for k in range(n):\n    break\n    n = 1", "n = 1", "never runs", "under if"),
    Bad("return\nn = 1", "n = 1", "never runs", "under if"),
    Bad("while True:\n    if t:\n        return\nn = 1", "n = 1", "never runs", "under if"),
    Bad("return y[i]", "y[i]", "returns no value", "write return"),
    Bad("assert 1 > 2", "1 > 2", "this does not hold: 1 > 2", "captures"),
    Bad("assert len(STEPS) == 3, 'three'", "len", "this does not hold: three", "captures"),
    Bad("assert n", "n", "a condition must be a bool", "x != 0"),
    Bad("assert t, f'{n}'", "f'", "the message must be plain text", 'Write assert c, "text"'),
    Bad("raise ValueError", "raise", "raise", "Store a code"),
    Bad("try:\n    pass\nfinally:\n    pass", "try", "try", "test with if"),
    Bad("with y:\n    pass", "with", "with", "without it"),
    Bad("import math", "import", "import", "top of the file"),
    Bad("def f(x): return x", "def f", "a function inside", "as a def with @hal.func"),
    Bad("class C: pass", "class", "a class inside", "local variables"),
    Bad("global WEIGHTS", "global", "global", "hal.Ptr parameter"),
    Bad("del i", "del", "del", "Leave it out"),
    Bad("match i:\n    case 0: pass", "match", "match", "if and elif"),
    Bad("acc: hal.float64 = 0.0", "acc", "an annotated assignment", "hal.float64(0)"),
    Bad("p, q, r = 1, 2", "p, q, r", "gives 2 values, and (p, q, r) takes 3", "for each value"),
    Bad("p, q = a", "p, q", "gives 1 value, and (p, q) takes 2", "a target for each"),
    Bad("p, = n", "p,", "n gives 1 value, and (p,) takes a tuple of one", "comma out: p = ..."),
    Bad("y[i], = a", "y[i],", "gives 1 value, and (y[i],) takes a tuple", "comma out: y[i] = ..."),
    Bad("(p, q), r = 1, 2", "(p, q)", "only names and elements", "a, p[i] = x, y"),
    Bad("p = q = hal.shared(hal.int32, 3)", "hal.shared", "has no value", "a line of its own"),
    Bad("i, i = a, 1", "a", "'i' is int32 since line", "Cast the value"),
    Bad("y.size = 3", "y.size", "only names and elements", "a name or an element"),
    Bad("y = x", "y", "the pointer 'y' cannot be assigned", "part = y[k:]"),
    Bad("y[i]", "y[i]", "the value is not used", "Assign it"),
    Bad("hal.exp(a)", "hal.exp", "the value is not used", "leave the line out"),
    # loops
    Bad("for k in WEIGHTS:\n    pass", "WEIGHTS", "runs over range", "hal.unroll(len(WEIGHTS))"),
    Bad("for k, w in enumerate(WEIGHTS):\n    pass", "k, w", "one counter", "len(WEIGHTS)): and"),
    Bad("for k in (0, 1, 2):\n    pass", "(0", "runs over range", "Write for k in range(3):"),
    Bad("for k in (4, 2, 0):\n    pass", "(4", "runs over", "Write for k in range(4, -1, -2):"),
    Bad("for k in (0, 1, 3):\n    pass", "(0", "runs over range", "Write for k in range(n):"),
    Bad("for k in x:\n    pass", "x", "runs over range", "for k in range(n)"),
    Bad("for k in range(n):\n    pass\nelse:\n    pass", "pass", "for ... else", "Set a variable"),
    Bad("for p, q in range(n):\n    pass", "p, q", "one counter", "for k in range(n)"),
    Bad("for k in range(0, n, 0):\n    pass", "0):", "an int other than 0", "for k in range(n)"),
    Bad("for k in range():\n    pass", "range", "one to three", "for k in range(n)"),
    Bad("for k in range(1.0):\n    pass", "range", "integers, not floats", "for k in range(n)"),
    Bad("for k in range(a):\n    pass", "range", "int32 or int64, not float32", "hal.int32"),
    Bad("for k in range(1, z, 2):\n    pass", "range", "not uint64", "Cast the bounds: hal.int64"),
    Bad("for k in range(n, m):\n    pass", "range", "int32 and int64", "hal.int64"),
    Bad("k = n\nfor k in hal.unroll(3):\n    pass\nk = 1", "k", "another variable too", "its own"),
    Bad("k = 1.0\nfor k in range(n):\n    pass", "k in", "'k' is float32 since line", "Cast"),
    Bad("for k in range(n):\n    k = 1", "k = 1", "'k' cannot be assigned", "Write a while loop"),
    Bad("for k in hal.unroll(3):\n    k += 1", "k += 1", "'k' cannot be assigned", "a while loop"),
    Bad("for k in range(n):\n    pass\nk += 1", "k += 1", "no value outside its loop", "before"),
    Bad("for n in range(3):\n    pass", "n", "another variable too", "a name of its own"),
    Bad("for k in range(3):\n    for k in range(3):\n        pass", "k", "another variable", "own"),
    # names and their dtypes
    Bad("if n > 0:\n    v = 1.0\ny[i] = v", "v", "not assigned on every path", "before the if"),
    Bad("for k in range(n):\n    v = a\ny[i] = v", "v", "not assigned on every path", "the loop"),
    Bad("while True:\n    if t:\n        break\n    v = a\ny[i] = v", "v", "not assigned", "loop"),
    Bad("if t:\n    v = a\nelif n > 0:\n    return\ny[i] = v", "v", "not assigned", "the if"),
    Bad("y[i] = v\nv = a", "v", "not assigned on every path", "Assign v"),
    Bad("_ = a\ny[i] = _", "_", "'_' cannot be read", "Give the value a name"),
    Bad("v = 0\nv = a", "a", "'v' is int32 since line", "hal.float32"),
    Bad("v = 0.0\nv = v + d", "v + d", "float32 and float64", "hal.float64"),
    Bad("n = 1.5", "1.5", "'n' is int32 since line", "or give it a name of its own."),
    Bad("y[i] = nothing", "nothing", "'nothing' is not defined", "make it a parameter"),
    Bad("y[i] = WEIGHT[0]", "WEIGHT", "'WEIGHT' is not defined", "Did you mean WEIGHTS"),
    Bad("y[i] = NAME", "NAME", "a str is not a value", "Capture Python ints"),
    Bad("y[i] = TABLE * 2", "TABLE", "array 'TABLE' is not a value", "Index it: TABLE[i]."),
    Bad("y[i] = HALF", "HALF", "a numpy complex64", "a real number"),
    Bad("y[i] = WEIGHTS", "WEIGHTS", "tuple 'WEIGHTS' is not", "Index it: WEIGHTS[i]."),
    Bad("WEIGHTS[0] = a", "WEIGHTS[0]", "WEIGHTS is only read", "hal.Ptr parameter"),
    Bad("y[i] = STOPS[0]", "STOPS[0]", "the list STOPS", "Make STOPS a tuple"),
    Bad("y[i] = WEIGHTS[2]", "WEIGHTS", "has 2 elements", "Correct"),
    Bad("y[i] = math.tau2", "math", "no 'tau2'", "Correct the name"),
    Bad("y[i] = x[i].sqrt()", "x[i].sqrt", "attribute .sqrt", "Write hal.sqrt(x[i])."),
    Bad("y[i] = a.abs()", "a.abs", "attribute .abs", "Write abs(a)."),
    Bad("v = hal.block_idx.y", "hal.block_idx.y", "attribute .y", "Write hal.block_idx(1)."),
    Bad("y[i] = x.size", "x.size", "attribute .size", "Pass sizes as parameters"),
    Bad("y[i] = hal.float32", "hal.float32", "the dtype float32 is not a value", "Cast with it"),
    # other kernel languages
    Bad("syncthreads()", "syncthreads", "'syncthreads' is not defined", "Write hal.barrier()."),
    Bad("hal.atomicAdd(y, 0, a)", "hal.atomicAdd", "atomicAdd is not part", "hal.atomic_add(p, i"),
    Bad("hal.atomic.add(y, 0, a)", "hal.atomic", "is not part", "hal.atomic_add(p, i, value)."),
    Bad("y[i] = a.astype(hal.int32)", "a.astype", "attribute .astype", "Write hal.float32(a), or"),
    Bad("v = hal.local('bool', 4)", "'bool'", "'bool' is not part", "Write hal.bool_."),
    Bad("hal.atomic_sub(y, 0, a)", "hal.atomic_sub", "is not part", "hal.atomic_add(p, i, -v)."),
    Bad("atomic_store_n(y, a)", "atomic_store_n", "not defined", "hal.atomic_store(p, i, value)."),
    Bad("v = atomic_load_n(y)", "atomic_load_n", "not defined", "Write hal.atomic_load(p, i)."),
    Bad("v = np.zeros(3)", "np.zeros(3)", "np.zeros is not part", "Write t = hal.local("),
    Bad("atomic_cmpxchg(y, 0, a)", "atomic_cmpxchg", "not defined", "compare_exchange(p, i, exp"),
    Bad("atomicOr(y, 0, a)", "atomicOr", "not defined", "Write hal.atomic_or(p, i, value)."),
    Bad("hal.atomic_or(y, 0, 1)", "y", "atomic_or does not take float32", "hal.bitcast"),
    Bad("v = hal.popcount(a)", "hal.popcount(a)", "takes integers, not float32", "take the bits"),
    Bad("v = hal.truncdiv(a, 2)", "hal.truncdiv(a, 2)", "takes integers, not float32", "Cast"),
    Bad("v = hal.truncmod(7, 0)", "hal.truncmod(7, 0)", "cannot be computed", "Correct it."),
    Bad("v = hal.truncdiv(7.5, 2)", "hal.truncdiv(7.5, 2)", "it takes integers", "Correct it."),
    Bad("v = hal.clz(5)", "hal.clz(5)", "5 has no width", "hal.int32(5)"),
    Bad("v = __popc(i)", "__popc", "'__popc' is not defined", "Write hal.popcount(x)."),
    Bad("shared_memory(3)", "shared_memory", "not defined", "hal.shared(hal.float32, (16, 16))"),
    Bad("v = hal.max(a, 1.0)", "hal.max", "hal.max is not part", "Write max(a, b), as in Python"),
    Bad("v = np.minimum(a, 1.0)", "np.minimum", "is not part", "Write min(a, b), as in Python"),
    Bad("v = hal.round(a)", "hal.round", "hal.round is not part", "Write round(x)"),
    Bad("v = hal.where(t, a, 0.0)", "hal.where", "hal.where is not part", "Write a if c else b"),
    Bad("v = threadIdx.x", "threadIdx", "'threadIdx' is not defined", "hal.thread_idx(0)"),
    Bad("v = hal.blockIdx.x", "hal.blockIdx", "hal.blockIdx is not part", "hal.block_idx(0)"),
    Bad("v = hal.inf", "hal.inf", "hal.inf is not part", "Write math.inf."),
    Bad("v = hal.arange(4)", "hal.arange", "hal.arange is not part", "Write for k in range(n):"),
    Bad("v = hal.Device", "hal.Device", "a DeviceRegistry is not a value", "outside of the kernel"),
    Bad("v = hal.Buffer(4)", "hal.Buffer", "hal.Buffer is not called", "outside of the kernel"),
    Bad("v = hal.zeros", "hal.zeros", "'zeros' is a function", "hal.local(hal.float32, (4, 4))"),
    Bad("v = hal.acquire", "hal.acquire", "'acquire' is a function", "Give it to an atomic: hal."),
    Bad("hal.release()", "hal.release", "hal.release is not called", "value, hal.release)."),
    Bad("v = APPEND", "APPEND", "'append' is a function", "with operators and hal functions"),
    Bad("v = hal.sqr(a)", "hal.sqr", "hal.sqr is not part", "Did you mean hal.sqrt?"),
    Bad("v = hal.Float32(a)", "hal.Float32", "is not part", "Did you mean hal.float32?"),
    Bad("v = hal.float(a)", "hal.float", "hal.float is not part", "hal.float32 or hal.float64"),
    Bad("v = math.expm1(a)", "math.expm1(a)", "is not part of the kernel", "Write hal.expm1(...)."),
    Bad("v = np.arctan2(a, a)", "np.arctan2", "np.arctan2 is not part", "Write hal.atan2(y, x)."),
    Bad("v = np.square(a)", "np.square", "np.square is not part", "Write x * x."),
    Bad("v = hal.clip(a, 0, 1)", "hal.clip", "is not part", "Write min(max(x, low), high)."),
    Bad("v = hal.zzz(a)", "hal.zzz", "hal.zzz is not part", "operators and hal functions"),
    Bad("v = sqrt(a)", "sqrt", "'sqrt' is not defined", "Write hal.sqrt."),
    Bad("v = np.float32(i)", "np.float32(i)", "np.float32 is not part", "Write hal.float32(i)."),
    # locals that a bare number began
    Bad("s = 0.0\ns += d", "s += d", "float32 and float64",
        f"s is float32 since line {LINE} (0.0). Start with s = hal.float64(0)."),
    Bad("s = 0\nfor k in range(n):\n    s = s + x[k]", "s + x[k]", "int32 and float32",
        f"s is int32 since line {LINE} (0). Start with s = hal.float32(0)."),
    Bad("s = 0.5\nv = s if t else d\nif s < d:\n    pass", "d", "float64 where", "Cast it"),
    Bad("s = -math.inf\nv = max(s, d)", "max", "float32 and float64", "s = hal.float64(...)"),
    Bad("s = hal.float32(0)\nv = s + d", "s + d", "float32 and float64", "hal.float64(s)."),
    Bad("s = 0\nfor k in range(n):\n    s += 0.5", "s += 0.5", "the float 0.5 is used with int32",
        f"s is int32 since line {LINE} (0). Start with s = hal.float32(0)."),
    Bad("s = 1\nif t:\n    s = 1.5", "1.5", f"'s' is int32 since line {LINE}, the value float32",
        "Cast the value, or start with s = hal.float32(...)."),
    Bad("s = 0\ny[i] = s", "s", "int32 where float32", "Start with s = hal.float32(0)"),
    # functions that are not called
    Bad("y[hal.global_idx] = a", "hal.global_idx", "is a function", "Call it: hal.global_idx("),
    Bad("v = a + hal.block_dim", "hal.block_dim", "'block_dim' is a function", "hal.block_dim(0)"),
    Bad("v = hal.sqrt + a", "hal.sqrt", "'sqrt' is a function", "Call it: hal.sqrt(...)."),
    Bad("v = a + helper", "helper", "'helper' is a function", "above def helper, and call it:"),
    Bad("v = a + both", "both", "'both' is a function", "Call it: both(...)."),
    Bad("v = a + other", "other", "'other' is a function", "a function with @hal.func."),
    Bad("v = a + abs", "abs", "'abs' is a function", "Call it: abs(...)."),
    Bad("v = a + np.sqrt", "np.sqrt", "'sqrt' is a function", "Write hal.sqrt(...)."),
    # elements
    Bad("y[i] = x", "x", "the pointer 'x' is not a value", "x[i]"),
    Bad("x[i] = 1.0", "x[i]", "'x' is only read", "hal.Ptr[hal.float32]"),
    Bad("y[i, 0] = a", "y[i, 0]", "one number", "row * width"),
    Bad("y[1:2] = a", "1:2", "a slice", "loop over the rest"),
    Bad("y[-1] = a", "y[-1]", "negative", "Count from the start"),
    Bad("y[a] = a", "a]", "int32 or int64, not float32", "hal.int32"),
    Bad("hal.view(y, (z, n))[0, 0] = a", "(z, n)", "not uint64", "Cast it: hal.int64(...)."),
    Bad("n[0] = a", "n[0]", "only pointers and shared arrays", "n: hal.Ptr[hal.int32]"),
    Bad("y[i] = a[i]", "a[i]", "only pointers and shared arrays", "a: hal.ConstPtr[hal.float32]"),
    Bad("i[0] = 1", "i[0]", "only pointers and shared arrays", "Index a parameter x"),
    Bad("v = y[i][n]", "y[i]", "only pointers", "hal.view(...)"),
    Bad("y[i] = THING[i]", "THING[i]", "a Python object from outside", "a tuple of numbers"),
    Bad("y[i] = n", "n", "int32 where float32 is needed", "hal.float32"),
    Bad("u[i] = 256", "256", "uint8 cannot hold 256 (it holds 0 to 255)", "wider"),
    Bad("u[i] = HUGE", "HUGE", "uint8 cannot hold an integer of 16610 bits", "wider"),
    Bad("y[HUGE] = a", "y[HUGE]", "the index an integer of 16610 bits is no int64", "Correct"),
    Bad("s = hal.shared(hal.int8, HUGE)", "HUGE", "has an integer of 16610 bits", "smaller"),
    Bad("u[i] = 1.5", "1.5", "the float 1.5 is used with uint8", "whole number"),
    Bad("y[i] = 16777217", "16777217", "not exactly", "Write a float"),
    Bad("y[i] = 1e39", "1e39", "float32 cannot hold 1e+39 (it holds up to 3.4028", "wider"),
    # operators
    Bad("y[i] = a + n", "a + n", "different dtypes, float32 and int32", "hal.float32(n)."),
    Bad("v = n / 2", "n / 2", "/ does not take int32", "a // b"),
    Bad("v = a // 2.0", "a // 2.0", "// does not take float32", "hal.floor"),
    Bad("v = a % 2.0", "a % 2.0", "% does not take float32", "hal.fmod"),
    Bad("v = n ** 9", "n ** 9", "** does not take int32", "product"),
    Bad("v = n ** 2.0", "n ** 2.0", "the float 2.0 is used with int32", "hal.float32"),
    Bad("v = n << a", "n << a", "<< does not take float32", "hal.int32"),
    Bad("n |= 1.5", "n |= 1.5", "| does not take the float 1.5", "Write a whole number."),
    Bad("v = n // 2.0", "n // 2.0", "// does not take the float 2.0", "Write 2."),
    Bad("v = hal.view(y, [n, 2])", "[n, 2]", "a tuple, not a list", "Write (n, 2)."),
    Bad("own = hal.local(hal.int32, [4])", "[4]", "a tuple, not a list", "Write (4,)."),
    Bad("v = a,", "a,", "a tuple", "without a comma"),
    Bad("if i < n & i > 0:\n    pass", "n & i", "& binds tighter", "and, or; else put parentheses"),
    Bad("v = (i | n < 2 < 3)", "i | n", "| binds tighter", "and, or; else put parentheses"),
    Bad("v = 0 < 1 < i & n", "i & n", "& binds tighter", "and, or; else put parentheses"),
    Bad("v = i < n & t", "n & t", "& joins two bools or two integers", "Join conditions with and"),
    Bad("v = t + t", "t + t", "+ does not take bool", "hal.int32"),
    Bad("v = ~a", "~a", "~ does not take float32", "hal.int32"),
    Bad("v = ~t", "~t", "~ does not take bool", "not"),
    Bad("v = a @ a", "a @ a", "@", "the loop"),
    Bad("v = n << -1", "n << -1", "negative", "other way"),
    Bad("v = n * 2.0", "n * 2.0", "the float 2.0 is used with int32", "Write 2, or cast the"),
    Bad("u[i] = 2.0", "2.0", "the float 2.0 is used with uint8", "Write 2."),
    Bad("v = b * -1", "b * -1", "uint8 cannot hold -1", "Write -hal.uint8(1), which"),
    Bad("v = n ^ 0x9E3779B9", "n ^", "int32 cannot hold 2654435769", "uint32 holds it: cast with"),
    Bad("v = hal.int32(0x9E3779B9)", "hal.int32", "int32 cannot hold", "uint32 holds it"),
    Bad("v = n * 0.5", "n * 0.5", "the float 0.5 is used with int32", "hal.float32"),
    Bad("v = n in WEIGHTS", "n in", "in is not part", "=="),
    Bad("v = n is m", "n is m", "compares dtypes only", "=="),
    Bad("if n:\n    pass", "n", "a condition must be a bool, not int32", "x != 0"),
    Bad("v = t and n", "n", "join bools, not int32", "!= 0"),
    Bad("v = 3 or t", "3", "join bools, not 3", "!= 0"),
    Bad("v = a if t else d", "d", "float64 where float32", "hal.float32"),
    Bad("v = 1 / 0", "1 / 0", "/ divides a constant by zero", "run time only, // gives 0"),
    Bad("v = 7 // 0", "7 // 0", "// divides a constant by zero", "Correct it."),
    Bad("v = 1 << 10 ** 9", "1 << 10", "bits", "Correct"),
    Bad("v = (-1) ** 0.5", "(-1)", "not a real number", "Correct"),
    Bad("v = 2 ** 70", "2 ** 70", "int64 cannot hold", "wider"),
    # other expressions
    Bad("v = lambda x: x", "lambda", "a lambda", "as a def with @hal.func"),
    Bad("v = [1, 2]", "[1", "a list", "hal.local(dtype, size)"),
    Bad("n += a > 0", "n += a > 0", "int32 and bool", "Cast one: hal.int32(a > 0)."),
    Bad("v = [k for k in WEIGHTS]", "[k", "a list", "for k in range"),
    Bad("v = {1: 2}", "{1", "a dict", "local variables"),
    Bad("v = (1, 2)", "(1", "a tuple", "captured from outside"),
    Bad("v = (k for k in WEIGHTS)", "(k", "a generator", "for k in range"),
    Bad("v = ...", "...", "Ellipsis is not part", "ints, floats and bools"),
    Bad("yield from x", "yield", "yield", "hal.Ptr parameter"),
    Bad("v = WEIGHTS.index(1.0)", "WEIGHTS.index", "attribute .index", "capture Python objects"),
    Bad("v = n is None", "None", "not part of the kernel language", "ints, floats and bools"),
    Bad("v = isinstance(n, int)", "isinstance", "isinstance is not part", "hal functions"),
    Bad("v = f'{i}'", "f'", "text", "hal.print("),
    Bad("v = 'text'", "'text'", "not part of the kernel language", "ints, floats and bools"),
    Bad("y[i] = (v := a)", "v := a", ":=", "a line of its own"),
    # calls
    Bad("print(i)", "print", "print is not part", 'Write hal.print("x =", x)'),
    Bad("hal.print(x)", "x", "the pointer 'x' is not a value", "x[i]"),
    Bad("v = hal.print(a)", "hal.print", "hal.print gives no value", "a line of its own"),
    Bad("hal.print(f'{a}')", "f'", "text is not part", 'hal.print("x =", x)'),
    Bad("hal.complex64(a)", "hal.complex64", "complex64 is not part", "parts z[2 * i] and"),
    Bad("y[i] = hal.float32[3]", "hal.float32", "only pointers and shared arrays", "hal.Ptr["),
    Bad("v = enumerate(x)", "enumerate", "enumerate is not part", "index with k"),
    Bad("v = divmod(n, 2)", "divmod", "divmod is not part", "a // b and a % b"),
    Bad("v = bool(n)", "bool", "bool is not part", "x != 0"),
    Bad("v = hal.float32(x=n)", "hal.float32", "plain arguments", "without name"),
    Bad("v = max(a, key=n)", "max", "plain arguments", "without name"),
    Bad("v = len(x)", "len", "len is not part", "n: hal.int32"),
    Bad("v = float('inf')", "float('inf')", "is not part", "Write math.inf."),
    Bad("v = int('7')", "int('7')", "is not part", "Write the number itself."),
    Bad("v = int(a)", "int", "int is not part", "hal.int32(x)"),
    Bad("v = sum(x)", "sum", "sum is not part", "acc += x[k]"),
    Bad("v = range(3)", "range", "range is not part", "for k in range"),
    Bad("v = np.sqrt(a)", "np.sqrt", "this sqrt is not", "hal.sqrt"),
    Bad("v = math.gamma(a)", "math.gamma", "the function gamma", "hal functions"),
    Bad("v = helper(a)", "helper", "the function helper", "Put @hal.func above def helper"),
    Bad("other(y)", "other", "the kernel other", "a function with @hal.func"),
    Bad("v = a(1)", "a(1)", "not a function", "Correct"),
    Bad("v = hal.exp(n)", "hal.exp", "exp takes floats, not int32", "hal.float32(x)"),
    Bad("v = hal.exp(a, a)", "hal.exp", "takes 1 argument", "Write hal.exp(x)."),
    Bad("v = hal.fma(a, a, d)", "hal.fma", "float32 and float64", "hal.float64"),
    Bad("v = hal.sqrt(-1.0)", "hal.sqrt", "this constant cannot be computed", "Correct"),
    Bad("v = min(a)", "min", "two values or more", "Loop"),
    Bad("v = max(a, d)", "max", "float32 and float64", "hal.float64"),
    Bad("v = max(t, t)", "max", "does not take bool", "and, or"),
    Bad("v = abs(t)", "abs", "does not take bool", "hal.int32"),
    Bad("v = round(a, 2)", "round", "takes 1 argument", "Write round(number)."),
    Bad("v = round(n)", "round", "takes a float", "Leave it out"),
    Bad("v = hal.global_idx(3)", "hal.global_idx", "0, 1 or 2", "hal.global_idx(0)"),
    Bad("v = hal.bfloat16(3.4e38)", "hal.bfloat16", "bfloat16 cannot hold 3.4e+38", "wider"),
    Bad("v = hal.bitcast(hal.int32)", "hal.bitcast", "takes 2 arguments", "(hal.int32, x)"),
    Bad("v = hal.bitcast(a, hal.int32)", "a, hal", "a is not a dtype", "hal.bitcast(hal.int32, a)"),
    Bad("v = hal.bitcast(i, a)", "i, a", "i is not a dtype", "hal.bitcast(hal.int32, x)"),
    Bad("v = hal.bitcast(hal.int32, d)", "hal.bitcast", "int32 has 32 bits, float64 64", "width"),
    Bad("v = hal.bitcast(hal.bool_, b)", "hal.bitcast", "does not take bool", "hal.int32(x)"),
    Bad("v = hal.load_if(i < n, y, i)", "hal.load_if", "takes 4 arguments", "hal.load_if(i < n"),
    Bad("v = hal.load_if(n, y, i, 0)", "n, y", "a condition must be a bool", "x != 0"),
    Bad("v = hal.load_if(i < n, a, i, 0)", "hal.load_if", "only pointers and", "hal.ConstPtr["),
    Bad("v = hal.load_if(i < n, y, i, n)", "n)", "int32 where float32 is", "hal.float32"),
    Bad("p, q = hal.load(y, i)", "hal.load", "takes 3 arguments, not 2", "hal.load(p, i, 4)"),
    Bad("p, q = hal.load(y, i, 3)", "3)", "3 is not the number of", "2, 4, 8 or 16"),
    Bad("v = hal.load(y, 2 * i, 2)", "hal.load", "gives 2 values", "a, b = hal.load"),
    Bad("p, q = hal.load(y, 2 * i + 1, 2)", "2 * i + 1", "is 1 more than a multiple of 2", "p[i]"),
    Bad("p, q = hal.load(y, 3, 2)", "3, 2", "3 is 1 more than a multiple of 2", "multiple of 2"),
    Bad("p, q = hal.load(y[1:], 2 * i, 2)", "2 * i", "1 more than a multiple of 2", "p[i]"),
    Bad("p, q = hal.load(WEIGHTS, 0, 2)", "WEIGHTS", "a constant table, which has no", "[i]"),
    Bad("hal.store(y, i, a)", "hal.store", "takes p, i and values, not 3", "hal.store(p, i, a, b"),
    Bad("hal.store(y, i, a, n)", "n)", "int32 where float32 is", "hal.float32"),
    Bad("hal.store(y, (i << 2) - 2, a, a, a, a)", "(i << 2)", "is 2 more than a multiple", "p[i]"),
    Bad("v = hal.store(y, 2 * i, a, a)", "hal.store", "gives no value", "a line of its own"),
    Bad("v = hal.any_(a)", "hal.any_", "any is not the dtype of a value", "hal.float32(x)"),
    Bad("q = hal.bitcast(hal.any_, y)", "hal.any_", "hal.any_ is not a dtype", "hal.int32"),
    Bad("own = hal.shared(hal.any_, 4)", "hal.any_", "is not the dtype of an array", "hal.float32"),
    Bad("v = hal.bitcast(hal.uint16, a)", "hal.bitcast", "uint16 has 16 bits", "hal.float16(x))"),
    Bad("q = hal.bitcast(hal.uint8, y)\nq = y", "q", "'q' is assigned elsewhere", "of its own"),
    Bad("v = hal.float32()", "hal.float32", "1 argument", "hal.float32(x)"),
    Bad("v = hal.int32(math.nan)", "hal.int32", "NaN is no int32", "at run time gives 0"),
    Bad("y[i] = " + "+".join(["a"] * 2000), "a+a+a", "too long or nested too deeply", "Split it"),
    Bad("y[i] = " + "-" * 700 + "a", "----", "too long or nested too deeply", "Split it"),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.body.replace("\n", "; ")[:40])
def test_refused_with_place_and_advice_that_helps(bad, tmp_path):
    """A kernel that follows the advice is one, and what the advice names is in it."""
    module = load(tmp_path, HEAD + indented(bad.body))
    with pytest.raises(hal.KernelSyntaxError) as raised:
        module.bad.lower()
    error = raised.value
    message = str(error)
    assert bad.says in message
    assert bad.fix in message.partition(bad.says)[2]
    assert message.startswith("kernel bad: ")
    assert "  " not in error.msg and ".." not in error.msg.replace("...", "")
    # The place is the file's, so that a traceback and an editor show it.
    text = Path(module.__file__).read_text(encoding="utf-8").splitlines()
    assert error.filename == module.__file__
    assert error.lineno is not None and error.offset is not None
    assert text[error.lineno - 1].startswith(bad.at, error.offset - 1)
    assert error.lineno >= LINE or bad.at == "def bad"
    shown, caret = message.splitlines()[-2:]
    assert shown[caret.index("^") :].startswith(bad.at)
    follow(bad, error.fix or "", tmp_path)


def follow(bad, fix, folder):
    """Lower the kernel that a row's remedy gives, where it has one."""
    remedy = REMEDIES.get(bad.body, (None, ""))
    body, change = (remedy, "") if isinstance(remedy, str) else remedy
    if body is None:
        return
    old, _, new = change.partition(" -> ")
    assert old in HEAD
    load(folder, HEAD.replace(old, new, 1 if old else 0) + indented(body)).bad.lower()
    # "Write hal.int32(x) or hal.int64(x)": one of them is enough.
    names = re.findall(
        r"hal\.(?!Ptr|Buffer|func)\w+|for k in|math\.\w+|\bmin\(|\bmax\(|\babs\(|==|!=", fix
    )
    assert not names or any(name in body + new for name in names), fix
    # A code without `...` after these words is the user's own.
    exact = re.search(
        r"(?:Cast one:|Start with|Declare it|Index it:|Call it:) (.*?)\.( Or .*)?$", fix
    )
    if exact and "..." not in exact[1] and "x)" not in exact[1] and "for x" not in fix:
        assert exact[1] in body + new, fix


@hal.kernel
def advised(y: hal.Ptr[hal.float64], x: hal.float64) -> None:
    """What `refusals` says to write for functions that the language does not have."""
    y[0] = x * x
    y[1] = min(max(x, 0.4), 0.6)


@pytest.mark.parametrize("x", [0.1, 0.5, 0.9])
def test_what_is_advised_computes_the_same(x):
    y = np.zeros(2)
    interpret(advised, y, vals=(x,), threads=1)
    np.testing.assert_allclose(y, [np.square(x), np.clip(x, 0.4, 0.6)], rtol=1e-14)


def test_each_refusal_has_its_remedy_tried():
    """All but texts that are too long; a row that is gone has none left."""
    assert set(REMEDIES) == {row.body for row in BAD if not row.fix.startswith("Split it")}


@pytest.mark.parametrize(
    ("use", "statement"), [("math.pi", "import math"), ("np.pi", "import numpy as np")]
)
def test_a_module_that_is_not_imported_is_to_be(use, statement, tmp_path):
    """Also where a name like it is known."""
    kernel = f"at = mat = npp = 1\n@hal.kernel\ndef f(y: hal.Ptr[hal.float32]):\n    y[0] = {use}\n"
    with pytest.raises(hal.KernelSyntaxError) as caught:
        load(tmp_path, f"import hal_core as hal\n\n{kernel}").f.lower()
    assert caught.value.fix == f"Write {statement} at the top of the file."
    load(tmp_path, f"{statement}\nimport hal_core as hal\n\n{kernel}").f.lower()
