"""Make variables of a thread's own array, where every index is known.

    t = hal.local(hal.float32, 2)           t_0 = t_1 = 0.0
    t[0] = x[i]                     ->      t_0 = x[i]
    y[i] = t[0] + t[1]                      y[i] = t_0 + t_1

Compilers keep variables in registers, and vectorise loops over threads that have no array.
"""

from __future__ import annotations

from hal_core.dtypes import STORAGE_DTYPES
from hal_kernel.ir.uop import Kernel, UOp, replaced


def in_registers(kernel: Kernel) -> Kernel:
    """Return the kernel with variables instead of such arrays, or the same one if it has none.

    float16 and bfloat16 stay in memory, as variables have dtypes that kernels compute with.
    """
    used = _constant_places(kernel)
    if not used:
        return kernel
    made: list[UOp] = []
    new: dict[UOp, UOp] = {}
    elements: dict[tuple[UOp, int], UOp] = {}

    def add(op: str, like: UOp, src: tuple[UOp, ...], arg: object = None, *, typed: bool) -> UOp:
        made.append(UOp(op, like.dtype if typed else None, src, arg, like.line))
        return made[-1]

    for node in kernel.uops:
        if node in used:
            kind = {"f": float, "b": bool}.get(node.dtype.kind, int) if node.dtype else int
            zero = add("CONST", node, (), kind(0), typed=True)
            for place in sorted(used[node]):
                variable = add("VAR", node, (), f"{node.arg[0]}_{place}", typed=True)
                # What is read before it is written is undefined; a variable must be assigned.
                add("SET", node, (variable, zero), typed=False)
                elements[node, place] = variable
            continue
        renewed = replaced(node, new)
        if node.op in ("LOAD", "STORE") and node.src[0] in used:
            variable = elements[node.src[0], node.src[1].arg]
            if node.op == "LOAD":
                new[node] = add("GET", node, (variable,), typed=True)
            else:
                add("SET", node, (variable, renewed.src[2]), typed=False)
        else:
            new[node] = renewed
            made.append(renewed)
    return kernel._replace(uops=tuple(made))


def _constant_places(kernel: Kernel) -> dict[UOp, set[int]]:
    """Return the LOCALs of which each index is a constant, with these indices."""
    used: dict[UOp, set[int]] = {}
    for node in kernel.uops:
        if node.op == "LOCAL" and node.dtype not in STORAGE_DTYPES:
            used[node] = set()
        elif node.op in ("LOAD", "STORE") and node.src[0] in used:
            array, index = node.src[:2]
            if index.op == "CONST" and 0 <= index.arg < array.arg[1]:
                used[array].add(index.arg)
            else:
                del used[array]
    return used
