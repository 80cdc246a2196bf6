"""Kernels on whole columns of numbers, arguments that find faults, and how far results are off."""

import math

import numpy as np

from hal_core.dtypes import float32, float64
from hal_kernel.interpreter.operations import OPERATIONS, operation

DTYPES = [float32, float64]


def on_columns(kernel, columns, fused):
    """What a kernel stores that loads an element of each column.

    `fused`: sums of products are rounded once, as compilers may have it.
    """
    values = {}
    inside = None
    for node in kernel.uops:
        source = [values.get(part) for part in node.src]
        if node.op == "CONST":
            values[node] = np.array([node.arg]).astype(node.dtype.to_numpy())  # type: ignore[union-attr]
        elif node.op == "LOAD":
            values[node] = columns[node.src[0].arg - 1]
        elif node.op == "STORE":
            return np.asarray(source[2])
        elif node.op == "SET":
            kept = source[1] if inside is None else np.where(inside, source[1], source[0])
            values[node.src[0]] = kept
        elif node.op in ("GET", "IF", "ENDIF"):
            values[node] = source[0]
            inside = {"IF": source[0], "ENDIF": None}.get(node.op, inside)
        elif node.op not in ("PARAM", "SPECIAL", "VAR", "RANGE"):
            values[node] = _computed(node, source, values, fused)
    raise AssertionError("no STORE")


def _computed(node, source, values, fused):
    fma = OPERATIONS["FMA"]
    product = node.src[0]
    if fused and node.op in ("ADD", "SUB") and product.op == "MUL" and node.dtype in DTYPES:
        factors = (values[part] for part in product.src)
        return fma(*factors, source[1] if node.op == "ADD" else -source[1])
    function = operation(node)
    if function is None:
        raise AssertionError(f"{node} has no meaning on columns")
    return function(*source)


def errors(got, expected, dtype):
    """In units in the last place; infinite where one is a NaN, an infinity or of another sign."""
    limits = np.finfo(dtype.to_numpy())
    with np.errstate(all="ignore"):
        exponent = np.maximum(
            np.frexp(expected)[1] - limits.nmant - 1, limits.minexp - limits.nmant
        )
        distance = np.abs(got.astype(expected.dtype) - expected)
        units = np.ldexp(distance, -exponent)
        rounded = expected.astype(got.dtype)
    alike = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    units = np.where(alike, 0, units)
    wrong_sign = (np.signbit(got) != np.signbit(rounded)) & ~np.isnan(rounded)
    return np.asarray(np.where(np.isnan(units) | wrong_sign, np.inf, units), np.float64)


def every(stride):
    """float32 of all signs and exponents, NaNs and infinities among them."""
    bits = np.arange(0, 1 << 32, stride, dtype=np.int64).astype(np.uint32)
    return np.asarray(bits.view(np.float32))


def specials(dtype):
    limits = np.finfo(dtype.to_numpy())
    positive = [
        0.0, limits.smallest_subnormal, limits.tiny, limits.max, math.inf, math.nan, 0.5, 1.0, 1.5,
        2.0, 2.5, 3.0, 8.0, 1e10, 1 / 3, 2.0**limits.nmant + 1, 1 - limits.epsneg, 1 + limits.eps,
        math.pi, math.pi / 2, math.log(limits.max), -math.log(limits.tiny), 89.5, 104.5, 710, 746,
        limits.maxexp, -limits.minexp, -limits.minexp + limits.nmant, -limits.minexp + 25, 1e22,
    ]  # fmt: skip
    return np.array([*positive, *(-number for number in positive)], dtype.to_numpy())


def scattered(dtype, count, seed):
    """All exponents alike, both signs; a third near 1, where arguments usually are."""
    random = np.random.default_rng(seed)
    limits = np.finfo(dtype.to_numpy())
    exponents = random.integers(limits.minexp - limits.nmant, limits.maxexp, count)
    exponents[::3] = random.integers(-30, 12, len(exponents[::3]))
    signs = random.choice([-1.0, 1.0], count)
    with np.errstate(under="ignore"):
        values = np.ldexp(random.uniform(1, 2, count) * signs, exponents)
        return np.asarray(values.astype(dtype.to_numpy()))
