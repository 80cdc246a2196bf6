"""Find accesses that lie between each other in memory, as those of the colours of pixels.

r, g, b = x[3 * i], x[3 * i + 1], x[3 * i + 2]      one load of 3 vectors, and shuffles
y[2 * i], y[2 * i + 1] = re, im                     shuffles, and one store of 2 vectors
y[2 * i] = l[i]; y[2 * i + 1] = r[i]                the same, if `r` lies apart from `y`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hal_core.dtypes import int32, int64
from hal_cpu.vectors.shapes import Shapes
from hal_cpu.vectors.tree import Path
from hal_kernel.ir.uop import ATOMIC_OPS, UOp

_MOST_EXTENTS = 5  # of a line: each is tested against those that are stored
_WIDEST = 16  # elements from one thread's to the next one's
_MOST_SUMS = 64  # of an index: where sums share their parts, n of them have 2**n terms
_APART = ATOMIC_OPS | {"FENCE", "IF", "RANGE", "LOOP", "THREADS"}
_OTHER = {"LOAD": "STORE", "STORE": "LOAD"}
_Key = tuple[UOp, frozenset[tuple[object, int]]]


class Extent(NamedTuple):
    """The accesses of one memory that are at constants from an index."""

    access: UOp  # one of them
    own: int  # the constant of its index
    low: int  # the least and the greatest constant of all
    high: int
    is_stored: bool  # by one of them
    terms: object  # where those of two extents are the same, so may be their memories


class Bundle(NamedTuple):
    """Loads, or stores, of one memory at indices that differ by constants."""

    members: tuple[UOp, ...]  # in order
    offsets: tuple[int, ...]  # of each
    stride: int  # elements from one thread's to the next one's
    apart: tuple[Extent, ...] = ()  # what must lie apart, or be the same, for this order

    def offset(self, member: UOp) -> int:
        return self.offsets[self.members.index(member)]


def bundles(shapes: Shapes) -> dict[UOp, Bundle]:
    """Return the bundles of a tree, by each member."""
    found: dict[UOp, Bundle] = {}
    for line in _lines(shapes.paths):
        plain: dict[UOp, Bundle] = {}
        for run in _runs(line):
            plain.update(_of_run(run, shapes))
        extents = _extents(line) if _are_known(line, shapes.order) else ()
        mixed = _of_run(line, shapes, extents) if extents else {}
        found.update(mixed if len(mixed) > len(plain) else plain)
    return found


def _of_run(
    run: Sequence[UOp], shapes: Shapes, extents: tuple[Extent, ...] = ()
) -> dict[UOp, Bundle]:
    """Return the bundles of accesses that may change places, where `extents` allow it."""
    found: dict[UOp, Bundle] = {}
    groups: dict[tuple[str, _Key], list[tuple[UOp, int]]] = {}
    for node in run:
        key, offset = _key(node)
        groups.setdefault((node.op, key), []).append((node, offset))
    for (op, _), group in groups.items():
        members, offsets = zip(*group, strict=True)
        strides = {shapes.stride(member.src[1]) for member in members}  # not all, if terms cancel
        stride = strides.pop()
        if strides or stride is None or not 1 < stride <= _WIDEST or len(set(offsets)) < len(group):
            continue
        span = max(offsets) - min(offsets)
        if op == "LOAD":
            fits = len(offsets) > 1 and span < stride
        else:  # whole, and no other store between them
            first = run.index(members[0])
            in_a_row = bool(extents) or run[first : first + len(members)] == list(members)
            fits = in_a_row and len(offsets) == stride and span == stride - 1
        if fits:
            found.update(dict.fromkeys(members, Bundle(members, offsets, stride, extents)))
    return found


def _are_known(line: Sequence[UOp], order: Mapping[UOp, int]) -> bool:
    """Tell whether all that the indices of a line are sums of is computed ahead of it."""
    pending, seen = [node.src[1] for node in line], set[UOp]()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op in ("ADD", "SUB", "MUL"):
            pending += node.src
        elif node.op != "CONST" and order.get(node, -1) > order[line[0]]:
            return False
    return True


def _extents(line: Sequence[UOp]) -> tuple[Extent, ...]:
    """Return what must lie apart so that loads may go ahead of stores; nothing if they may not.

    Memories may also be the same where their terms are, if nothing is accessed that was stored
    before.
    """
    found: dict[_Key, Extent] = {}
    written = set[tuple[object, int]]()  # by keys, and by terms: two memories may be the same
    may_be_same = True
    for node in line:
        key, offset = _key(node)
        if (key, offset) in written:
            return ()
        may_be_same = may_be_same and (key[1], offset) not in written
        if node.op == "STORE":
            written |= {(key, offset), (key[1], offset)}
        one = found.get(key) or Extent(node, _affine(node.src[1])[1], offset, offset, False, key)
        found[key] = one._replace(
            low=min(one.low, offset), high=max(one.high, offset),
            is_stored=one.is_stored or node.op == "STORE",
            terms=(key[1], node.src[0].dtype) if may_be_same else key,
        )  # fmt: skip
    is_mixed = {node.op for node in line} == {"LOAD", "STORE"}
    return tuple(found.values()) if is_mixed and len(found) <= _MOST_EXTENTS else ()


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
        if node.op in _OTHER and node.src[0].op not in ("LOCAL", "TABLE"):
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
