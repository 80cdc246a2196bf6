"""A kernel means what Python means: generated kernels run as IR and as plain Python functions."""

import functools
import inspect
import math
import re
from types import SimpleNamespace

import run_on_lists
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_files import IMPORTS, load

from hal_kernel.ir.verify import verify

N = 7
HEADER = (
    IMPORTS
    + """
TILE = 3
FLAG = False
WEIGHTS = (0.5, -2.0, 4.0)


@hal.func
def pick(a, b):
    if a < b:
        return a
    elif a == b:
        c = a + b
        return c
    d = a - b
    return d


@hal.func
def halve(a, p, at):
    while a > 5:
        a = a // 2
        if a % 3 == 1:
            break
    p[at] = (p[at] + a) % 1009
    return a


@hal.func
def seek(a, p, m):
    for s in range(m):
        t = 0
        while t < 3:
            if p[(s + t) % m] % 5 == a % 5:
                return s - t, p[s]
            t += 1
    return a, m


@hal.kernel
def generated(
    y: hal.Ptr[hal.float64], x: hal.ConstPtr[hal.float64], k: hal.Ptr[hal.int32],
    a: hal.float64, n: hal.int32,
) -> None:
    i = hal.global_idx(0)
    p = hal.int32(i)
    q = hal.int32(0)
    u = hal.float64(a)
    v = hal.float64(0)
    w = a + 1
    e = i < 3
    if i < 0:
        p += 1
        q += 1
        u += 1
        v += 1
        e = e
"""
)

# Integers stay far below 2**31 and floats finite, so that Python's answer is the kernel's.
LEAVES = {
    "int": ("p", "q", "i", "n", "TILE", "3", "-2", "0", "k[i % n]", "k[abs(p) % n]"),
    "float": ("u", "v", "w", "a", "x[i % n]", "y[i % n]", "WEIGHTS[1]", "1.5", "-0.25", "2"),
    "bool": ("e", "(i < n)", "True", "FLAG", "(not e)"),
    "+": tuple("+-*&|^"),
    "<": ("<", "<=", ">", ">=", "==", "!="),
}
EXPRESSIONS = {
    "int": [
        "({int} {+} {int}) % 97", "({int} // (abs({int}) % 5 + 1))",
        "({int} % (-(abs({int}) % 5) - 1))",
        "(({int} >> 1) + (-{int}))", "hal.int32({int} if {bool} else {int})",
        "({int} if ({bool}) else p)", "min({int}, {int}, p)", "max(q, {int}, abs({int}))",
        "pick({int}, {int}) % 97", "halve({int}, k, i % n) % 97",
    ],
    "float": [
        "({float} + {float})", "({float} - {float})", "(u * {float} / 8)",
        "hal.fmod({float} + v, 1000.0)", "hal.float64({int})", "({float} if {bool} else u)",
        "min(v, {float}, 1e6)", "abs(hal.floor({float} + u))", "round({float} - v)",
    ],
    "bool": [
        "({int} {<} {int})", "({float} {<} {float})", "({bool} and {bool})", "({bool} or {bool})",
        "({int} < {int} <= {int})", "(i < n - 2 and x[i + 2] > {float})",
        "(i >= n - 2 or x[i + 2] < v or {bool})", "(0 <= p < n and k[p] != {int} or {bool})",
        "(not {bool})",
    ],
}  # fmt: skip


@functools.cache
def _values(kind, depth):
    texts = EXPRESSIONS.get(kind, ()) if depth else ()
    return st.one_of(st.sampled_from(LEAVES[kind]), *(_filled(text, depth - 1) for text in texts))


def _filled(text, depth):
    """Put a value in the place of each kind in braces."""
    kinds = re.findall("{(.*?)}", text)
    return st.builds(re.sub("{.*?}", "{}", text).format, *(_values(kind, depth) for kind in kinds))


def _indent(lines):
    return [f"    {line}" for line in lines]


