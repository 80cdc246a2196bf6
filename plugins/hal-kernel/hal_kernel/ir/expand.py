"""Replace math functions by plain arithmetic, for languages that have none of their own.

    y = exp(x)   ->   n = x * LOG2E + SHIFTER - SHIFTER
                      r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))
                      y = polynomial(r) * 2**n

The arithmetic has no calls, and except for SIN, COS, TAN and FMOD of float64 no branches, so
compilers vectorise it. It relies on FMA nodes that round once; where the machine has no such
instruction they are slow and still right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hal_core.dtypes import DType, float32, float64
from hal_kernel.ir.uop import Kernel, UOp

Functions = Mapping[str, Collection[DType]]  # op -> the dtypes it is replaced for

FUNCTIONS: Functions = dict.fromkeys(
    ("EXP", "EXP2", "LOG", "LOG2", "SIN", "COS", "TAN", "TANH", "ATAN", "ATAN2", "POW", "FMOD"),
    (float32, float64),
)


def expand(kernel: Kernel, functions: Functions = FUNCTIONS) -> Kernel:
    """Return the kernel with `functions` written out, or the same kernel if it has none of them.

    For every argument results are within 2 units in the last place of the exact value (2.5 for
    ATAN2 and the float64 TAN; FMOD is exact). Zeros, infinities, NaNs and subnormals give what C99
    says.
    """
    wanted = {
        node for node in kernel.uops if node.op in functions and node.dtype in functions[node.op]
    }
    if not wanted:
        return kernel
    from hal_kernel.ir.math import FORMULAS  # few kernels need them, and they take long to import
    from hal_kernel.ir.math.value import Page, Value

    uops: list[UOp] = []
    replaced: dict[UOp, UOp] = {}
    untouched = replaced.keys().isdisjoint
    for node in kernel.uops:
        source = node.src
        if not untouched(source):
            source = tuple(replaced.get(part, part) for part in source)
        if node in wanted:
            page = Page(uops, node.line)
            values = [Value(part, page) for part in source]
            replaced[node] = FORMULAS[node.op](*values).node
            continue
        if source is not node.src:
            made = replaced[node] = UOp(node.op, node.dtype, source, node.arg, node.line)
            uops.append(made)
        else:
            uops.append(node)
    return kernel._replace(uops=tuple(uops))
