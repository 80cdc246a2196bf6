"""Find accesses that lie between each other in memory, as those of the colours of pixels.

r, g, b = x[3 * i], x[3 * i + 1], x[3 * i + 2]      one load of 3 vectors, and shuffles
y[2 * i], y[2 * i + 1] = re, im                     shuffles, and one store of 2 vectors
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hal_core.dtypes import int32, int64
from hal_cpu.vectors.shapes import Shapes
from hal_cpu.vectors.tree import Item, walk
from hal_kernel.ir.uop import ATOMIC_OPS, UOp

_WIDEST = 8  # elements from one thread's to the next one's
_MOST_TERMS = 16
_ORDERED = ATOMIC_OPS | {"FENCE"}
_OTHER = {"LOAD": "STORE", "STORE": "LOAD"}
_Key = tuple[UOp, frozenset[tuple[object, int]]]


class Bundle(NamedTuple):
    """Loads, or stores, of one memory at indices that differ by constants."""

    members: tuple[UOp, ...]  # in order
    offsets: tuple[int, ...]  # of each
    stride: int  # elements from one thread's to the next one's

    def offset(self, member: UOp) -> int:
        return self.offsets[self.members.index(member)]


def bundles(root: Sequence[Item], shapes: Shapes) -> dict[UOp, Bundle]:
    """Return the bundles of a tree, by each member."""
    found: dict[UOp, Bundle] = {}
    for run in _runs(root):
        groups: dict[_Key, list[tuple[UOp, int]]] = {}
        keys = [_key(node) for node in run]
        for node, (key, offset) in zip(run, keys, strict=True):
            groups.setdefault(key, []).append((node, offset))
        for group in groups.values():
            members, offsets = zip(*group, strict=True)
            stride = shapes.stride(members[0].src[1])
            if stride is None or not 1 < stride <= _WIDEST or len(set(offsets)) != len(offsets):
                continue
            span = max(offsets) - min(offsets)
            if members[0].op == "LOAD":
                fits = len(offsets) > 1 and span < stride
            else:  # whole, and no other store between them
                first = run.index(members[0])
                in_a_row = run[first : first + len(members)] == list(members)
                fits = in_a_row and len(offsets) == stride and span == stride - 1
            if fits:
                found.update(dict.fromkeys(members, Bundle(members, offsets, stride)))
    return found


def _key(node: UOp) -> tuple[_Key, int]:
    """Return what the accesses of a bundle have in common, and how far this one lies apart."""
    terms, offset = _affine(node.src[1])
    offset += node.arg[0] if isinstance(node.arg, tuple) else 0
    return (node.src[0], frozenset(terms.items())), offset


def _runs(root: Sequence[Item]) -> Iterator[list[UOp]]:
    """Yield the loads that no store separates, and the stores that no load does, of each block."""
    run: dict[str, list[UOp]] = {"LOAD": [], "STORE": []}
    before: object = None
    for item, path in walk(root):
        block = path[-1] if path else None
        op = item.op if isinstance(item, UOp) else ""
        ends = ["LOAD", "STORE"] if block != before or not op or op in _ORDERED else []
        ends += [_OTHER[op]] if op in _OTHER else []
        for name in ends:
            yield run[name]
            run[name] = []
        if isinstance(item, UOp) and op in _OTHER and item.src[0].op != "LOCAL":
            run[op].append(item)
        before = block
    yield from run.values()


def _affine(index: UOp) -> tuple[dict[object, int], int]:
    """Return an index as terms with their factors, and a constant."""
    terms: dict[object, int] = {}
    offset, pending = 0, [(index, 1)]
    while pending:
        node, factor = pending.pop()
        inner = node.dtype in (int32, int64) and len(terms) + len(pending) < _MOST_TERMS
        times = [part.arg for part in node.src if part.op == "CONST"]
        if node.op == "CONST":
            offset += factor * int(node.arg)
        elif inner and node.op in ("ADD", "SUB"):
            pending += [
                (node.src[0], factor),
                (node.src[1], factor if node.op == "ADD" else -factor),
            ]
        elif inner and node.op == "MUL" and len(times) == 1:
            varying = next(part for part in node.src if part.op != "CONST")
            pending.append((varying, factor * int(times[0])))
        else:
            key: object = node.arg if node.op == "SPECIAL" else node
            terms[key] = terms.get(key, 0) + factor
    return {key: factor for key, factor in terms.items() if factor}, offset
