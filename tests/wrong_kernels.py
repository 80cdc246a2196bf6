"""Kernels gone wrong: sources that are kernels, and random changes of their text and tree."""

import ast
import io
import linecache
import random
import tokenize
from copy import deepcopy
from itertools import count
from types import ModuleType

_numbers = count()

HEAD = """import math
import numpy as np
import hal_core as hal

WEIGHTS = (0.5, 2, (1, 2))
FLAG, NAME, LIST, DTYPE = True, "text", [1, 2], hal.float32
TABLE = np.zeros(3)
APPEND = [].append

class Equal:  # callable, and without a hash
    def __eq__(self, other): return True
    def __call__(self, *given): return 1

EQUAL = Equal()

def plain(a):
    return a
"""

SOURCES = (
    """
@hal.kernel
def f(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    if i >= n:
        return
    total = hal.float32(0)
    for k in range(0, n, 2):
        v = x[k] * a + WEIGHTS[0]
        if v > 3.0 and k != 5:
            continue
        elif v < -1e6 or not FLAG:
            break
        else:
            total += hal.exp(-v) if v > 0 else v ** 2
    y[i] = min(total, 1.5) / hal.float32(n)
""",
    """
@hal.func
def clamp(v: hal.float32, low, high) -> hal.float32:
    if v < low:
        return low
    elif v > high:
        return high
    return v

@hal.func
def put(p: hal.Ptr[hal.float32], i, v) -> None:
    if i < 0:
        return
    p[i] = clamp(v, 0.0, 1)

@hal.kernel
def f(y: hal.Ptr[hal.float32], h: hal.Ptr[hal.float16], n: hal.int32):
    i = hal.global_idx(0)
    assert 0 <= i < n, "inside"
    for k in hal.unroll(3):
        if k == 1:
            put(y, i, h[i] + k)
        h[i] = clamp(y[i], -1.0, hal.float32(k)) * DTYPE(2)
    bits = hal.bitcast(hal.int32, y[i]) >> 3 & 0xFF
    while bits != 0:
        bits //= 2
        if bits % 3 == 1:
            break
    y[i] += hal.float32(bits)
""",
    """
@hal.kernel(block=(16, 16))
def f(y: hal.Ptr[hal.int32], z: hal.Ptr[hal.uint64], n: hal.int32, m: hal.int64):
    tile = hal.shared(hal.int32, (16, 17))
    flags = hal.shared(hal.bool_, 4)
    i = hal.thread_idx(0)
    j = hal.thread_idx(1)
    tile[i, j] = 0
    flags[0] = True
    hal.barrier()
    for k in range(n):
        old = hal.atomic_add(tile, (j, i), 1)
        if old == 3:
            hal.atomic_max(y, m, old)
        hal.barrier()
        tile[i, 16] ^= ~old << 2
        hal.barrier()
    while True:
        seen = hal.atomic_compare_exchange(z, 0, 1, 2)
        if seen == 1:
            left = hal.int32(seen)
            break
        elif seen > 5:
            return
    y[i] = left + hal.block_dim(0) * tile[j, i]
""",
)

# What may stand where an expression stood.
SNIPPETS = (
    """
n; y; x; tile; i; k; a; APPEND; APPEND(n); EQUAL; EQUAL(n); hal.acquire; hal.Device['CPU']; hal
hal.float32; hal.float16; hal.float16(3); None; ...; 'text'; b'b'
1j; -1; 0; 1e400; math.nan; math.inf; 10**50; True; 2**63; (1, 2); [1]; {1: 2}; {1}; lambda: 0
x[0]; y[n]; tile[1]; tile[1, 2]; tile[:]; y[0:1]; y[...]; hal.shared(hal.int32, 4)
hal.barrier(); hal.barrier; hal.unroll(3); range(3); len(WEIGHTS); WEIGHTS; WEIGHTS[2]
WEIGHTS[n]; LIST; TABLE; NAME; plain; plain(1); clamp; put; put(y, 0, 1.0); clamp(1, 2, 3)
clamp(*WEIGHTS); both(**x)
both(b=n, a=n); print(n); np.float32(n); np.zeros; np; math; f; f(y); hal.atomic_add(y, 0, 1)
hal.atomic_add; hal.atomic_min(tile, (0, 0), n); hal.bitcast(hal.int32, a); hal.global_idx(5)
hal.global_idx(i); hal.exp(1); hal.exp(n); max(n); max(n, 0, 1); min(); abs(-n); round(a)
(q := 3); [v for v in x]; {v for v in x}; {v: v for v in x}; (v for v in x if v); f'{n!r:>3}'
[*x]; {**x}; n or i; n if FLAG else m; a if n > 0 else 1; n < i < 5; n and i; not n
n is i; n in WEIGHTS; n @ n; n << -1; n // 0; 1 // 0; 5 % 0.0; hal.int8(300); hal.bool_(a)
DTYPE.max; DTYPE.name; hal.float32.max; hal.Ptr; hal.Ptr[hal.int32]; hal.kernel; hal.func
hal.Device; hal.CPU; x.size; n.real; int(n); float('inf'); int('x'); float('nan'); abs(1); -FLAG
~FLAG; 3 ** 0.5; (-8) ** 0.5; 7 ** 7 ** 7; (yield); +n; (yield from x); (lambda v: v)(1); type(n)
getattr(hal, 'exp')(a); __import__('os'); n.__class__; super()
""".strip()
    .replace("\n", ";")
    .split(";")
)

