"""Choose how many threads a gang has."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from hal_cpu.vectors.bundles import Bundle
from hal_cpu.vectors.functions import itemsize, operations
from hal_cpu.vectors.shapes import Shapes
from hal_cpu.vectors.tree import If, Loop
from hal_kernel.ir.expand import FUNCTIONS
from hal_kernel.ir.uop import LEAVES, PURE, UOp, dtype_of

_LEAST, _MOST = 8, 64
_LOCAL_NBYTES = 64 << 10  # of all lanes' own arrays
_LONG = 1000  # operations without a loop; of four vectors they take LLVM twice as long
_DEEPEST = 60  # nested blocks as a tree, in which this package recurses
_DEPTHS = {"IF": 1, "RANGE": 1, "LOOP": 1, "ENDIF": -1, "ENDRANGE": -1, "ENDLOOP": -1}
_WIDE_OPS = frozenset({"LOAD", "VAR", "FMA", *FUNCTIONS})  # whose results are kept in registers
_GATHER, _BRANCH = 10, 34  # what they cost more in vectors, and alone; in tenths of an operation
_WAITS = frozenset({"CAS", "ATOMICLOAD"})


class Registers(NamedTuple):
    """The vector registers of a processor."""

    number: int = 32
    nbytes: int = 64  # of each


WIDE = Registers()  # of AVX-512


def subgroup_of(registers: Registers) -> int:
    """Return the threads of a subgroup: as many float32 as a register has, and 8 at least."""
    return max(_LEAST, registers.nbytes // 4)


class Widths(NamedTuple):
    whole: int  # threads of a gang
    few: int  # of the gangs behind those of a row, and of those with a mask
    why: str = ""  # the threads run one by one, if they do


DEEP = Widths(1, 1, f"blocks are nested deeper than {_DEEPEST}")


def is_deep(uops: tuple[UOp, ...]) -> bool:
    """Tell whether a tree of the nodes may be too deep: what follows a jump's IF goes into it."""
    ops = [node.op for node in uops if node.op in _DEPTHS or node.op in LEAVES]
    depth = max(accumulate([_DEPTHS.get(op, 0) for op in ops]), default=0)
    return depth + sum([op in LEAVES for op in ops]) > _DEEPEST


def widths(
    uops: tuple[UOp, ...], shapes: Shapes, registers: Registers, row: int | None = None
) -> Widths:
    """Return the sizes of gangs, whose variables in loops fill half of the registers.

    `row`: the threads of each row, if they are known.
    """
    varying = shapes.varying
    why = _alone(uops, shapes) if varying else "nothing differs along x"
    if why:
        return Widths(1, 1, why)
    sizes = [
        itemsize(node.op, node.dtype)
        for node in uops
        if node in varying and node.op in _WIDE_OPS and node.dtype
    ]
    size = max(sizes, default=4)
    in_loops = {
        node.src[0]
        for node in uops
        if node.op == "SET"
        and node.src[0] in varying
        and any(isinstance(item, Loop) for item, _ in shapes.paths.get(node, ()))
    }
    lanes = registers.nbytes // size
    if shapes.divergent - shapes.staggered:
        times = 2
    elif in_loops:
        times = max(1, min(8, registers.number // 2 // len(in_loops)))
    else:
        long = [operations(node) for node in uops if node in varying and node.op in PURE]
        times = 4 if sum(long) < _LONG else 1
    whole = max(_LEAST, min(_MOST, lanes * times))
    arrays = [(node.arg[1], node.dtype) for node in uops if node.op == "LOCAL"]
    own = sum([count * dtype.itemsize for count, dtype in arrays if dtype])
    while row is not None and whole > row and whole > 1:
        whole //= 2
    while own * whole > _LOCAL_NBYTES and whole > 1:
        whole //= 2
    if whole < 4:
        return Widths(1, 1, "rows are short" if row and row < 4 else "local arrays are large")
    few = min(whole, max(registers.nbytes // size, _LEAST) if size > 1 else 16)
    return Widths(whole, few)


def fit(found: Widths, bundles: Iterable[Bundle], registers: Registers) -> Widths:
    """Return the sizes of gangs whose bundles fill at most half of the registers each."""
    whole, room = found.whole, registers.number * registers.nbytes // 2
    for bundle in bundles:
        size = dtype_of(bundle.members[0].src[0]).itemsize
        while whole * size * bundle.stride > room and whole > max(_LEAST, registers.nbytes // size):
            whole //= 2
    return Widths(whole, min(whole, found.few), found.why)


def _alone(uops: tuple[UOp, ...], shapes: Shapes) -> str:
    """Return why threads run one by one; "" if they do not.

    They do where they may wait for each other, and where they gather more than they compute in a
    loop that each leaves by itself. A branch by data costs a thread alone more than it costs lanes.
    """
    gathers = computed = 0
    for node in uops:
        if node not in shapes.varying:
            continue
        path = shapes.paths[node]
        if node.op in _WAITS and "LOOP" in [item.node.op for item, _ in path]:
            return "threads may wait for each other"
        if not shapes.divergent.isdisjoint([item.node for item, _ in path]):
            strays = node.op == "LOAD" and shapes.likely_stride(node.src[1]) is None
            gathers += strays and node.src[0].op != "LOCAL"
            computed += operations(node) if node.op in PURE else 0
    branches = sum(
        isinstance(item, If) and item.node.src[0] in shapes.varying
        for item in {path[-1][0] for path in shapes.paths.values() if path}
        if any(outer.node in shapes.divergent for outer, _ in shapes.paths[item.node])
    )
    if _GATHER * gathers > computed + _BRANCH * branches:
        return "it gathers more than it computes in a loop that threads leave one by one"
    return ""
