"""Find accesses that lie between each other in memory, as those of the colours of pixels.

r, g, b = x[3 * i], x[3 * i + 1], x[3 * i + 2]      one load of 3 vectors, and shuffles
y[2 * i], y[2 * i + 1] = re, im                     shuffles, and one store of 2 vectors
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hal_core.dtypes import int32, int64
from hal_cpu.vectors.shapes import Shapes
from hal_cpu.vectors.tree import Path
from hal_kernel.ir.uop import ATOMIC_OPS, UOp

_WIDEST = 16  # elements from one thread's to the next one's
_MOST_SUMS = 64  # of an index: where sums share their parts, n of them have 2**n terms
_APART = ATOMIC_OPS | {"FENCE", "IF", "RANGE", "LOOP", "THREADS"}
_OTHER = {"LOAD": "STORE", "STORE": "LOAD"}
_Key = tuple[UOp, frozenset[tuple[object, int]]]


class Bundle(NamedTuple):
    """Loads, or stores, of one memory at indices that differ by constants."""

    members: tuple[UOp, ...]  # in order
    offsets: tuple[int, ...]  # of each
    stride: int  # elements from one thread's to the next one's
    apart: tuple[UOp, ...] = ()  # memories that must lie apart, or be the same, for this order

    def offset(self, member: UOp) -> int:
        return self.offsets[self.members.index(member)]


def bundles(shapes: Shapes) -> dict[UOp, Bundle]:
    """Return the bundles of a tree, by each member."""
    found: dict[UOp, Bundle] = {}
    for line in _lines(shapes.paths):
        for run in [line] if _may_mix(line, shapes) else _runs(line):
            found.update(_of_run(run, shapes))
    return found


def _of_run(run: Sequence[UOp], shapes: Shapes) -> dict[UOp, Bundle]:
    """Return the bundles of accesses that may be done in another order."""
    found: dict[UOp, Bundle] = {}
    groups: dict[tuple[str, _Key], list[tuple[UOp, int]]] = {}
    for node in run:
        key, offset = _key(node)
        groups.setdefault((node.op, key), []).append((node, offset))
    memories = tuple(dict.fromkeys(node.src[0] for node in run))
    mixed = memories if len({node.op for node in run}) > 1 else ()
    for (op, _), group in groups.items():
        members, offsets = zip(*group, strict=True)
        stride = shapes.stride(members[0].src[1])
        if stride is None or not 1 < stride <= _WIDEST or len(set(offsets)) != len(offsets):
            continue
        span = max(offsets) - min(offsets)
        if op == "LOAD":
            fits = len(offsets) > 1 and span < stride
        else:  # whole, and no other store between them
            first = run.index(members[0])
            in_a_row = bool(mixed) or run[first : first + len(members)] == list(members)
            fits = in_a_row and len(offsets) == stride and span == stride - 1
        if fits:
            found.update(dict.fromkeys(members, Bundle(members, offsets, stride, mixed)))
    return found if not mixed or len(found) == len(run) else {}


def _may_mix(line: Sequence[UOp], shapes: Shapes) -> bool:
    """Tell whether loads may go ahead of stores, where their memories lie apart or are the same.

    All are at one stride from the same index, and none loads what another has stored.
    """
    families = {_key(node)[0][1] for node in line}
    sizes = {node.src[0].dtype for node in line}
    if {node.op for node in line} != {"LOAD", "STORE"} or len(families) != 1 or len(sizes) != 1:
        return False
    written = set[int]()  # through whichever memory, as two may be the same
    for node in line:
        _, offset = _key(node)
        if offset in written:
            return False
        if node.op == "STORE":
            written.add(offset)
    return bool(_of_run(line, shapes))


def _key(node: UOp) -> tuple[_Key, int]:
    """Return what the accesses of a bundle have in common, and how far this one lies apart."""
    terms, offset = _affine(node.src[1])
    offset += node.arg[0] if isinstance(node.arg, tuple) else 0
    return (node.src[0], frozenset(terms.items())), offset


def _lines(paths: Mapping[UOp, Path]) -> Iterator[list[UOp]]:
    """Yield the loads and stores of each part of a block that nothing else separates."""
    line: list[UOp] = []
    before: object = None
    for node, path in paths.items():
        block = path[-1] if path else None
        if line and (block != before or node.op in _APART):
            yield line
            line = []
        if node.op in _OTHER and node.src[0].op != "LOCAL":
            line.append(node)
        before = block
    yield line


def _runs(line: Sequence[UOp]) -> Iterator[list[UOp]]:
    """Yield the loads that no store separates, and the stores that no load does."""
    run: dict[str, list[UOp]] = {"LOAD": [], "STORE": []}
    for node in line:
        yield run[_OTHER[node.op]]
        run[_OTHER[node.op]] = []
        run[node.op].append(node)
    yield from run.values()


def _affine(index: UOp) -> tuple[dict[object, int], int]:
    """Return an index as terms with their factors, and a constant."""
    terms: dict[object, int] = {}
    offset, sums, pending = 0, 0, [(index, 1)]
    while pending:
        node, factor = pending.pop()
        inner = node.dtype in (int32, int64) and sums < _MOST_SUMS
        times = [part.arg for part in node.src if part.op == "CONST"]
        if node.op == "CONST":
            offset += factor * int(node.arg)
        elif inner and node.op in ("ADD", "SUB"):
            sums += 1
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
