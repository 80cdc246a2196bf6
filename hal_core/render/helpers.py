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

# C leaves a float outside the integer's range, and NaN, undefined.
FLOAT_TO_INTEGER = """\
{static} {type} {name}({source} x) {{
    return x != x ? 0 : x >= {above} ? {max} : x <= {below} ? {min} : ({type})x;
}}"""
