"""Add to each test of a thread's index against a bound a test of its whole block.

    if i < n:                                    if last < n or i < n:
        y[i] = a * x[i] + y[i]         ->            y[i] = a * x[i] + y[i]

`last` is the largest index in the block, so every thread decides as before. A compiler that runs
the threads of a block as a loop takes the first test out of the loop, and a block that lies wholly
inside runs without the second one: its vectors need no masks. A test that ends the thread gets its
counterpart: `if i >= n: return` becomes `if last >= n and i >= n: return`.

Conjunctions stay as they are: what they gained was lost in the blocks at the rim.
"""

from __future__ import annotations

from hal_core.dtypes import bool_, int32
from hal_core.ir.blocks.uniformity import Uniformity
from hal_core.ir.uop import Kernel, UOp

_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}


def add_group_tests(kernel: Kernel) -> Kernel:
    """Return the kernel with a test of the block in each IF that compares `global_idx` so."""
    varying = Uniformity(kernel).varying
    uops: list[UOp] = []
    replaced: dict[UOp, UOp] = {}
    for node, following in zip(kernel.uops, (*kernel.uops[1:], None), strict=False):
        if node.op == "IF":
            ends = following is not None and following.op == "RETURN"
            test = node.src[0]
            index = _compared_index(test, ("GE", "GT") if ends else ("LT", "LE"), varying)
            if index is not None:
                block = UOp("SPECIAL", int32, (), ("block_idx", index.arg[1]))
                size = UOp("SPECIAL", int32, (), ("block_dim", index.arg[1]))
                one = UOp("CONST", int32, (), 1)
                first = UOp("MUL", int32, (block, size))
                less = UOp("SUB", int32, (size, one))
                last = UOp("ADD", int32, (first, less))
                sources = tuple(last if part is index else part for part in test.src)
                of_block = UOp(test.op, bool_, sources)
                both = UOp("AND" if ends else "OR", bool_, (of_block, test))
                uops += [block, size, one, first, less, last, of_block, both]
                made = replaced[node] = UOp("IF", None, (both,), None, node.line)
                node = made
        elif node.op in ("ELSE", "ENDIF") and node.src[0] in replaced:
            node = UOp(node.op, None, (replaced[node.src[0]],), None, node.line)
        uops.append(node)
    return kernel._replace(uops=tuple(uops))


def _compared_index(test: UOp, ops: tuple[str, str], varying: set[int]) -> UOp | None:
    """Return the global_idx that a test by one of `ops` compares to a bound of the whole block."""
    if test.op not in _MIRRORED:
        return None
    op, (index, bound) = test.op, test.src
    if id(bound) in varying:  # `n > i`
        op, index, bound = _MIRRORED[op], bound, index
    of_thread = index.op == "SPECIAL" and index.arg[0] == "global_idx"
    return index if op in ops and of_thread and id(bound) not in varying else None
