"""Tell which loops compilers unroll, or make vectors of, and which sums they should not fuse."""

from __future__ import annotations

from collections.abc import Sequence

from hal_kernel.ir.uop import LEAVES, PURE, UOp

# A compiler unrolls a loop up to this number of iterations, and of operations in all iterations
# together. Then the loop around it is the innermost, which becomes vectors. A loop that stores is
# unrolled up to fewer: a compiler asks which of the elements may be the same, and gives up if there
# are many.
_UNROLLED, _UNROLLED_OPERATIONS, _UNROLLED_STORES = 16, 300, 8
_INTEGERS = 64  # iterations of a loop over the bits of a number
_FREE = frozenset({"CONST", "SPECIAL", "VAR", "GET", "SET", "ELSE", "ENDIF"})
_FORMULA = 30  # operations of a math function
FUNCTIONS = frozenset(
    {"EXP", "EXP2", "LOG", "LOG2", "SIN", "COS", "TAN", "TANH", "ATAN", "ATAN2", "POW", "FMOD"}
)
_KEEPS = LEAVES | {"SET", "LOOP", "ENDRANGE", "THREADS"}


def unrolled(uops: tuple[UOp, ...], most_operations: int = _UNROLLED_OPERATIONS) -> set[UOp]:
    """Return the loops that compilers unroll, so that the one over threads is the innermost."""
    found: set[UOp] = set()
    if "RANGE" not in [node.op for node in uops]:
        return found
    stay = _around_others(uops)
    operations, stores = [0], [False]
    for node in uops:
        if node.op == "RANGE":
            operations.append(0)
            stores.append(False)
        elif node.op == "ENDRANGE":
            loop, stored = node.src[0], stores.pop()
            times = iterations(loop)
            inside = operations.pop() * max(1, times)
            operations[-1] += inside
            stores[-1] |= stored
            most = _UNROLLED_STORES if stored else _UNROLLED
            if 0 <= times <= most and inside <= most_operations and loop not in stay:
                found.add(loop)
        else:
            operations[-1] += _FORMULA if node.op in FUNCTIONS else 1
            stores[-1] |= node.op == "STORE" and node.src[0].op != "LOCAL"
    return found


def _around_others(uops: Sequence[UOp]) -> set[UOp]:
    """Return the loops around a loop whose iterations are known at run time only."""
    found: set[UOp] = set()
    opened: list[UOp] = []
    known: set[UOp] = set()  # constants, and counters that are constants in an unrolled loop
    for node in uops:
        op = node.op
        if op in ("ENDRANGE", "ENDLOOP"):
            opened.pop()
        elif op == "CONST" or ((op in PURE or op == "RANGE") and known.issuperset(node.src)):
            known.add(node)
        elif op in ("RANGE", "LOOP"):
            found.update(opened)
        if op in ("RANGE", "LOOP"):
            opened.append(node)
    return found


def over_integers(uops: Sequence[UOp]) -> set[UOp]:
    """Return the loops of up to 64 iterations that compute nothing but integers from variables.

    They have at most 300 operations in all, where such on counters and constants do not count.
    """
    found: set[UOp] = set()
    loop: UOp | None = None  # such a loop as far as its nodes are read
    known, inside = set[UOp](), set[UOp]()
    operations = 0
    for node in uops:
        op = node.op
        if op == "RANGE":
            loop = node if 0 < iterations(node) <= _INTEGERS else None
            known, inside, operations = {node}, {node}, 0
        elif op == "ENDRANGE":
            if loop is not None and operations * iterations(loop) <= _UNROLLED_OPERATIONS:
                found.add(loop)
            loop = None
        elif loop is not None:
            inside.add(node)
            if op in PURE and all(n.op == "CONST" or n in known for n in node.src):
                known.add(node)
            elif op in PURE or op == "IF":
                operations += 1
            elif op not in _FREE and not (op == "LOAD" and node.src[1] not in inside):
                loop = None
            if node.dtype is not None and node.dtype.is_float:
                loop = None
    return found


