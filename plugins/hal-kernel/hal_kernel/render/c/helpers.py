"""Small C functions that a rendered text contains if it uses them.

They are plain C99, so that every language of the family compiles them. A compiler that knows an
argument drops the tests, so division by a constant costs what it costs in C.
"""

from __future__ import annotations

_UNSIGNED_DIVISION = """\
{static} {type} {name}({type} a, {type} b) {{
    return b == 0 ? 0 : a / b;
}}"""
_UNSIGNED_REMAINDER = """\
{static} {type} {name}({type} a, {type} b) {{
    return b == 0 ? 0 : a % b;
}}"""

# "op kind", a kind of integer being "i" signed or "u" unsigned -> helper.
DIVISIONS = {
    "FLOORDIV i": """\
{static} {type} {name}({type} a, {type} b) {{
    if (b == 0) return 0;
    if (b == -1) return ({type})(0 - ({unsigned})a);
    return ({type})(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));
}}""",
    "MOD i": """\
{static} {type} {name}({type} a, {type} b) {{
    if (b == 0 || b == -1) return 0;
    const {type} rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? ({type})(rest + b) : rest;
}}""",
    "TRUNCDIV i": """\
{static} {type} {name}({type} a, {type} b) {{
    if (b == 0) return 0;
    if (b == -1) return ({type})(0 - ({unsigned})a);
    return ({type})(a / b);
}}""",
    "TRUNCMOD i": """\
{static} {type} {name}({type} a, {type} b) {{
    return b == 0 || b == -1 ? 0 : ({type})(a % b);
}}""",
    **dict.fromkeys(("FLOORDIV u", "TRUNCDIV u"), _UNSIGNED_DIVISION),
    **dict.fromkeys(("MOD u", "TRUNCMOD u"), _UNSIGNED_REMAINDER),
}

# In C the cast of a NaN, or of a float outside the integer's range, is undefined. The two minus
# signs keep gcc 12 from replacing a cast to an integer and back by trunc(x), which gives -0.0 for
# -0.2.
FLOAT_TO_INTEGER = {
    "i": """\
{static} {type} {name}({source} x) {{
    return x != x ? 0 : x >= {above} ? {max} : x <= {below} ? {min} : ({type})-({type})-x;
}}""",
    "u": """\
{static} {type} {name}({source} x) {{
    return x != x ? 0 : x >= {above} ? {max} : x <= {below} ? {min} : ({type})x;
}}""",
}

# Conversions of 16-bit floats, for machines without an instruction or a library for them. They have
# no branches, so that a loop over them is vectorised. {bits} and {of_bits} are functions between a
# float32 and its bits.

# Exponent and mantissa are shifted to their places in a float32; infinities and NaNs get its
# largest exponent. A denormal has no leading one: it gets an exponent that implies one, which is
# then subtracted.
FLOAT32_FROM_FLOAT16 = """\
{static} {float} {name}({type} x) {{
    const {uint} rest = ({uint})(x & 0x7fff) << 13;
    const {uint} exponent = rest & 0x0f800000;
    const {float} denormal = {of_bits}(rest + 0x38800000) - 6.103515625e-05f;
    const {uint} normal = rest + (exponent == 0x0f800000 ? 0x70000000 : 0x38000000);
    const {uint} magnitude = exponent == 0 ? {bits}(denormal) : normal;
    return {of_bits}(({uint})(x & 0x8000) << 16 | magnitude);
}}"""

# To round a denormal, 0.5 is added, whose last bit is worth the least float16; to round any other
# number, just under half of its last bit, and one more if that bit is set (half to even). From
# 65520 on the result is infinite.
FLOAT16_FROM_FLOAT32 = """\
{static} {type} {name}({float} x) {{
    const {uint} sign = {bits}(x) >> 16 & 0x8000;
    const {uint} rest = {bits}(x) & 0x7fffffff;
    const {uint} denormal = {bits}({of_bits}(rest) + 0.5f) - 0x3f000000;
    const {uint} normal = (rest + 0xc8000fff + (rest >> 13 & 1)) >> 13;
    const {uint} finite = rest < 0x38800000 ? denormal : normal;
    const {uint} magnitude = rest > 0x7f800000 ? 0x7e00 : rest >= 0x477ff000 ? 0x7c00 : finite;
    return ({type})(sign | magnitude);
}}"""

