"""Replace what concerns subgroups and what a language lacks.

With a size of 32, thread 70 of a block is thread 6 of subgroup 2:

    subgroup_size()      ->   32
    subgroup_lane()      ->   number & 31      number: of the thread in its block, x fastest
    subgroup_idx()       ->   number >> 5
    subgroup_threads()   ->   min(32, threads of the block - 32 * subgroup_idx())

Where one thread is a subgroup, as in C, a SHUFFLE gives the thread's own value.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from hal_core.dtypes import int32
from hal_kernel.ir.uop import SUBGROUP, TOGETHER, Kernel, UOp, replaced


def of_size(kernel: Kernel, size: int | None, has_lanes: bool = False) -> Kernel:
    """Return the kernel for a language, or the same kernel if it uses no subgroups.

    `size`: the threads of a subgroup; None if the language alone knows. `has_lanes`: True for a
    language that lacks nothing but the size.
    """
    lacks = {"subgroup_threads"} if size is None else set(SUBGROUP)
    lacks = {"subgroup_size"} if has_lanes and size != 1 else lacks
    used = lacks.intersection(node.arg[0] for node in kernel.uops if node.op == "SPECIAL")
    alone = size == 1 and not TOGETHER.isdisjoint([node.op for node in kernel.uops])
    if not used and not alone:
        return kernel
    first = next(n for n, node in enumerate(kernel.uops) if node.op != "PARAM")
    made, numbers = _numbers(size, used)
    uops, new = [*kernel.uops[:first], *made], dict[UOp, UOp]()
    for node in kernel.uops[first:]:
        renewed = replaced(node, new)
        if node.op == "SPECIAL" and node.arg[0] in used:
            new[node] = numbers[node.arg[0]]
        elif node.op == "SHUFFLE" and alone:
            new[node] = renewed.src[0]
        elif node.op == "BALLOT" and alone:
            new[node] = UOp("CAST", node.dtype, renewed.src, None, node.line)
            uops.append(new[node])
        else:
            new[node] = renewed
            uops.append(renewed)
    return kernel._replace(uops=tuple(uops))


def _numbers(size: int | None, used: AbstractSet[str]) -> tuple[list[UOp], dict[str, UOp]]:
    """Return nodes, and those of them that replace the SPECIALs of subgroups."""
    made: list[UOp] = []

    def add(op: str, *src: UOp, arg: object = None) -> UOp:
        made.append(UOp(op, int32, src, arg))
        return made[-1]

    found: dict[str, UOp] = {}
    if size is None:
        whole, own = (add("SPECIAL", arg=(f"subgroup_{name}", 0)) for name in ("size", "idx"))
    else:
        whole = found["subgroup_size"] = add("CONST", arg=size)
        if used == {"subgroup_size"}:
            return made, found
        number = add("SPECIAL", arg=("thread_idx", 2))
        for axis in (1, 0):
            row = add("MUL", number, add("SPECIAL", arg=("block_dim", axis)))
            number = add("ADD", row, add("SPECIAL", arg=("thread_idx", axis)))
        found["subgroup_lane"] = add("AND", number, add("CONST", arg=size - 1))
        bits = add("CONST", arg=size.bit_length() - 1)
        own = found["subgroup_idx"] = add("SHR", number, bits)
    if "subgroup_threads" in used:
        x, y, z = (add("SPECIAL", arg=("block_dim", axis)) for axis in range(3))
        behind = add("SUB", add("MUL", add("MUL", x, y), z), add("MUL", own, whole))
        found["subgroup_threads"] = add("MIN", whole, behind)
    return made, found
