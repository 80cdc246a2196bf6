"""A kernel of one operation, interpreted for many operands at a time."""

import numpy as np

from hal_core.dtypes import bfloat16, int32
from hal_core.signature import Signature
from hal_kernel.interpreter import interpret
from hal_kernel.ir import Kernel, UOp


def one_operation(op, sources, target):
    """Return the kernel `y[i] = op(x0[i], x1[i], ...)`."""
    inputs = [f"x{k}: const {dtype.name}*" for k, dtype in enumerate(sources)]
    signature = Signature.parse("one", ", ".join([f"y: {target.name}*", *inputs]))
    params = [UOp("PARAM", param.dtype, (), param.position) for param in signature.params]
    index = UOp("SPECIAL", int32, (), ("global_idx", 0))
    loads = [UOp("LOAD", param.dtype, (param, index)) for param in params[1:]]
    result = UOp(op, target, tuple(loads))
    store = UOp("STORE", None, (params[0], index, result))
    return Kernel("one", signature, (*params, index, *loads, result, store))


def compute(op, sources, target, rows):
    """Return the interpreter's result for each row of operands."""
    kernel = one_operation(op, sources, target)
    columns = [
        np.array([row[k] for row in rows], dtype.to_numpy()) for k, dtype in enumerate(sources)
    ]
    result = np.zeros(len(rows), target.to_numpy())
    interpret(kernel, result, *columns, threads=len(rows), block=(len(rows), 1, 1))
    if target is bfloat16:
        result = result.astype(np.float32)
    return result.tolist()
