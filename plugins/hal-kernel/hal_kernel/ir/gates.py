"""Write gated LOADs, which read only where a condition holds, as branches around plain ones.

v = LOAD p i c w     ->     VAR v
                            IF c
                                SET v (LOAD p i)
                            ELSE
                                SET v w
                            ENDIF
                            GET v
"""

from __future__ import annotations

from hal_kernel.ir.uop import Kernel, UOp, is_gated, replaced


def without_gates(kernel: Kernel) -> Kernel:
    """Return an equivalent kernel without gated LOADs, or the same kernel if it has none."""
    if not any(is_gated(node) for node in kernel.uops if node.op == "LOAD"):
        return kernel
    uops: list[UOp] = []
    new: dict[UOp, UOp] = {}

    def add(op: str, like: UOp, src: tuple[UOp, ...], value: bool = False) -> UOp:
        uops.append(UOp(op, like.dtype if value else None, src, None, like.line))
        return uops[-1]

    for node in kernel.uops:
        made = replaced(node, new)
        if is_gated(node):
            memory, index, condition, otherwise = made.src
            variable = UOp("VAR", node.dtype, (), "loaded", node.line)
            uops.append(variable)
            block = add("IF", node, (condition,))
            add("SET", node, (variable, add("LOAD", node, (memory, index), value=True)))
            add("ELSE", node, (block,))
            add("SET", node, (variable, otherwise))
            add("ENDIF", node, (block,))
            new[node] = add("GET", node, (variable,), value=True)
        else:
            new[node] = made
            uops.append(made)
    return kernel._replace(uops=tuple(uops))
