"""The `@hal.kernel` front end: a small typed subset of Python, read from the syntax tree."""

from hal_core.lang.builtins import (
    atan,
    atan2,
    atomic_add,
    atomic_compare_exchange,
    atomic_exchange,
    atomic_load,
    atomic_max,
    atomic_min,
    barrier,
    bitcast,
    block_dim,
    block_idx,
    ceil,
    cos,
    exp,
    exp2,
    floor,
    fma,
    fmod,
    global_idx,
    grid_dim,
    isnan,
    log,
    log2,
    pow,
    rsqrt,
    shared,
    sin,
    sqrt,
    tan,
    tanh,
    thread_idx,
    trunc,
    unroll,
)  # fmt: skip
from hal_core.lang.func import InlineFunction, func
from hal_core.lang.function import KernelFunction, kernel

__all__ = [
    "InlineFunction", "KernelFunction", "atan", "atan2", "atomic_add", "atomic_compare_exchange",
    "atomic_exchange", "atomic_load", "atomic_max", "atomic_min", "barrier", "bitcast", "block_dim",
    "block_idx", "ceil", "cos", "exp", "exp2", "floor", "fma", "fmod", "func", "global_idx",
    "grid_dim", "isnan", "kernel", "log", "log2", "pow", "rsqrt", "shared", "sin", "sqrt", "tan",
    "tanh", "thread_idx", "trunc", "unroll",
]  # fmt: skip
