"""A kernel means what Python means: generated kernels run as IR and as plain Python functions."""

import functools
import inspect
import math
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
INTS = ("p", "q", "i", "n", "TILE", "3", "-2", "0", "k[i % n]", "k[abs(p) % n]")
FLOATS = ("u", "v", "w", "a", "x[i % n]", "y[i % n]", "WEIGHTS[1]", "1.5", "-0.25", "2")


def _binary(inner, symbols, form):
    return st.builds(
        lambda left, symbol, right: form.format(f"{left} {symbol} {right}"),
        inner,
        st.sampled_from(symbols.split()),
        inner,
    )


@functools.cache
def _ints(depth):
    leaf = st.sampled_from(INTS)
    if not depth:
        return leaf
    inner, booleans = _ints(depth - 1), _bools(depth - 1)
    return st.one_of(
        leaf,
        _binary(inner, "+ - * & | ^", "({}) % 97"),
        st.builds("({} // (abs({}) % 5 + 1))".format, inner, inner),
        st.builds("({} % (-(abs({}) % 5) - 1))".format, inner, inner),
        st.builds("(({} >> 1) + (-{}))".format, leaf, leaf),
        st.builds("hal.int32({} if {} else {})".format, inner, booleans, inner),
        st.builds("({} if ({}) else p)".format, inner, booleans),
        st.builds("min({}, {}, p)".format, inner, inner),
        st.builds("max(q, {}, abs({}))".format, inner, inner),
        st.builds("pick({}, {}) % 97".format, inner, inner),
        st.builds("halve({}, k, i % n) % 97".format, inner),
    )


@functools.cache
def _floats(depth):
    leaf = st.sampled_from(FLOATS)
    if not depth:
        return leaf
    inner, booleans, ints = _floats(depth - 1), _bools(depth - 1), _ints(depth - 1)
    return st.one_of(
        leaf,
        _binary(inner, "+ -", "({})"),
        st.builds("(u * {} / 8)".format, inner),
        st.builds("hal.fmod({} + v, 1000.0)".format, inner),
        st.builds("hal.float64({})".format, ints),
        st.builds("({} if {} else u)".format, inner, booleans),
        st.builds("min(v, {}, 1e6)".format, inner),
        st.builds("abs(hal.floor({} + u))".format, inner),
        st.builds("round({} - v)".format, inner),
    )


@functools.cache
def _bools(depth):
    leaf = st.sampled_from(("e", "(i < n)", "True", "FLAG", "(not e)"))
    if not depth:
        return leaf
    inner, ints, floats = _bools(depth - 1), _ints(depth - 1), _floats(depth - 1)
    compare = "< <= > >= == !="
    return st.one_of(
        leaf,
        _binary(ints, compare, "({})"),
        _binary(floats, compare, "({})"),
        _binary(inner, "and or", "({})"),
        st.builds("({} < {} <= {})".format, ints, ints, ints),
        st.builds("(i < n - 2 and x[i + 2] > {})".format, floats),
        st.builds("(i >= n - 2 or x[i + 2] < v or {})".format, inner),
        st.builds("(0 <= p < n and k[p] != {} or {})".format, ints, inner),
        st.builds("(not {})".format, inner),
    )


def _indent(lines):
    return [f"    {line}" for line in lines]


@functools.cache
def _blocks(depth, counters="stuz", *, loop=False):
    """Statements; in a `loop` such that leave it."""
    simple = st.one_of(
        st.builds("p = ({} + p) % 1009".format, _ints(2)),
        st.builds("q += {} % 11".format, _ints(2)),
        st.builds("u = hal.fmod({} + u, 1e4)".format, _floats(2)),
        st.builds("v -= hal.fmod(u + {}, 7.5)".format, _floats(2)),
        st.builds("e = ({}) == e".format, _bools(2)),
        st.builds("y[i % n] = {}".format, _floats(2)),
        st.builds("y[abs(p) % n] += {}".format, _floats(1)),
        st.builds("k[i % n] = ({}) % 100".format, _ints(2)),
        st.builds("p, q = q % 97, ({} + p) % 97".format, _ints(1)),
        st.builds("q, k[i % n] = seek({}, k, n)".format, _ints(1)),
        st.builds("u = y[abs(p) % n] = hal.fmod({}, 1e4)".format, _floats(1)),
    ).map(lambda line: [line])
    if loop:
        left = (["break"], ["continue"], ["return"], ["p = (p + 1) % 1009", "continue"])
        leaving = st.builds(
            lambda test, out: [f"if {test}:", *_indent(out)], _bools(1), st.sampled_from(left)
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
            st.builds(
                lambda test, body: [f"if {test}:", *_indent(body)], _bools(2), inner
            ),
            st.builds(
                lambda test, then, other: [
                    f"if {test}:", *_indent(then), f"elif ({test}) == e:", *_indent(then), "else:",
                    *_indent(other),
                ],
                _bools(2), inner, inner,
            ),
            st.builds(
                lambda bounds, body: [
                    f"for {counter} in range({bounds}):",
                    *_indent([*body, f"q = (q + {counter}) % 89"]),
                ],
                st.sampled_from(("3", "n", "-1, 2", "n, 0, -2", "p % 4", "2, q % 5, 2", "3, 3")),
                body,
            ),
            st.builds(
                lambda test, body: [
                    f"m{counter} = 0",
                    f"while m{counter} < 4 and ({test}):",
                    *_indent([f"m{counter} += 1", *body]),
                ],
                _bools(1), body,
            ),
            st.builds(
                lambda test, body: [
                    f"m{counter} = 0",
                    "while True:",
                    *_indent([
                        f"m{counter} += 1", f"l{counter} = m{counter} * 3",
                        f"if m{counter} > 3 or {test}:", "    break", *body,
                    ]),
                    f"q += l{counter}",
                ],
                _bools(1), body,
            ),
            st.builds(
                lambda bounds, body: [
                    f"for {counter} in hal.unroll({bounds}):",
                    *_indent([*body, f"q = (q + {counter}) % 89"]),
                ],
                st.sampled_from(("3", "2, -1, -2", "TILE", "3, 3")),
                repeated,
            ),
        ),
        min_size=1,
        max_size=4,
    ).map(_joined)  # fmt: skip


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