STATEMENTS = """
return
return 1
break
continue
pass
hal.barrier()
n = 1
y = n
tile = hal.shared(hal.int32, 3)
v, w = 1, 2
for q in range(3): pass
for q in hal.unroll(2): v = q
for k in range(n): hal.barrier()
for q in hal.unroll(300): pass
while n > 0: n -= 1
while True: break
while True: pass
while FLAG: return
if n > i: return
if FLAG: return
assert n > 0
assert False
hal.atomic_add(y, 0, 1)
del n
import os
raise ValueError
global n
n: hal.int32 = 3
y[0] += 1
tile[0, 0] = 1
def g(): pass
class C: pass
with y: pass
"""


def mutated(seed, amount):
    """Texts of functions and a kernel `f` that Python accepts."""
    chance = random.Random(seed)
    while amount:
        source = chance.choice(SOURCES)
        try:
            for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
                source = chance.choice((_other_tokens, _other_tree))(source, chance)
            compile(source, "wrong", "exec")
        except (SyntaxError, ValueError, tokenize.TokenError):  # Python's own refusals
            continue
        amount -= 1
        yield source


def loaded(source):
    """The module of the text, which has no file: the front end asks linecache for the lines."""
    name = f"<wrong {next(_numbers)}>"
    text = HEAD + source
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = ModuleType("wrong")
    exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
    return module


def _other_tokens(source, chance):
    """Deletes, swaps, doubles or replaces tokens of a body."""
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING)
    ]
    lines = source.splitlines(keepends=True)
    inside = [token for token in tokens if token.line.startswith("    ")]
    if len(inside) < 2:
        return source
    first, second = sorted(chance.sample(inside, 2), key=lambda token: token.start)
    texts = {
        "delete": ("", second.string),
        "swap": (second.string, first.string),
        "double": (f"{first.string} {first.string}", second.string),
        "replace": (second.string, second.string),
    }[chance.choice(("delete", "swap", "double", "replace"))]
    for token, text in ((second, texts[1]), (first, texts[0])):
        row = token.start[0] - 1
        lines[row] = lines[row][: token.start[1]] + text + lines[row][token.end[1] :]
    return "".join(lines)


class _Replace(ast.NodeTransformer):
    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        return self.new if node is self.old else self.generic_visit(node)


def _other_tree(source, chance):
    """Replaces an expression by another, or deletes, doubles, moves or inserts a statement."""
    tree = ast.parse(source)
    bodies = [node for function in tree.body for node in getattr(function, "body", [])]
    nodes = [node for body in bodies for node in ast.walk(body)]
    statements = [node for node in nodes if isinstance(node, ast.stmt)]
    expressions = [node for node in nodes if isinstance(node, ast.expr)]
    if chance.random() < 0.6 and expressions:
        other = ast.parse(chance.choice(SNIPPETS).strip(), mode="eval").body
        if chance.random() < 0.3:
            other = deepcopy(chance.choice(expressions))  # it may hold the old one
        change = _Replace(chance.choice(expressions), other)
    else:
        old = chance.choice(statements)
        line = chance.choice(STATEMENTS.strip().splitlines())
        new = ast.parse(f"while 1:\n if 1:\n  {line}" if ":" in line else f"while 1: {line}").body[
            0
        ]
        (new,) = new.body[0].body if ":" in line else new.body  # type: ignore[attr-defined]
        other_one = deepcopy(chance.choice(statements))
        changes = ([], [old, old], [other_one], [old, new], [new, old], [new])
        change = _Replace(old, chance.choice(changes))
    return ast.unparse(change.visit(tree))  # type: ignore[arg-type]
