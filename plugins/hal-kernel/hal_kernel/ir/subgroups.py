"""Write what concerns subgroups for a language in which a subgroup has a known number of threads.

With a size of 32, thread 70 of a block is thread 6 of subgroup 2:

    subgroup_size()   ->   32
    subgroup_lane()   ->   number & 31      number: of the thread in its block, x fastest
    subgroup_idx()    ->   number >> 5

Where one thread is a subgroup, as on a CPU, a SHUFFLE gives the thread's own value.
"""

from __future__ import annotations

from hal_core.dtypes import int32
from hal_kernel.ir.uop import SUBGROUP, TOGETHER, Kernel, UOp


def of_size(kernel: Kernel, size: int) -> Kernel:
    """Return the kernel for subgroups of `size` threads, or the same kernel if it has none."""
    used = {node.arg[0] for node in kernel.uops if node.op == "SPECIAL"}.intersection(SUBGROUP)
    alone = size == 1 and not TOGETHER.isdisjoint([node.op for node in kernel.uops])
    if not used and not alone:
        return kernel
    first = next(n for n, node in enumerate(kernel.uops) if node.op != "PARAM")
    made, numbers = _numbers(size)
    uops, new = [*kernel.uops[:first], *made], dict[UOp, UOp]()
    for node in kernel.uops[first:]:
        src = tuple([new.get(source, source) for source in node.src])
        if node.op == "SPECIAL" and node.arg[0] in SUBGROUP:
            new[node] = numbers[node.arg[0]]
        elif node.op == "SHUFFLE" and alone:
            new[node] = src[0]
        elif node.op == "BALLOT" and alone:
            new[node] = UOp("CAST", node.dtype, src, None, node.line)
            uops.append(new[node])
        elif src != node.src:
            new[node] = UOp(node.op, node.dtype, src, node.arg, node.line)
            uops.append(new[node])
        else:
            uops.append(node)
    return kernel._replace(uops=tuple(uops))


def _numbers(size: int) -> tuple[list[UOp], dict[str, UOp]]:
    """Return nodes, and those of them that are the SPECIALs of subgroups."""
    made: list[UOp] = []

    def add(op: str, *src: UOp, arg: object = None) -> UOp:
        made.append(UOp(op, int32, src, arg))
        return made[-1]

    number = add("SPECIAL", arg=("thread_idx", 2))
    for axis in (1, 0):
        row = add("MUL", number, add("SPECIAL", arg=("block_dim", axis)))
        number = add("ADD", row, add("SPECIAL", arg=("thread_idx", axis)))
    last, bits = add("CONST", arg=size - 1), add("CONST", arg=size.bit_length() - 1)
    return made, {
        "subgroup_size": add("CONST", arg=size),
        "subgroup_lane": add("AND", number, last),
        "subgroup_idx": add("SHR", number, bits),
    }
