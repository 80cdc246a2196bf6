"""Let the threads of a block run a loop in step, so that a compiler makes vectors of them.

    threads:                          for k in range(n):
        for k in range(n):      ->        threads:
            s += a[k] * b[k, t]               s[t] += a[k] * b[k, t]

A compiler makes vectors of the innermost loop only. The sum of one thread is none, as its order is
fixed; the loop over threads is one. A barrier at the end of the loop's body changes the order,
where all threads run the loop alike. Source: Jaaskelainen et al., pocl, 2015.
"""

from __future__ import annotations

from hal_core.errors import Unsupported
from hal_kernel.ir.blocks.fission import at_barriers
from hal_kernel.ir.uniformity import Uniformity
from hal_kernel.ir.uop import Kernel, UOp

_CONTROL = {"IF", "ELSE", "LOOP", "BREAK", "CONTINUE", "RETURN", "BARRIER"}
_FEW = 16  # iterations that compilers write out, and then make vectors of threads
_FEW_THREADS = 32  # of a row, whose loop they write out


def at_barriers_in_step(kernel: Kernel) -> tuple[UOp, ...]:
    """Return the nodes of `at_barriers`, with loops that the threads run in step where they fit.

    Raises: as `at_barriers`.
    """
    try:
        return at_barriers(in_step(kernel))
    except Unsupported:  # what lives from one iteration to the next is too large for a block
        return at_barriers(kernel)


def in_step(kernel: Kernel) -> Kernel:
    """Return a kernel that has barriers with one more in each long loop without branches.

    A loop over arrays of threads stays, as these would become arrays of the block.
    """
    few = kernel.block is not None and kernel.block[0] <= _FEW_THREADS
    if few or not any(node.op == "BARRIER" for node in kernel.uops):
        return kernel
    loops: set[UOp] = set()
    body: UOp | None = None  # the innermost open loop, while it has no branches
    for node in kernel.uops:
        if node.op == "RANGE":
            body = node
        elif node.op in _CONTROL or any(source.op == "LOCAL" for source in node.src):
            body = None
        elif node.op == "ENDRANGE" and node.src[0] is body:
            if not _is_short(body):
                loops.add(body)
            body = None
    if loops:
        known = Uniformity(kernel)
        loops -= known.divided | {loop for loop in loops if not known.varying.isdisjoint(loop.src)}
    made: list[UOp] = []
    for node in kernel.uops:
        if node.op == "ENDRANGE" and node.src[0] in loops:
            made.append(UOp("BARRIER", None, ()))
        made.append(node)
    return kernel._replace(uops=tuple(made))


def _is_short(loop: UOp) -> bool:
    ends = [source.arg for source in loop.src if source.op == "CONST"]
    return len(ends) == len(loop.src) and len(range(*ends)) <= _FEW
