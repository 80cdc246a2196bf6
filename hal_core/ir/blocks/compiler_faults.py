"""Find what compilers get wrong, or do slowly, in the loop over the threads of a row.

LLVM 22 and the clangs made of it load from wrong places for some indices of a vector; LLVM takes
minutes for some loops, and gathers or sorts what threads one by one load in less time. Renderers
write such nodes so that the compiler cannot see what misleads it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hal_core.dtypes import bool_, int32, int64
from hal_core.ir.blocks.divisions import DIVISIONS
from hal_core.ir.blocks.hoisting import PURE
from hal_core.ir.blocks.loops import iterations, unrolled
from hal_core.ir.blocks.rows import ALONG_X, MIRRORED, Row, loads_parameter
from hal_core.ir.uop import BITWISE, UOp

# Nodes of a region, and for each gather of bytes, up to which threads one by one are faster.
_MOST_SCALAR, _MOST_FOR_EACH = 100, 16
_MOST_APART = 8  # elements from a thread's to the next one's, up to which vectors sort them
_MOST_ASKED = 10**4  # questions about one number, 0.1 s
_SPREADS = frozenset({"MUL", "SHL"})


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


def compared_apart(row: Row) -> set[UOp]:
    """Return the comparisons of two elements that lie several apart from the next thread's.

    LLVM loads them as long vectors, which it sorts. It would compare those instead, and sort bits,
    which processors do one by one: `a[8 * i + k] != b[8 * i + k]` took five times as long. It does
    not for a choice of such elements.
    """
    along, far, loaded, found = set[UOp](), set[UOp](), set[UOp](), set[UOp]()
    if [node.op for node in row.nodes].count("LOAD") < 2 or not any(
        node.op in _SPREADS and "CONST" in (node.src[0].op, node.src[1].op)
        for node in row.nodes
        if node.dtype in (int32, int64)
    ):
        return found
    test: UOp | None = None  # of the last IF
    for node in row.nodes:
        op, src = node.op, node.src
        if node.arg in ALONG_X:
            along.add(node)
        elif op == "LOAD" and src[1] in far and loads_parameter(node):
            loaded.add(node)
        elif op in MIRRORED and loaded.issuperset(src):
            found.add(node)
        elif op == "IF":
            test = src[0]
        elif op in ("WHERE", "SET") and loaded.issuperset(src[1:]):
            found -= {src[0] if op == "WHERE" else test}
        elif op in PURE and not along.isdisjoint(src):
            along.add(node)
            spread = op in _SPREADS and "CONST" in (src[0].op, src[1].op)
            if spread or not far.isdisjoint(src):
                far.add(node)
        elif op in PURE and all(source.op == "CONST" or source in loaded for source in src):
            loaded.add(node)
    return found


def takes_bytes_by_data(row: Row, bundled: UOp | None = None) -> bool:
    """Tell whether threads access elements of one or two bytes where data say, and little else.

    No processor gathers such elements: compilers take vectors apart for them, which takes twice as
    long as threads one by one. Where threads compute floats, vectors gain more than that. Elements
    that lie further apart than vectors sort them, `x[12 * i + 4]`, and indices like `i ^ c` count
    as data: a compiler does not see how far neighbours are apart, unless `c` is a constant, and `i`
    the number by which threads are `bundled`. So do `x[(n - i) * w]` and `x[i * w * 3]`. For
    `x[i * w]` a compiler asks at run time whether `w` is 1, and else takes threads one by one.
    """
    nodes = len(row.nodes)
    if nodes > _MOST_SCALAR and nodes > _MOST_FOR_EACH * sum(n.op == "LOAD" for n in row.nodes):
        return False
    found, data, along = 0, set[UOp](), set[UOp]()
    falling, wide = set[UOp](), set[UOp]()  # numbers that fall along x, or grow by a parameter
    for node in row.nodes:
        op, src = node.op, node.src
        if node.dtype is not None and node.dtype.is_float:
            return False
        if op in ("LOAD", "STORE") and src[1] in data:
            found += src[0].dtype is not None and src[0].dtype.itemsize <= 2
        if op == "LOAD":  # of a loop's counter, as `t[k]`, all threads load the same
            loaded = src[1] in along or src[1] in data
        else:
            loaded = op == "GET" and node in row.differing
        moves = op in PURE or op == "RANGE"
        if (moves and not along.isdisjoint(src)) or node.arg in ALONG_X:
            along.add(node)
        times = next((part.arg for part in src if part.op == "CONST"), 0) if op == "MUL" else 0
        far = abs(times) > _MOST_APART
        if node in along:
            if not falling.isdisjoint(src) or (op == "SUB" and src[1] in along):
                falling.add(node)
            again = not wide.isdisjoint(src)
            if again or (
                op == "MUL" and any(n not in row.differing and n.op != "CONST" for n in src)
            ):
                wide.add(node)
                far = far or node in falling or (op == "MUL" and again)
        far = far and node in along and bundled is None
        bits = op in BITWISE and node in along and node.dtype is not bool_
        bits = bits and (bundled is None or (bundled in src and src[1].op != "CONST"))
        if loaded or far or bits or (moves and not data.isdisjoint(src)):
            data.add(node)
    return found > 0 and nodes <= max(_MOST_SCALAR, _MOST_FOR_EACH * found)
