"""Keep the arrays of all threads of a block in one, for machines that run the threads in a loop.

    t = hal.local(hal.float32, 4)           t: SHARED, 4 elements for each thread of the block
    t[k] = x[i]                     ->      t[k * threads + thread] = x[i]

Threads that are neighbours then access elements that are neighbours, so that the loop over them
becomes vectors, and the arrays live across barriers.
"""

from __future__ import annotations

from hal_core.dtypes import DType, int32, int64
from hal_core.errors import Unsupported
from hal_kernel.ir.uop import Kernel, UOp, replaced

LIMIT = 256 << 10  # bytes per block: often half of a core's second-level cache


def with_common_arrays(kernel: Kernel, threads: int) -> Kernel:
    """Return a kernel with SHAREDs instead of LOCALs, for blocks of up to so many threads.

    Raises: Unsupported when the arrays of a block are too large.
    """
    arrays = [node for node in kernel.uops if node.op == "LOCAL"]
    if not arrays:
        return kernel
    if kernel.local_nbytes * threads > LIMIT:
        names = ", ".join(dict.fromkeys(str(node.arg[0]) for node in arrays))
        raise Unsupported(
            f"render kernel {kernel.name!r}",
            f"the local arrays {names} take {kernel.local_nbytes} bytes of each thread, in a block "
            f"of {threads} threads",
            got=kernel.local_nbytes * threads,
            limit=LIMIT,
            fix="Fix a smaller block (@hal.kernel(block=...)); or index by hal.unroll, as elements "
            "whose indices are constants are no array.",
        )
    common = {
        node: UOp("SHARED", node.dtype, (), (node.arg[0], node.arg[1] * threads), node.line)
        for node in arrays
    }
    made: list[UOp] = [*common.values()]
    lanes = _Lanes(kernel, made)
    new: dict[UOp, UOp] = dict(common)
    for node in kernel.uops:
        if node in common:
            continue
        renewed = replaced(node, new)
        if node.op in ("LOAD", "STORE") and node.src[0] in common:
            memory, index, *rest = renewed.src
            sources = (memory, lanes.index(index, node.line), *rest)
            renewed = UOp(node.op, node.dtype, sources, node.arg, node.line)
        new[node] = renewed
        made.append(renewed)
    return kernel._replace(uops=tuple(made))


class _Lanes:
    """The number of a thread in its block, and how many threads the block has."""

    def __init__(self, kernel: Kernel, made: list[UOp]) -> None:
        self.made = made
        block = kernel.block
        used = (0, 1, 2) if block is None else [axis for axis in (0, 1, 2) if block[axis] > 1]
        self.count = self._add("CONST", arg=1)
        self.number = self._add("CONST", arg=0)
        # x runs fastest: x + size_x * (y + size_y * z).
        for axis in used:
            thread = self._add("SPECIAL", arg=("thread_idx", axis))
            first = axis == used[0]
            if not first:
                thread = self._add("ADD", self._add("MUL", self.count, thread), self.number)
            self.number = thread
            size = self._add("SPECIAL", arg=("block_dim", axis))
            if block is not None:
                size = self._add("CONST", arg=block[axis])
            self.count = size if first else self._add("MUL", self.count, size)

    def index(self, index: UOp, line: int) -> UOp:
        """Return the index of this thread's element of a common array."""
        if index.dtype not in (int32, int64):
            index = self._add("CAST", index, dtype=int64)
        parts = [index, self.count, self.number]
        if index.dtype is int64:
            parts[1:] = [self._add("CAST", part, dtype=int64) for part in parts[1:]]
        scaled = self._add("MUL", *parts[:2], dtype=index.dtype, line=line)
        return self._add("ADD", scaled, parts[2], dtype=index.dtype, line=line)

    def _add(
        self, op: str, *src: UOp, dtype: DType | None = int32, arg: object = None, line: int = 0
    ) -> UOp:
        self.made.append(UOp(op, dtype, src, arg, line))
        return self.made[-1]