def filling(uops: tuple[UOp, ...]) -> set[UOp]:
    """Return the loops that LLVM should not unroll.

    Those of 16 to 64 iterations that store and keep nothing for the next iteration: if threads run
    them one by one, iterations are the lanes of vectors, unless LLVM unrolls first. And those that
    a group of threads runs together: unrolled, the ones of few iterations took 1.4 to 1.8 times as
    long, because LLVM kept the variables of no group in registers, and the ones of many gained
    nothing and took up to 7 times as long to compile.
    """
    found: set[UOp] = set()
    loop: UOp | None = None  # such a loop as far as its nodes are read
    stores = grouped = False
    for node in uops:
        grouped = (grouped or node.op == "GROUPS") and node.op != "THREADS"
        if grouped and node.op == "RANGE" and iterations(node) > 0:
            found.add(node)
        if node.op == "RANGE":
            loop = node if _UNROLLED <= iterations(node) <= 4 * _UNROLLED else None
            stores = False
        elif node.op == "STORE":
            stores = True
        elif node.op in _KEEPS:
            if node.op == "ENDRANGE" and loop is node.src[0] and stores:
                found.add(loop)
            loop = None
    return found


def keeps_order(uops: Sequence[UOp], loop: UOp) -> bool:
    """Tell whether what a loop sets depends on another variable of the iteration before.

    So does the place of a least element: `if x[k] < least: least = x[k]; place = k`. Of other sums
    of integers compilers make vectors along the iterations.
    """
    tests: list[UOp] = []
    sets: dict[UOp, list[UOp]] = {}  # variable -> its values, and the tests around
    carried: set[UOp] = set()  # variables that an iteration reads before it sets them
    for node in uops[uops.index(loop) + 1 :]:
        if node.op == "SET":
            sets.setdefault(node.src[0], []).extend((node.src[1], *tests))
        elif node.op == "GET" and node.src[0] not in sets:
            carried.add(node.src[0])
        elif node.op == "IF":
            tests.append(node.src[0])
        elif node.op in ("ENDIF", "ENDRANGE", "ENDLOOP"):
            if node.src[0] is loop:
                break
            del tests[len(tests) - (node.op == "ENDIF") :]
    for variable, values in sets.items():
        pending, seen = list(values), set[UOp]()
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            if node.op != "GET":
                pending += node.src
            elif node.src[0] not in carried:
                pending += sets.get(node.src[0], ())
            elif node.src[0] in sets and node.src[0] is not variable:
                return True
    return False


def serial_sums(uops: tuple[UOp, ...]) -> set[UOp]:
    """Return the sums of floats in a loop that a thread runs by itself, if it has one or two.

    Each waits for the one before, and for a fused multiply-add twice as long as for an addition.
    """
    # A thread sums alone what others sum together.
    if any(node.op in ("COUNT", "ROW_GROUPS") for node in uops):
        return set()
    found: set[UOp] = set()
    short = unrolled(uops)
    loops: list[list[UOp] | None] = []  # the sums of each loop in a region that is open
    for node in uops:
        if node.op in ("RANGE", "LOOP"):
            loops.append(None if node in short else [])
        elif node.op in ("ENDRANGE", "ENDLOOP"):
            sums = loops.pop() if loops else None
            found.update(sums if sums and len(sums) <= 2 else ())
        elif node.op == "THREADS":
            loops.clear()
        elif node.op == "SET" and loops and loops[-1] is not None:
            total, variable = node.src[1], node.src[0]
            adds = total.op in ("ADD", "SUB") and total.dtype is not None and total.dtype.is_float
            if adds and any(part.op == "GET" and part.src[0] is variable for part in total.src):
                loops[-1].append(total)
    return found


def iterations(loop: UOp) -> int:
    """Return how many iterations a loop has; -1 if that is known only at run time."""
    start, stop, step = loop.src
    if start.op != "CONST" or stop.op != "CONST":
        return -1
    # len() takes no range of 2**63 numbers or more.
    return len(range(start.arg, min(stop.arg, start.arg + 2**40), step.arg))
