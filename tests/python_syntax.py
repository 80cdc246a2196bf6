"""Bodies of kernels with every target, statement and expression of Python's syntax."""

import sys
from textwrap import indent

# Where a value may stand.
USES = (
    """
v = {}; v, = {}; v, w = {}; v, w = n, {}; [v] = {}; y[0], n = {}; y[0] = {}; y[0] += {}
n = n + ({}); v: hal.int32 = {}; v = p = {}; y[{}] = 1; y[{}:][0] = 1; v = tile[{}, 0]; ({})[0] = 1
v = ({})[n]; v = ({}).x; v = ({})(n); {}; del {}; if {}: return; while {}: break; assert {}
assert n > 0, {}; for q in {}: pass; for q in range(0, n, {}): pass; for q in hal.unroll({}): pass
with {}: pass; return {}; raise {}; v = ({}) if n > 0 else 1; v = 1 if ({}) else 2; v = ({}) < n < 3
v = n > 0 and ({}); v = -({}); v = both({}, n); v, w = both({}, 1); v, = same({}); v, w = same({})
same({}); v = min({}, n); v = hal.float32({}); v = hal.exp({}); hal.atomic_add(y, {}, {})
v = hal.view(y, {}); v = hal.bitcast(hal.int32, {}); v, w = hal.load(y, {}, 2)
hal.store(y, 0, n, {}); v = WEIGHTS[{}]
""".strip()
    .replace("\n", "; ")
    .split("; ")
)

# What may stand before `=`, and what gives it values.
TARGETS = (
    """
v; n; y; tile; i; hal; f; WEIGHTS; y[0]; y[n]; y[:]; y[1:][0]; tile[0]; tile[0, 0]; tile[n, n]; x[0]
v.x; v,; y[0],; v, w; v, v; v, y[0]; n, y; tile, v; (v,),; v, (w, q); [v]; [v, w]; []; (); *v,
v, *w; hal.view(y, (2, 2))[0, 0]; hal.view(y, 4); both(n, 1)[0]; y[n, n]; y[()]; y[0][0]; y[y]
y[v := 0]
""".strip()
    .replace("\n", "; ")
    .split("; ")
)
ASSIGNMENTS = (
    """
{} = {value}|v = {} = {value}|{} += {value}|{} @= {value}|{}: hal.int32 = {value}|del {}
for {} in {value}: pass|for {} in range(3): v = {value}|for {} in hal.unroll(2): v = {value}
with {value} as {}: pass|v = [0 for {} in {value}]
""".strip()
    .replace("\n", "|")
    .split("|")
)
VALUES = (
    """
n|1|n, 1|n,|y|None|LIST|WEIGHTS|hal.float32|both(n, 1)|same(n)|hal.barrier()|hal.load(y, 0, 2)|y[1:]
hal.shared(hal.int32, 3)|range(3)
""".strip()
    .replace("\n", "|")
    .split("|")
)

# The statements and expressions of Python that have no place above.
FORMS = (
    *(f"v = n {sign} 1" for sign in ("+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|")),
    *(f"v = n {sign} x" for sign in ("^", "@", "<", "<=", ">", ">=", "==", "!=", "is", "in")),
    *(f"v = n {sign} x" for sign in ("is not", "not in")),
    "for k in range(n):\n    if k == 1: continue\n    break\nelse: pass",
    "async def g():\n    async for v in x: await v\n    async with x as v: pass",
    "def g():\n    nonlocal n; yield; yield from x",
    "def g(a, /, b=1, *c, d: int, **e) -> None: return lambda: 0",
    "@hal.func\nclass C(int, metaclass=type): pass",
    "global v",
    "import math as m",
    "from math import pi as p",
    "raise ValueError from None",
    "try: v = 1\nexcept ValueError as e: pass\nelse: pass\nfinally: pass",
    "try: v = 1\nexcept* ValueError: pass",
    "match n:\n    case 1 | 2: pass\n    case [None, *_] as v: pass\n    case {'a': 1, **w}: pass\n"
    "    case int(real=3) if n: pass",
)
if sys.version_info >= (3, 12):
    FORMS += ("type v = n", "def g[T: int, *S, **P](): pass")
if sys.version_info >= (3, 14):
    FORMS += ("v = t'{n}'",)


def with_body(body):
    """A text whose kernel `f` has this body."""
    head = "@hal.func\ndef both(a, b):\n    return a, b\n@hal.func\ndef same(a):\n    return a\n"
    head += "@hal.kernel\ndef f(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.float32], "
    head += "a: hal.float32, n: hal.int32):\n    tile = hal.shared(hal.int32, (2, 2))\n"
    return head + indent(body, "    ") + "\n"
