"""The formula of fmod, the remainder of a division that truncates.

The remainder is exact: x - n * y has no more digits than y, if n is nearly x / y.
"""

from __future__ import annotations

from hal_core.dtypes import float32, float64, uint64
from hal_kernel.ir.math.exponential import scaled
from hal_kernel.ir.math.value import Value, Variable

_INFINITY, _NAN = float("inf"), float("nan")
NEAR = 2.0**53  # below, a quotient of float64 is rounded to its integer part or to one more
# float32 are less than 2**277 apart: x - n * y * 2**step for these steps leaves less than 0.51 y,
# as each n has at most 47 bits, and is at most one off.
_STEPS = (230, 184, 138, 92, 46, 0)


def fmod(x: Value, y: Value, far: bool = True) -> Value:
    """The remainder; if they are not `far`, of numbers whose quotient is less than NEAR."""
    above, below = abs(x).cast(float64), abs(y).cast(float64)
    rest = _of_float32(above, below) if x.dtype is float32 else _of_float64(above, below, far)
    rest = (rest < 0.0).where(rest + below, rest)
    size = (above < below).where(above, rest).cast(x.dtype)
    # Infinities, NaNs and a division by 0 have no remainder.
    defined = (abs(x) < _INFINITY) & (abs(y) > 0.0)
    return defined.where(size.with_sign_of(x), x.const(_NAN))


def _of_float32(x: Value, y: Value) -> Value:
    """Return a remainder that is less than y, and may be negative, of numbers up to 2**277 y."""
    inverse, shifter = 1.0 / y, x.format.shifter
    for step in _STEPS:
        whole = x.fma(inverse * 2.0**-step, shifter) - shifter
        x = (-whole).fma(y * 2.0**step, x)
    return x


def _of_float64(x: Value, y: Value, far: bool) -> Value:
    quotient = x / y
    near = (-quotient.apply("TRUNC")).fma(y, x)
    if not far:
        return near
    rest, is_far = Variable("rest", near), quotient.compare("GE", NEAR)
    block = is_far.statement("IF", is_far)
    rest.set(_of_far(x, y))
    is_far.statement("ENDIF", block)
    return rest.get()


def _of_far(x: Value, y: Value) -> Value:
    """(m * 2**(e - f) % n) * 2**f, for x = m * 2**e and y = n * 2**f with integers m and n."""
    form = x.format
    (m, e), (n, f) = _parts(x), _parts(y)
    start, bits, step = m.apply("MOD", n), e - f, 63 - form.mantissa
    # start * 2**bits % n, `step` bits at a time: more would not fit into an integer.
    rest, distance = Variable("rest", start), Variable("distance", bits)
    loop = start.statement("LOOP")
    left = distance.get()
    done = left.statement("IF", left.compare("LE", 0))
    left.statement("BREAK", loop)
    left.statement("ENDIF", done)
    now = left.apply("MIN", step)
    rest.set((rest.get() << now.cast(uint64)).apply("MOD", n))
    distance.set(left - now)
    left.statement("ENDLOOP", loop)
    unit = (f - (form.bias + form.mantissa)).cast(x.dtype)
    return scaled(rest.get().cast(x.dtype), unit)


def _parts(x: Value) -> tuple[Value, Value]:
    """Return the significand of a positive x as an unsigned integer, and the bits of its exponent.

    Subnormals have no leading 1, and the exponent 1.
    """
    mantissa = x.format.mantissa
    bits = x.bits()
    exponent = bits >> mantissa
    fraction = bits & ((1 << mantissa) - 1)
    whole = exponent.equals(0).where(fraction, fraction | (1 << mantissa))
    return whole.cast(uint64), exponent.apply("MAX", 1)