@functools.cache
def _blocks(depth, counters="stuz", *, loop=False):
    """Statements; in a `loop` such that leave it."""
    simple = st.one_of(
        _filled("p = ({int} + p) % 1009", 2),
        _filled("q += {int} % 11", 2),
        _filled("u = hal.fmod({float} + u, 1e4)", 2),
        _filled("v -= hal.fmod(u + {float}, 7.5)", 2),
        _filled("e = ({bool}) == e", 2),
        _filled("y[i % n] = {float}", 2),
        _filled("y[abs(p) % n] += {float}", 1),
        _filled("k[i % n] = ({int}) % 100", 2),
        _filled("p, q = q % 97, ({int} + p) % 97", 1),
        _filled("q, k[i % n] = seek({int}, k, n)", 1),
        _filled("u = y[abs(p) % n] = hal.fmod({float}, 1e4)", 1),
    ).map(lambda line: [line])
    if loop:
        left = (["break"], ["continue"], ["return"], ["p = (p + 1) % 1009", "continue"])
        leaving = st.builds(
            lambda test, out: [f"if {test}:", *_indent(out)],
            _values("bool", 1),
            st.sampled_from(left),
        )
        simple = st.one_of(simple, leaving)
    if not depth:
        return st.lists(simple, min_size=1, max_size=3).map(_joined)
    inner = _blocks(depth - 1, counters[1:], loop=loop)
    body = _blocks(depth - 1, counters[1:], loop=True)
    repeated = _blocks(depth - 1, counters[1:])
    counter = counters[0]
    return st.lists(
        st.one_of(
            simple,
            st.builds(lambda test, a: [f"if {test}:", *_indent(a)], _values("bool", 2), inner),
            st.builds(
                lambda test, then, other: [
                    f"if {test}:", *_indent(then), f"elif ({test}) == e:", *_indent(then), "else:",
                    *_indent(other),
                ],
                _values("bool", 2), inner, inner,
            ),
            _counted(f"for {counter} in range({{}}):", counter, body,
                     ("3", "n", "-1, 2", "n, 0, -2", "p % 4", "2, q % 5, 2", "3, 3")),
            st.builds(
                lambda test, body: [
                    f"m{counter} = 0", f"while m{counter} < 4 and ({test}):",
                    *_indent([f"m{counter} += 1", *body]),
                ],
                _values("bool", 1), body,
            ),
            st.builds(
                lambda test, body: [
                    f"m{counter} = 0", "while True:",
                    *_indent([
                        f"m{counter} += 1", f"l{counter} = m{counter} * 3",
                        f"if m{counter} > 3 or {test}:", "    break", *body,
                    ]),
                    f"q += l{counter}",
                ],
                _values("bool", 1), body,
            ),
            _counted(f"for {counter} in hal.unroll({{}}):", counter, repeated,
                     ("3", "2, -1, -2", "TILE", "3, 3")),
        ),
        min_size=1, max_size=4,
    ).map(_joined)  # fmt: skip


def _counted(head, counter, body, bounds):
    """Loops whose head is completed with one of the bounds."""
    return st.builds(
        lambda end, lines: [head.format(end), *_indent([*lines, f"q = (q + {counter}) % 89"])],
        st.sampled_from(bounds), body,
    )  # fmt: skip


def _joined(blocks):
    return [line for block in blocks for line in block]


def _as_python(module, arguments, thread):
    module.hal = SimpleNamespace(
        global_idx=lambda axis: thread,
        int32=int,
        float64=float,
        fmod=math.fmod,
        floor=lambda x: float(math.floor(x)),
        unroll=range,
    )
    module.round = lambda x: float(round(x))
    for name in ("pick", "halve", "seek"):
        setattr(module, name, inspect.unwrap(getattr(module, name)))
    module.generated.__wrapped__(*arguments)


class _Memory(list):
    """Every element is asked for by its position from the start."""

    def __getitem__(self, index):
        if index < 0:
            raise IndexError(index)
        return super().__getitem__(index)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(body=_blocks(2), start=st.floats(-100, 100))
def test_ir_and_python_agree(body, start, tmp_path):
    module = load(tmp_path, HEADER + "\n".join(_indent(body)) + "\n")
    kernel = module.generated.lower()
    verify(kernel)

    def arguments():
        x = _Memory(start / (k + 1) for k in range(N))
        return [_Memory([0.0] * N), x, _Memory(range(N)), 1.25, N]

    got, expected = arguments(), arguments()
    run_on_lists.run(kernel, got, threads=N)
    for thread in range(N):
        _as_python(module, expected, thread)
    assert got == expected
