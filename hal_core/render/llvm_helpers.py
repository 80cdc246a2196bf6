"""Small LLVM functions that a rendered text carries when it uses them.

Internal and always inlined: a constant argument folds the tests away. The divisors that would be
undefined in LLVM (0, and -1 beside the least integer) are replaced by 1 before the division.
"""

from __future__ import annotations

_FLOOR_DIVISION = {
    True: """\
define internal {type} {name}({type} %a, {type} %b) alwaysinline {{
  %zero = icmp eq {type} %b, 0
  %minus = icmp eq {type} %b, -1
  %special = or i1 %zero, %minus
  %safe = select i1 %special, {type} 1, {type} %b
  %quotient = sdiv {type} %a, %safe
  %rest = srem {type} %a, %safe
  %signs = xor {type} %rest, %safe
  %differ = icmp slt {type} %signs, 0
  %inexact = icmp ne {type} %rest, 0
  %lower = and i1 %differ, %inexact
  %one = zext i1 %lower to {type}
  %floor = sub {type} %quotient, %one
  %negated = sub {type} 0, %a
  %result = select i1 %minus, {type} %negated, {type} %floor
  %answer = select i1 %zero, {type} 0, {type} %result
  ret {type} %answer
}}
""",
    False: """\
define internal {type} {name}({type} %a, {type} %b) alwaysinline {{
  %zero = icmp eq {type} %b, 0
  %safe = select i1 %zero, {type} 1, {type} %b
  %quotient = udiv {type} %a, %safe
  %answer = select i1 %zero, {type} 0, {type} %quotient
  ret {type} %answer
}}
""",
}

_MODULO = {
    True: """\
define internal {type} {name}({type} %a, {type} %b) alwaysinline {{
  %zero = icmp eq {type} %b, 0
  %minus = icmp eq {type} %b, -1
  %special = or i1 %zero, %minus
  %safe = select i1 %special, {type} 1, {type} %b
  %rest = srem {type} %a, %safe
  %signs = xor {type} %rest, %safe
  %differ = icmp slt {type} %signs, 0
  %inexact = icmp ne {type} %rest, 0
  %add = and i1 %differ, %inexact
  %more = select i1 %add, {type} %safe, {type} 0
  %answer = add {type} %rest, %more
  ret {type} %answer
}}
""",
    False: """\
define internal {type} {name}({type} %a, {type} %b) alwaysinline {{
  %zero = icmp eq {type} %b, 0
  %safe = select i1 %zero, {type} 1, {type} %b
  %answer = urem {type} %a, %safe
  ret {type} %answer
}}
""",
}


def floor_division(kind: str, signed: bool) -> tuple[str, str]:
    """Name and definition of `//` for an integer type; by zero gives 0."""
    name = f"@hal.{'s' if signed else 'u'}floordiv.{kind}"
    return name, _FLOOR_DIVISION[signed].format(type=kind, name=name)


def modulo(kind: str, signed: bool) -> tuple[str, str]:
    """Name and definition of `%` for an integer type; by zero gives 0."""
    name = f"@hal.{'s' if signed else 'u'}mod.{kind}"
    return name, _MODULO[signed].format(type=kind, name=name)
