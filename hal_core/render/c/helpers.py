"""Small C functions that a rendered text carries when it uses them.

Plain C99, so that every language of the family takes them, and written so that a compiler that
knows an argument drops the tests: division by a constant costs what it costs in C.
"""

from __future__ import annotations

# By kind of integer: "i" signed, "u" unsigned.
FLOOR_DIVISION = {
    "i": """\
{static} {type} {name}({type} a, {type} b) {{
    if (b == 0) return 0;
    if (b == -1) return ({type})(0 - ({unsigned})a);
    return ({type})(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));
}}""",
    "u": """\
{static} {type} {name}({type} a, {type} b) {{
    return b == 0 ? 0 : a / b;
}}""",
}

MODULO = {
    "i": """\
{static} {type} {name}({type} a, {type} b) {{
    if (b == 0 || b == -1) return 0;
    const {type} rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? ({type})(rest + b) : rest;
}}""",
    "u": """\
{static} {type} {name}({type} a, {type} b) {{
    return b == 0 ? 0 : a % b;
}}""",
}

# C leaves a float outside the integer's range, and NaN, undefined. The two signs keep gcc 12 from
# taking a signed integer's float for trunc(x), which is -0.0 for -0.2.
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

# 16-bit floats without a unit or a library for them, and without branches, so that a loop over
# them becomes vectors. {bits} and {of_bits} are functions between a float32 and its bits.

# The parts move into a float32's places; infinities and NaNs get its largest exponent, and of a
# denormal, which has no leading one, the one that was put there is taken away again.
FLOAT32_FROM_FLOAT16 = """\
{static} {float} {name}({type} x) {{
    const {uint} rest = ({uint})(x & 0x7fff) << 13;
    const {uint} exponent = rest & 0x0f800000;
    const {float} denormal = {of_bits}(rest + 0x38800000) - 6.103515625e-05f;
    const {uint} normal = rest + (exponent == 0x0f800000 ? 0x70000000 : 0x38000000);
    const {uint} magnitude = exponent == 0 ? {bits}(denormal) : normal;
    return {of_bits}(({uint})(x & 0x8000) << 16 | magnitude);
}}"""

# A denormal is rounded by adding 0.5, whose last place is the least float16; any other number by
# adding just under half a place, and the last bit that stays. 65520 is where infinity begins.
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

# An atomic operation by its parameters; the body is the language's. In a body {space} qualifies
# pointers, {order} is < or >, and {uint} has the width of {type}.
ATOMIC = """\
{static} {type} {name}({space}{type} *p, {parameters}) {{
    {body}
}}"""

# What only one thread at a time can do: a block's own memory where a worker runs a whole block.
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
}
