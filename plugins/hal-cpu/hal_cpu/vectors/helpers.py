"""Small LLVM functions that a rendered text contains if it uses them.

They are internal and always inlined, so that a constant argument folds the tests away. The divisors
that may be undefined in LLVM (0, and -1 with the least integer) are replaced by 1 before the
division.
"""

from __future__ import annotations

from hal_core.dtypes import DType, float16

_UNSIGNED = """\
define internal {type} {name}({type} %a, {type} %b) alwaysinline {{
  %zero = icmp eq {type} %b, 0
  %safe = select i1 %zero, {type} 1, {type} %b
  %quotient = INSTRUCTION {type} %a, %safe
  %answer = select i1 %zero, {type} 0, {type} %quotient
"""
_SAFE = """\
define internal {type} {name}({type} %a, {type} %b) alwaysinline {{
  %zero = icmp eq {type} %b, 0
  %minus = icmp eq {type} %b, -1
  %special = or i1 %zero, %minus
  %safe = select i1 %special, {type} 1, {type} %b
"""
_ROUNDED = """\
  %rest = srem {type} %a, %safe
  %signs = xor {type} %rest, %safe
  %differ = icmp slt {type} %signs, 0
  %inexact = icmp ne {type} %rest, 0
  %lower = and i1 %differ, %inexact
"""
_QUOTIENT = """\
  %negated = sub {type} 0, %a
  %result = select i1 %minus, {type} %negated, {type} %whole
  %answer = select i1 %zero, {type} 0, {type} %result
"""
_SIGNED = {
    "FLOORDIV": f"""{_ROUNDED}\
  %quotient = sdiv {{type}} %a, %safe
  %one = zext i1 %lower to {{type}}
  %whole = sub {{type}} %quotient, %one
{_QUOTIENT}""",
    "MOD": f"""{_ROUNDED}\
  %more = select i1 %lower, {{type}} %safe, {{type}} 0
  %answer = add {{type}} %rest, %more
""",
    "TRUNCDIV": f"""\
  %whole = sdiv {{type}} %a, %safe
{_QUOTIENT}""",
    "TRUNCMOD": """\
  %answer = srem {type} %a, %safe
""",
}
_RETURN = """\
  ret {type} %answer
}}
"""


def division(op: str, kind: str, signed: bool) -> tuple[str, str]:
    """Return the name and definition of a division, or its remainder, of an integer type."""
    name = f"@hal.{'s' if signed else 'u'}{op.lower()}.{kind}"
    instruction = "udiv" if "DIV" in op else "urem"
    text = _SAFE + _SIGNED[op] if signed else _UNSIGNED.replace("INSTRUCTION", instruction)
    return name, (text + _RETURN).format(type=kind, name=name)


# Conversions of 16-bit floats, given as their bits, in integer and float32 operations only.

_WIDEN_FLOAT16 = """\
define internal float {name}(i16 %h) alwaysinline {{
  %wide = zext i16 %h to i32
  %minus = and i32 %wide, 32768
  %sign = shl i32 %minus, 16
  %size = and i32 %wide, 32767
  %place = shl i32 %size, 13
  %normal = add i32 %place, 939524096
  %special = or i32 %place, 2139095040
  %count = uitofp i32 %size to float
  %tiny = fmul float %count, 0x3E70000000000000
  %subnormal = bitcast float %tiny to i32
  %is.subnormal = icmp ult i32 %size, 1024
  %is.special = icmp ugt i32 %size, 31743
  %large = select i1 %is.special, i32 %special, i32 %normal
  %all = select i1 %is.subnormal, i32 %subnormal, i32 %large
  %bits = or i32 %all, %sign
  %x = bitcast i32 %bits to float
  ret float %x
}}
"""

# The last bit of 0.5 is worth as much as that of a subnormal float16, so adding 0.5 rounds there.
_NARROW_FLOAT16 = """\
define internal i16 {name}(float %x) alwaysinline {{
  %bits = bitcast float %x to i32
  %minus = lshr i32 %bits, 16
  %sign = and i32 %minus, 32768
  %size = and i32 %bits, 2147483647
  %last = lshr i32 %size, 13
  %odd = and i32 %last, 1
  %place = sub i32 %size, 939520001
  %nearest = add i32 %place, %odd
  %normal = lshr i32 %nearest, 13
  %magnitude = bitcast i32 %size to float
  %aligned = fadd float %magnitude, 0.5
  %pattern = bitcast float %aligned to i32
  %subnormal = sub i32 %pattern, 1056964608
  %payload = and i32 %last, 1023
  %nan = or i32 %payload, 32256
  %is.subnormal = icmp ult i32 %size, 947912704
  %is.infinite = icmp ugt i32 %size, 1199566847
  %is.nan = icmp ugt i32 %size, 2139095040
  %small = select i1 %is.subnormal, i32 %subnormal, i32 %normal
  %number = select i1 %is.infinite, i32 31744, i32 %small
  %all = select i1 %is.nan, i32 %nan, i32 %number
  %whole = or i32 %all, %sign
  %h = trunc i32 %whole to i16
  ret i16 %h
}}
"""

_WIDEN_BFLOAT16 = """\
define internal float {name}(i16 %h) alwaysinline {{
  %wide = zext i16 %h to i32
  %bits = shl i32 %wide, 16
  %x = bitcast i32 %bits to float
  ret float %x
}}
"""

_NARROW_BFLOAT16 = """\
define internal i16 {name}(float %x) alwaysinline {{
  %bits = bitcast float %x to i32
  %last = lshr i32 %bits, 16
  %odd = and i32 %last, 1
  %half = add i32 %bits, 32767
  %nearest = add i32 %half, %odd
  %number = lshr i32 %nearest, 16
  %nan = or i32 %last, 64
  %size = and i32 %bits, 2147483647
  %is.nan = icmp ugt i32 %size, 2139095040
  %all = select i1 %is.nan, i32 %nan, i32 %number
  %h = trunc i32 %all to i16
  ret i16 %h
}}
"""


def widen(source: DType) -> tuple[str, str]:
    """Return the name and definition of the conversion of a 16-bit float to float32."""
    name = f"@hal.widen.{source.name}"
    return name, (_WIDEN_FLOAT16 if source is float16 else _WIDEN_BFLOAT16).format(name=name)


def narrow(target: DType) -> tuple[str, str]:
    """Return the name and definition of float32 to a 16-bit float: to nearest, ties to even."""
    name = f"@hal.narrow.{target.name}"
    return name, (_NARROW_FLOAT16 if target is float16 else _NARROW_BFLOAT16).format(name=name)
