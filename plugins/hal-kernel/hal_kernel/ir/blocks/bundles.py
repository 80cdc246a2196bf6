"""Find rows in which neighbours load one element: as `x[i // 8]`, which eight threads load.

    for i in range(n):                       for q in range(n // 8):
        y[i] = x[i // 8] >> i % 8     ->         y[8 * q] = x[q] >> 0
                                                 y[8 * q + 1] = x[q] >> 1
                                                 ...
                                                 y[8 * q + 7] = x[q] >> 7

On the right the loop is over bundles of threads, which become the lanes of vectors: elements of `x`
lie beside each other, and no thread divides. The threads of a row that fill no bundle, at its ends,
run one by one.
"""

from __future__ import annotations

from math import gcd, inf
from typing import NamedTuple

from hal_kernel.ir.blocks.quotients import INDICES, QUOTIENTS, REMAINDERS, divisor_size, uncast
from hal_kernel.ir.blocks.rows import ALONG_X, Row
from hal_kernel.ir.cost import operations_per_thread
from hal_kernel.ir.loops import unrolled
from hal_kernel.ir.uop import BITWISE, PURE, UOp

_MOST_THREADS = 9  # of a bundle
_MOST_NODES = 400  # of all threads of a bundle
_MOST_OPERATIONS = 1000  # of theirs, with all iterations of loops
_MOST_BYTES = 40  # of their elements, which vectors spread over as many registers
_MOST_STREAMED = 16  # and where a loop loads such as `x[i + k]`, which without bundles are vectors
# Low bits of an index cost little, so such bundles are made only for what is loaded by them.
_MASKED = (4, 8)
_DIVIDES = QUOTIENTS | REMAINDERS
_FOUND = _DIVIDES | BITWISE
_PLAIN = PURE | {
    "CONST", "SPECIAL", "VIEW", "VAR", "GET", "SET", "LOAD", "STORE", "IF", "ELSE", "ENDIF",
    "RANGE", "ENDRANGE",
}  # fmt: skip


class Bundle(NamedTuple):
    """Threads that a loop over a row runs together."""

    size: int
    number: UOp  # thread_idx(0) or global_idx(0), for the first of them a multiple of `size`
    quotients: list[UOp]  # of the number by `size`
    remainders: list[UOp]
    changed: list[UOp]  # the number with other low bits, as `i ^ 3`
    # Quotients and remainders of a multiple of the number, `(12 * i + 4) >> 3`: 12, 4 and 8.
    multiples: dict[UOp, tuple[int, int, int]]


def bundle(row: Row) -> Bundle | None:
    """Return the bundles of a row; None if nothing in it is divided by a small constant.

    Nodes of `changed` need no other value: compilers see what `8 * q + 5 ^ 3` is.
    """
    found: dict[tuple[object, int], Bundle] = {}
    for node in row.nodes:
        if node.op not in _FOUND or node.dtype not in INDICES or node not in row.differing:
            continue
        divisor = (divisor_size(node) if node.op in _DIVIDES else 0) or 0
        number, factor, added = _multiple(node.src[0]) if divisor else (uncast(node.src[0]), 1, 0)
        size = divisor // gcd(divisor, factor) if divisor else size_of_bits(node)
        if number.op == "SPECIAL" and number.arg in ALONG_X and 2 <= size <= _MOST_THREADS:
            made = found.setdefault((number.arg, size), Bundle(size, number, [], [], [], {}))
            if factor > 1:
                made.multiples[node] = factor, added, divisor
                continue
            nodes = made.remainders if node.op in REMAINDERS else made.quotients
            (nodes if divisor else made.changed).append(node)
    if not found or any(node.op not in _PLAIN for node in row.nodes):
        return None
    loops = {node for node in row.nodes if node.op == "RANGE"}
    operations = (operations_per_thread(row.nodes) or inf) if loops else 0
    if not unrolled(tuple(row.nodes)) >= loops:
        return None
    accesses = [node for node in row.nodes if node.op in ("LOAD", "STORE")]
    largest = max((node.src[0].dtype.itemsize for node in accesses if node.src[0].dtype), default=0)
    loads = [node.src[1] for node in accesses if node.op == "LOAD"]
    loaded, reached = (set(row.needed(nodes)) for nodes in (loads, [n.src[1] for n in accesses]))
    moving = Row(row.nodes, loops).differing if loops else set[UOp]()  # in one iteration
    looped: list[UOp] = []  # indices of loads in loops
    depth = 0
    for node in row.nodes:
        depth += (node.op == "RANGE") - (node.op == "ENDRANGE")
        if depth and node.op == "LOAD" and node.src[1] in moving:
            looped.append(node.src[1])
    for made in found.values():
        divided = {*made.quotients, *made.remainders, *made.multiples}
        gains = not loaded.isdisjoint(divided) or not reached.isdisjoint(made.changed)
        gains = gains or (made.size not in _MASKED and bool(divided))
        few = made.size * len(row.nodes) <= _MOST_NODES
        few = few and made.size * operations <= _MOST_OPERATIONS
        places = divided.union(made.changed)
        streams = any(places.isdisjoint(row.needed([index])) for index in looped)
        fits = made.size * largest <= _MOST_BYTES
        if streams:
            fits = made.size * max(largest, 2) <= _MOST_STREAMED
        if gains and few and fits:
            return made
    return None


def _multiple(node: UOp) -> tuple[UOp, int, int]:
    """Return a number, its factor, and what is added to it: of `3 * i + 1` i, 3 and 1."""
    whole, added = uncast(node), 0
    number = whole
    if number.op == "ADD" and number.src[1].op == "CONST" and number.src[1].arg >= 0:
        number, added = uncast(number.src[0]), int(number.src[1].arg)
    for one, other in (number.src, number.src[::-1]) if number.op == "MUL" else ():
        if other.op == "CONST" and other.arg > 1:
            return uncast(one), int(other.arg), added
    return whole, 1, 0


def size_of_bits(node: UOp) -> int:
    """Return the number of threads among which `i ^ 3`, `i | 1` or `i & ~1` changes places."""
    if node.op not in BITWISE or node.src[1].op != "CONST":
        return 0
    bits = ~node.src[1].arg if node.op == "AND" else node.src[1].arg
    return 1 << bits.bit_length() if bits > 0 else 0
