"""Find what compilers get wrong, or do slowly, in the loop over the threads of a row.

LLVM 22 and the clangs made of it load from wrong places for some indices of a vector; LLVM takes
minutes for some loops. Renderers write such nodes so that the compiler cannot see what misleads it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hal_kernel.ir.blocks.divisions import DIVISIONS
from hal_kernel.ir.blocks.rows import ALONG_X, Row, loads_parameter
from hal_kernel.ir.loops import iterations, unrolled
from hal_kernel.ir.uop import PURE, UOp

_MOST_ASKED = 10**4  # questions about one number, 0.1 s


def hidden_parts(row: Row, known: Collection[UOp]) -> list[UOp]:
    """Return the numbers of which indices are made and LLVM 22 draws wrong conclusions.

    These are divisions behind an IF, by what is no constant, and low bits in loops that compilers
    do not unroll. `known` has conditions that hold for all these threads.
    """
    tests = (n for n, node in enumerate(row.nodes) if node.op == "IF" and node.src[0] not in known)
    behind = row.nodes[next(tests, len(row.nodes)) :]
    wrong = {node for node in behind if node.op in DIVISIONS and node.src[1].op != "CONST"}
    loops = {node for node in row.nodes if node.op in ("RANGE", "LOOP")}
    if loops and not unrolled(tuple(row.nodes)) >= loops:
        wrong.update(node for node in row.nodes if node in row.differing and is_low_bits(node))
    return _in_indices(row, wrong)


def low_bits(uops: Sequence[UOp]) -> list[UOp]:
    """Return the low bits of which indices are made in a kernel with loops.

    In some loops clang 22 takes them for neighbours in any vector of them.
    """
    loops = {node for node in uops if node.op in ("RANGE", "LOOP")}
    if not loops or not any(is_low_bits(node) for node in uops):
        return []
    row = Row(list(uops), loops)
    return _in_indices(row, {node for node in row.differing if is_low_bits(node)})


def _in_indices(row: Row, nodes: Collection[UOp]) -> list[UOp]:
    """Return those of `nodes` of which indices are made."""
    if not nodes:
        return []
    pending = [part for node in row.nodes if node.op in ("LOAD", "STORE") for part in node.src[:2]]
    found: set[UOp] = set()
    while pending:
        node = pending.pop()
        if node in row.inside and node not in found and node.op != "LOAD":
            found.add(node)
            pending += node.src
            if node.op == "GET":
                sets = (part for part in row.nodes if part.op == "SET")
                pending += [part.src[1] for part in sets if part.src[0] is node.src[0]]
    return [node for node in row.nodes if node in nodes and node in found]


def is_low_bits(node: UOp) -> bool:
    """Tell whether a node is `k & 7`, `k % 8` or `uint8(k)`."""
    source, dtype = node.src[0] if node.src else node, node.dtype
    if dtype is None or not dtype.is_integer:
        return False
    if node.op == "CAST" and source.dtype is not None:
        return source.dtype.is_integer and dtype.itemsize < source.dtype.itemsize
    if node.op not in ("AND", "MOD", "TRUNCMOD") or node.src[1].op != "CONST":
        return False
    size = node.src[1].arg + (node.op == "AND")
    return bool(size > 0 and size & (size - 1) == 0)


def doubling(row: Row, known: Collection[UOp]) -> set[UOp]:
    """Return the short loops in which threads make a number they share of itself twice, `r * r`.

    LLVM 22 writes all iterations out, and then asks whether threads share the last number, for that
    both of which it was made, and both for each of these: 16 iterations took minutes. `known` has
    conditions that hold for all these threads.
    """
    short = unrolled(tuple(row.nodes))
    if not short:
        return short
    made: dict[UOp, int] = {}  # node -> how many numbers of the iteration before are in it
    around: list[UOp] = []
    slow: list[tuple[UOp, UOp]] = []  # a variable, and a loop that makes it of itself too often
    for node in row.nodes:
        if node.op == "IF":
            made[node] = made.get(node.src[0], 0) + 1  # it keeps a number, or sets another
        elif node.op == "GET":
            made[node] = 1
        elif node.op in PURE or node.op == "SET":
            made[node] = sum(made.get(source, 0) for source in node.src)
        if node.op in ("IF", "RANGE", "LOOP"):
            around.append(node)
        elif node.op in ("ENDIF", "ENDRANGE", "ENDLOOP"):
            around.pop()
        elif node.op == "SET":
            numbers = made[node]
            for block in reversed(around):
                if block.op == "IF":
                    numbers += made[block]
                elif block in short and numbers ** iterations(block) > _MOST_ASKED:
                    slow.append((node.src[0], block))
    differing, before = set[UOp](), -1
    while slow and len(differing) > before:
        before = len(differing)
        for node in row.nodes:
            if node.op in ("ENDIF", "ENDRANGE", "ENDLOOP"):
                around.pop()
                continue
            own = node.arg in ALONG_X or (node.op == "LOAD" and not loads_parameter(node))
            if own or not (differing.isdisjoint(node.src) and differing.isdisjoint(around)):
                differing.add(node)
                if node.op == "SET":
                    differing.add(node.src[0])
            if node.op in ("IF", "RANGE", "LOOP"):
                around.append(node)
                if node.op == "IF" and node.src[0] in known:
                    differing.discard(node)
    return {loop for variable, loop in slow if variable not in differing}
