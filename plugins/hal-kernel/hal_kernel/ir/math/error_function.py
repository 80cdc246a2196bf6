"""The formulas of erf and erfc.

Near 0 erf(x) = x + x P(x**2). For larger x, with t = (x - 4) / (x + 4),
erfc(x) = exp(-x**2) Q(t) / (1 + 2 x).

Source of the second form: Shepherd and Laframboise, Mathematics of Computation 36 (1981).
"""

from __future__ import annotations

from hal_core.dtypes import DType, float32, float64
from hal_kernel.ir.math.exponential import expm1_near_zero, reduced, scaled
from hal_kernel.ir.math.value import Table, Value

# erf(x) / x - 1 as a polynomial in x**2, |x| <= 1: minimax fits (Remez) of degree 6 and 12,
# computed with 60 digits; their error is 2**-29 and 2**-62 of erf(x).
_NEAR_ZERO: Table = {
    float32: (
        0.12837916612625122, -0.3761262595653534, 0.11283575743436813, -0.026853354647755623,
        0.005187366157770157, -0.0008000940433703363, 7.820693281246349e-05,
    ),
    float64: (
        0.1283791670955126, -0.3761263890318375, 0.11283791670954828, -0.026866170645067095,
        0.005223977624722141, -0.0008548326975243983, 0.00012055330905143357,
        -1.4925590247895812e-05, 1.6460919156146575e-06, -1.6349442757882445e-07,
        1.4653877440701641e-08, -1.1349892150823176e-09, 5.918103909851503e-11,
    ),
}  # fmt: skip
# (1 + 2 x) exp(x**2) erfc(x) as a polynomial in t, x from 0.49 to _LAST: minimax fits of degree 11
# and 23; their error is 2**-32 and 2**-64 of the value.
_TAIL: Table = {
    float32: (
        1.2329951524734497, -0.13962112367153168, 0.015379615128040314, 0.0680970847606659,
        -0.10103777796030045, 0.0937330573797226, -0.06634652614593506, 0.037153057754039764,
        -0.016116388142108917, 0.005156631115823984, -0.0008710128022357821,
        -0.0005142181762494147,
    ),
    float64: (
        1.2329951186255526, -0.1396211168405625, 0.015379652102620012, 0.06809705425469155,
        -0.10103906603632276, 0.09373283499839641, -0.06633036581172169, 0.037167515536629545,
        -0.01619773406471493, 0.005031969986137166, -0.0007577732320022945,
        -0.00019925673855114673, 0.00015062138750386532, -2.4399079344386047e-05,
        -1.1221092927829495e-05, 5.709515625351322e-06, 2.918703915954455e-07,
        -8.25338932363043e-07, 7.711511970100262e-08, 1.1033258794159401e-07,
        -1.971396000482916e-08, -1.4554063274178792e-08, 2.4022641446203093e-09,
        1.4784607583261667e-09,
    ),
}  # fmt: skip
_LAST: dict[DType, float] = {float32: 10.2, float64: 27.3}  # for larger x erfc is 0


def erf(x: Value) -> Value:
    size = abs(x)
    large = (1.0 - _tail(size)).with_sign_of(x)
    return (size < 1.0).where(_small(x), large)


def erfc(x: Value) -> Value:
    size = abs(x)
    tail = _tail(size)
    large = (x < 0.0).where(2.0 - tail, tail)
    return (size < 0.75).where(1.0 - _small(x), large)


def _small(x: Value) -> Value:
    """Return erf(x) for |x| <= 1."""
    return x.fma((x * x).polynomial(_NEAR_ZERO[x.dtype]), x)


def _tail(x: Value) -> Value:
    """Return erfc(x) for x >= 0.5."""
    x = x.apply("MIN", _LAST[x.dtype])
    square = x.times(x)
    lost = x.fma(x, -square)  # the rounding error of the square, which exp would make large
    n, r = reduced(-square)
    shape = ((x - 4.0) / (x + 4.0)).polynomial(_TAIL[x.dtype])
    value = (expm1_near_zero(r - lost, x.dtype) + 1.0) * (shape / (x + x + 1.0))
    return scaled(value, n)
