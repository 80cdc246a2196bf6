"""The kernel IR: typed nodes in execution order."""

from hal_kernel.ir.uop import Kernel, UOp

__all__ = ["Kernel", "UOp"]