FLOAT32_FROM_BFLOAT16 = """\
{static} {float} {name}({type} x) {{
    return {of_bits}(({uint})x << 16);
}}"""

BFLOAT16_FROM_FLOAT32 = """\
{static} {type} {name}({float} x) {{
    const {uint} bits = {bits}(x);
    const {uint} rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return ({type})(x != x ? bits >> 16 | 0x40 : rounded);
}}"""

BFLOAT16_CASTS = {
    "float32 from bfloat16": FLOAT32_FROM_BFLOAT16,
    "bfloat16 from float32": BFLOAT16_FROM_FLOAT32,
}
HALF_CASTS = {
    **BFLOAT16_CASTS,
    "float32 from float16": FLOAT32_FROM_FLOAT16,
    "float16 from float32": FLOAT16_FROM_FLOAT32,
}

# The helper of an atomic operation; each language has its bodies. In a body {space} qualifies
# pointers, {order} is < or >, {uint} is the unsigned type as wide as {type}, {memory} is RELAXED,
# ACQUIRE or RELEASE, and {fence} the fence of the last two, for languages that have no such access.
ATOMIC = """\
{static} {returns} {name}({const}{space}{type} *p{parameters}) {{
    {body}
}}"""

# Compilers make one access of a volatile element, wherever it is and whatever is around it.
VOLATILE = {
    "LOAD": "const {type} v = *(const volatile {space}{type} *)p;\n{fence}return v;",
    "STORE": "{fence}*(volatile {space}{type} *)p = v;",
}

# Atomics of shared memory where one worker runs all threads of a block: plain reads and writes.
PLAIN_ATOMICS = {
    "ADD": "const {type} old = *p;\n*p = ({type})(({uint})old + ({uint})v);\nreturn old;",
    "ADD u": "const {type} old = *p;\n*p = old + v;\nreturn old;",
    "ADD f": "const {type} old = *p;\n*p = old + v;\nreturn old;",
    "MIN": "const {type} old = *p;\nif (v {order} old) *p = v;\nreturn old;",
    "MAX": "const {type} old = *p;\nif (v {order} old) *p = v;\nreturn old;",
    "AND": "const {type} old = *p;\n*p = old & v;\nreturn old;",
    "OR": "const {type} old = *p;\n*p = old | v;\nreturn old;",
    "XOR": "const {type} old = *p;\n*p = old ^ v;\nreturn old;",
    "EXCHANGE": "const {type} old = *p;\n*p = v;\nreturn old;",
    "CAS": "const {type} old = *p;\nif (old == expected) *p = desired;\nreturn old;",
    "LOAD": "return *p;",
    "STORE": "*p = v;",
}

# One access where the address allows it; a buffer may be a view that begins at any element. The
# elements are volatile, as NVRTC 13 otherwise merges the two sides, and takes both for aligned.
VECTORS = {
    "LOAD": """\
{static} {vector} {name}(const {space}{type} *p) {{
    if ((({address})p & {last}) == 0) return *(const {space}{vector} *)p;
    const volatile {space}{type} *q = p;
    const {vector} v = {{{{{elements}}}}};
    return v;
}}""",
    "STORE": """\
{static} void {name}({space}{type} *p, {parameters}) {{
    const {vector} v = {{{{{values}}}}};
    if ((({address})p & {last}) == 0) {{
        *({space}{vector} *)p = v;
    }} else {{
        volatile {space}{type} *q = p;
        {stores}
    }}
}}""",
}

# The bits of a number as a number of another type.
BITS = """\
{static} {to} {name}({source} x) {{
    union {{ {source} from; {to} to; }} bits = {{x}};
    return bits.to;
}}"""
