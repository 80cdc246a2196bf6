"""The formula of fmod, the remainder of a division that truncates.

The remainder is exact, so it is computed with integers, in a loop.
"""

from __future__ import annotations

from hal_core.dtypes import uint64
from hal_core.ir.math.exponential import scaled
from hal_core.ir.math.value import Value, Variable

_INFINITY, _NAN = float("inf"), float("nan")


def fmod(x: Value, y: Value) -> Value:
    """(m * 2**(e - f) % n) * 2**f, for x = m * 2**e and y = n * 2**f with integers m and n."""
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
    # Infinities, NaNs and a division by 0 have no remainder, and the code above read them wrongly.
    defined = (abs(x) < _INFINITY) & (abs(y) > 0.0)
    return defined.where(size.with_sign_of(x), x.const(_NAN))


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
