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
from hal_kernel.ir.uop import Kernel, UOp, replaced

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
    new: dict[UOp, UOp] = {}
    for node in kernel.uops:
        made = new[node] = replaced(node, new)
        if node in wanted:
            page = Page(uops, node.line)
            values = [Value(part, page) for part in made.src]
            new[node] = FORMULAS[node.op](*values).node
        else:
            uops.append(made)
    return kernel._replace(uops=tuple(uops))
