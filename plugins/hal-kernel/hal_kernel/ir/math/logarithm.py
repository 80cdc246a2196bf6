"""The formulas of log, log2, log10 and log1p.

x = 2**e * m with m between sqrt(1/2) and sqrt(2); with f = m - 1 and s = f / (2 + f),
log(m) = log((1 + s) / (1 - s)) = 2 s + 2/3 s**3 + 2/5 s**5 + ...
"""

from __future__ import annotations

from hal_core.dtypes import DType, float32, float64
from hal_kernel.ir.math.exponential import LN2
from hal_kernel.ir.math.value import Table, Value, bits_of

LOG2E: Table = {  # log2(e), as a sum of two numbers, like the next two
    float32: (1.4426950216293335, 1.925963033500144e-08),
    float64: (1.4426950408889634, 2.0355273740931033e-17),
}
_LOG10E: Table = {
    float32: (0.4342944920063019, -1.0103049952192578e-08),
    float64: (0.4342944819032518, 1.098319650216765e-17),
}
_LOG10_2: Table = {
    float32: (0.3010300099849701, -1.432098883924482e-08),
    float64: (0.3010299956639812, -2.8037281277851704e-18),
}
_ROOT = 0.7071067811865476  # sqrt(1/2)
INFINITY, NAN = float("inf"), float("nan")

# (log((1 + s) / (1 - s)) - 2 s) / s**3 as a polynomial in s**2, |s| <= 0.1717: minimax fits (Remez)
# of degree 3 and 7, computed with 60 digits; their error is 2**-37 and 2**-66 of the logarithm.
_SERIES: Table = {
    float32: (0.6666666564337308, 0.4000033570603747, 0.2853727336400297, 0.23582861484378162),
    float64: (
        0.6666666666666666, 0.40000000000006264, 0.28571428569080143, 0.222222226476636,
        0.1818177559597361, 0.15387093806719043, 0.13250049158299487, 0.1325195848855753,
    ),
}  # fmt: skip


def log(x: Value) -> Value:
    e, f = parts(x)
    high, low = LN2[x.dtype]
    half, rest = near_one(f, x.dtype)
    total = e.fma(high, f - (half - e.fma(low, rest)))
    return of_special(x, total)


def log2(x: Value) -> Value:
    e, f = parts(x)
    high, low = LOG2E[x.dtype]
    half, rest = near_one(f, x.dtype)
    natural = f - (half - rest)
    return of_special(x, natural.fma(high, natural.fma(low, e)))


def log10(x: Value) -> Value:
    e, f = parts(x)
    high, low = _LOG10E[x.dtype]
    two, two_low = _LOG10_2[x.dtype]
    half, rest = near_one(f, x.dtype)
    natural = f - (half - rest)
    small = natural.fma(low, e.times(two_low))
    return of_special(x, e.fma(two, natural.fma(high, small)))


def log1p(x: Value) -> Value:
    """log(u) + (1 + x - u) / u, where u is 1 + x, rounded."""
    u = x + 1.0
    lost = (x > 1.0).where(1.0 - (u - x), x - (u - 1.0)) / u
    e, f = parts(u)
    high, low = LN2[x.dtype]
    half, rest = near_one(f, x.dtype)
    total = e.fma(high, f - (half - (e.fma(low, rest) + lost)))
    return of_special(u, total).with_sign_of(x)


def near_one(f: Value, accuracy: DType) -> tuple[Value, Value]:
    """Return h and r with log(1 + f) = f - (h - r), so that the largest term keeps all digits."""
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    return half, s * (z.polynomial(_SERIES[accuracy]).fma(z, half))


def parts(x: Value) -> tuple[Value, Value]:
    """Return e and m - 1 of a positive finite x = m * 2**e, m between sqrt(1/2) and sqrt(2)."""
    form = x.format
    tiny = x < form.smallest  # subnormals are scaled up first, and e is corrected
    lift = 2.0 ** (form.mantissa + 1)
    bits = tiny.where(x * lift, x).bits()
    root = bits_of(_ROOT, x.dtype)
    above = bits - root
    e = (above >> form.mantissa).small_integer_to(x.dtype)
    m = ((above & ((1 << form.mantissa) - 1)) + root).bitcast(x.dtype)
    return tiny.where(e - (form.mantissa + 1.0), e), m - 1.0


def of_special(x: Value, result: Value) -> Value:
    """Return `result`, corrected where x is 0, infinite, negative or NaN."""
    regular = x.equals(INFINITY).where(x, result)
    regular = x.equals(0.0).where(-INFINITY, regular)
    return x.compare("GE", 0.0).where(regular, x.const(NAN))
