"""Identifiers in rendered text: which ones are taken, and what is used instead."""

from __future__ import annotations

import re
from collections.abc import Set

# Names of the C library: a kernel called so would be called in its place (`exp` by a rendered
# `hal.exp`, `memset` by a loop that a compiler recognised). Refused in every language, so that a
# kernel that runs on one device runs on the next.
LIBRARY_NAMES = frozenset(
    f"{stem}{suffix}"
    for stem in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign",
        "cos", "cosh", "erf", "erfc", "exp", "exp10", "exp2", "expm1", "fabs", "fdim", "floor",
        "fma", "fmax", "fmin", "fmod", "frexp", "hypot", "ldexp", "lgamma", "log", "log10",
        "log1p", "log2", "modf", "nearbyint", "pow", "remainder", "rint", "round", "roundeven",
        "rsqrt", "sin", "sincos", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc",
    )
    for suffix in ("", "f", "l")
) | {
    "abort", "abs", "bcmp", "calloc", "exit", "free", "isfinite", "isinf", "isnan", "labs",
    "llabs", "main", "malloc", "max", "memchr", "memcmp", "memcpy", "memmove", "memset", "min",
    "printf", "realloc", "signbit", "strlen",
}  # fmt: skip

# More of the same, which no rendered text calls: taken for kernels, free for variables.
MORE_LIBRARY_NAMES = frozenset(
    f"{stem}{suffix}"
    for stem in (
        "cospi", "cyl_bessel_i0", "cyl_bessel_i1", "erfcinv", "erfcx", "erfinv", "fdivide", "ilogb",
        "j0", "j1", "jn", "llrint", "llround", "logb", "lrint", "lround", "nan", "nextafter",
        "norm", "norm3d", "norm4d", "normcdf", "normcdfinv", "rcbrt", "remquo", "rhypot", "rnorm",
        "rnorm3d", "rnorm4d", "scalbln", "scalbn", "sincospi", "sinpi", "y0", "y1", "yn",
    )
    for suffix in ("", "f", "l")
) | {
    "assert", "clock", "clock64", "llmax", "llmin", "ullmax", "ullmin", "umax", "umin", "va_arg",
    "va_copy", "va_end", "va_list", "va_start",
}  # fmt: skip

# Words no kernel or variable may be called in some language of the C family.
C_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class compl concept const const_cast consteval constexpr constinit continue co_await
    co_return co_yield decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto half if inline int long mutable namespace new noexcept not
    not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
    restrict return short signed sizeof static static_assert static_cast struct switch template
    this thread_local throw true try typedef typeid typename typeof union unsigned using virtual
    void volatile wchar_t while xor xor_eq
    """.split()  # noqa: SIM905 - words read better so
)

# Macros of the languages' own headers, and what C keeps for itself; a parameter called so would
# be replaced by a number.
_MACRO = re.compile(
    r"_[A-Z_]|hal_|cl_khr_|(M|FP|CL|CLK|FLT|DBL|HUGE|MAX|U?INT(\d+|PTR|MAX)?)_"
    r"|(NULL|NAN|INFINITY|MAXFLOAT|linux|unix)$"
)

# Of these the names that a kernel cannot have, for it cannot be renamed, and the types of C.
_NO_KERNEL = re.compile(
    r"_[A-Z_]|cl_khr_|(M|FP|CL|CLK|FLT|DBL|HUGE|MAX|U?INT(\d+|PTR|MAX)?)_[A-Z0-9_]+$"
    r"|(NULL|NAN|INFINITY|MAXFLOAT|linux|unix)$"
    r"|(u?int(\d+|ptr|max|_(fast|least)\d+)|size|ptrdiff)_t$"
)


def is_taken(kernel_name: str) -> bool:
    """Whether C, its library or its headers have another thing of this name."""
    if kernel_name in LIBRARY_NAMES | MORE_LIBRARY_NAMES | C_KEYWORDS:
        return True
    return _NO_KERNEL.match(kernel_name) is not None


class Names:
    """The identifiers of one rendered text; each is given out once."""

    def __init__(self, reserved: Set[str]) -> None:
        self._reserved = reserved
        self._taken: set[str] = set()
        self._count = 0
        self._last: dict[str, int] = {}  # how often a name was wanted that is taken

    def take(self, wanted: str) -> str:
        """`wanted` itself, or with `_`, `_2`, ... behind it where the language or the text has
        it; letters beyond ASCII by their number."""
        if not wanted.isascii():
            wanted = "".join(c if c.isascii() else f"u{ord(c):x}" for c in wanted)
        base = name = f"{wanted}_" if _MACRO.match(wanted) else wanted
        while name in self._taken or name in self._reserved:
            number = self._last[base] = self._last.get(base, 0) + 1
            name = f"{base}_{number}" if number > 1 else f"{base}_"
        self._taken.add(name)
        return name

    def fresh(self) -> str:
        """A name for a value that the user gave none: v0, v1, ..."""
        while (name := f"v{self._count}") in self._taken or name in self._reserved:
            self._count += 1
        self._taken.add(name)
        return name
