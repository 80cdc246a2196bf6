"""The kernel IR: typed nodes in execution order, the signature, and kernels as text."""

from hal_core.ir.signature import CONST_POINTER, POINTER, VALUE, Param, Signature, convert_value
from hal_core.ir.source import Source, block_shape
from hal_core.ir.uop import Kernel, UOp

__all__ = [
    "CONST_POINTER", "POINTER", "VALUE", "Kernel", "Param", "Signature", "Source", "UOp",
    "block_shape", "convert_value",
]  # fmt: skip
