"""The formula of fmod, the remainder of a division that truncates.

It is exact, and therefore written with integers and a loop.
"""

from __future__ import annotations

from hal_core.dtypes import uint64
from hal_core.ir.math.exponential import scaled
from hal_core.ir.math.value import Value, Variable

_INFINITY, _NAN = float("inf"), float("nan")


def fmod(x: Value, y: Value) -> Value:
    """x = m * 2**e and y = n * 2**f in integers: the remainder is (m * 2**(e - f) % n) * 2**f."""
    form = x.format
    (m, e), (n, f) = _parts(abs(x)), _parts(abs(y))
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
    whole = rest.get()
    unit = (f - (form.bias + form.mantissa)).cast(x.dtype)
    size = (e < f).where(abs(x), scaled(whole.cast(x.dtype), unit))
    # What has no remainder has no exponent of its own either: infinities, NaNs, division by 0.
    defined = (abs(x) < _INFINITY) & (abs(y) > 0.0)
    return defined.where(size.with_sign_of(x), x.const(_NAN))


def _parts(x: Value) -> tuple[Value, Value]:
    """Return a positive x as an unsigned integer and a power of two.

    The power is the exponent's bits: 1 for the smallest numbers.
    """
    mantissa = x.format.mantissa
    bits = x.bits()
    exponent = bits >> mantissa
    fraction = bits & ((1 << mantissa) - 1)
    whole = exponent.equals(0).where(fraction, fraction | (1 << mantissa))
    return whole.cast(uint64), exponent.apply("MAX", 1)
