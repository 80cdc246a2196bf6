"""Loops that the threads of a block run in step, turn by turn, so that threads become vector lanes.

Compilers vectorise the innermost loop. Where a thread's work is a loop, that is the wrong one: its
turns are a sum, or stride through memory, while neighbouring threads read neighbouring places. Such
a loop goes outside the loop over the threads, if all threads agree on its turns. Threads between
two barriers may run in any order, so that nothing changes but the speed.

Source: Jääskeläinen et al.: pocl, 2015, section 5.3 (horizontal inner-loop parallelization).
"""

from __future__ import annotations

from typing import NamedTuple

from hal_core.dtypes import DType, bool_, int32
from hal_core.ir.blocks.outside import PURE, Outside
from hal_core.ir.uop import LEAVES, Kernel, UOp

_UNROLLED = 16  # turns of a loop that compilers unroll, so that another is the innermost
_FEWEST_LANES = 4  # threads along x that are worth it
_GUARD = 64  # nodes of which it is computed; each region computes it again
_NEVER = LEAVES | {"LOOP", "ATOMIC", "CAS"}
_BEGINS = frozenset({"IF", "RANGE", "LOOP", "LOAD", "STORE", "SET", "ATOMIC", "CAS", "RETURN"})


class Lockstep(NamedTuple):
    """A kernel's nodes, of which these are to run outside; threads run only where all of `stay`."""

    uops: tuple[UOp, ...]
    outside: tuple[UOp, ...]
    stay: tuple[UOp, ...]


def in_step(kernel: Kernel) -> Lockstep | None:
    """The kernel with its loops made ready to go outside; None where none should."""
    if all(_is_short(node) for node in kernel.uops if node.op == "RANGE"):
        return None
    if kernel.block is not None and kernel.block[0] < _FEWEST_LANES:
        return None
    uops, stay = _without_guards(kernel.uops)
    found = _Search(uops).loops()
    if not found:
        return None
    made, raised = _rewritten(uops, found)
    return Lockstep(made, raised, stay)


def _without_guards(uops: tuple[UOp, ...]) -> tuple[tuple[UOp, ...], tuple[UOp, ...]]:
    """A kernel that is one IF becomes its body, for the threads of which the condition holds."""
    stay: list[UOp] = []
    while not any(node.op == "BARRIER" for node in uops):
        guard = next((node for node in uops[:_GUARD] if node.op in _BEGINS), None)
        last = uops[-1]
        if guard is None or guard.op != "IF" or last.op != "ENDIF" or last.src[0] is not guard:
            break
        if any(node.op == "ELSE" and node.src[0] is guard for node in uops):
            break
        stay.append(guard.src[0])
        uops = tuple(node for node in uops[:-1] if node is not guard)
    return uops, tuple(stay)


class _Search:
    """Looks at every loop whether it can go outside and gains by it.

    It can if all threads come to it and agree on its turns. It gains if in one turn neighbouring
    threads touch neighbouring elements, or one element: nothing is gathered.
    """

    def __init__(self, uops: tuple[UOp, ...]) -> None:
        self.outside = Outside(uops)
        self.varies: set[UOp] = set()  # between threads, or with what they do
        self.strides: dict[UOp, int] = {}  # of an integer, from a thread to the next along x
        self.open: list[UOp] = []  # blocks around this place that are not outside
        self.outermost: dict[UOp, UOp] = {}  # of each loop that may go outside
        self.stays: set[UOp] = set()  # outermost loops that may not, after all
        for node in uops:
            self._look(node)

    def loops(self) -> list[UOp]:
        return [loop for loop, first in self.outermost.items() if first not in self.stays]

    def _look(self, node: UOp) -> None:
        op = node.op
        if op in ("ENDRANGE", "ENDLOOP", "ENDIF"):
            if node.src[0] not in self.outside:
                self.open.pop()
        elif op == "RANGE":
            self._range(node)
        elif node not in self.outside and op in ("IF", "LOOP"):
            self.open.append(node)
        if self.open and op in _NEVER:
            self.stays.add(self.open[0])
        if self.open and op in ("LOAD", "STORE") and not self._is_vector(node):
            self.stays.add(self.open[0])
        self._value(node)

    def _is_vector(self, access: UOp) -> bool:
        """Whether neighbouring threads touch neighbouring elements, or all the same."""
        return self.strides.get(access.src[1]) in (0, 1)

    def _range(self, loop: UOp) -> None:
        if loop in self.outside:
            return
        start, stop, _ = loop.src
        agreed = stop not in self.varies and (start not in self.varies or first_of(loop))
        # What is in a loop that is counted anew stands in an IF of its own.
        plain = all(b in self.outermost and b.src[0] not in self.varies for b in self.open)
        if agreed and plain and not _is_short(loop):
            self.outermost[loop] = self.open[0] if self.open else loop
        elif self.open and not _is_short(loop):
            self.stays.add(self.open[0])
        self.open.append(loop)

    def _value(self, node: UOp) -> None:
        op, sources = node.op, node.src
        if op == "SPECIAL" and node.arg[0] in ("thread_idx", "global_idx"):
            self.varies.add(node)
            self.strides[node] = int(node.arg[1] == 0)
        elif op in ("LOAD", "ATOMIC", "CAS") or (op == "GET" and node.src[0] not in self.outside):
            self.varies.add(node)
        elif op == "RANGE" or op in PURE:
            if any(source in self.varies for source in sources):
                self.varies.add(node)
            stride = _stride(node, [self.strides.get(source) for source in sources])
            if stride is not None:
                self.strides[node] = stride
        else:
            self.strides[node] = 0


def _stride(node: UOp, sources: list[int | None]) -> int | None:
    if node.op == "RANGE":  # its start's, for a step is the same for all
        return sources[0] if sources[1] == 0 else None
    if not any(sources) and None not in sources:
        return 0
    first, second = (*sources, 0)[:2]
    if first is None or second is None:
        return None
    if node.op in ("ADD", "SUB"):
        return first + second if node.op == "ADD" else first - second
    return first if node.op == "CAST" and node.dtype is not None and node.dtype.is_integer else None


def _is_short(loop: UOp) -> bool:
    """Whether compilers unroll it, so that the loop over the threads is the innermost."""
    start, stop, step = loop.src
    if start.op != "CONST" or stop.op != "CONST":
        return False
    return len(range(start.arg, min(stop.arg, start.arg + 2**40), step.arg)) <= _UNROLLED


def first_of(loop: UOp) -> tuple[str, int] | None:
    """The kind of thread's number along x that a loop starts at, and a constant more than it."""
    start, _, step = loop.src
    if loop.dtype is not int32 or step.arg < 1:
        return None
    more = 0
    if start.op == "ADD" and start.src[1].op == "CONST" and 0 <= start.src[1].arg < 1 << 16:
        start, more = start.src[0], start.src[1].arg
    if start.op != "SPECIAL" or start.arg not in (("thread_idx", 0), ("global_idx", 0)):
        return None
    return None if more and start.arg[0] == "global_idx" else (start.arg[0], more)


class _Turned(NamedTuple):
    """A loop that started at the thread's number, counted from the first thread's instead."""

    loop: UOp
    inside: UOp  # the IF that leaves out threads beyond the end
    counter: UOp  # what the loop's counter was


def _rewritten(uops: tuple[UOp, ...], found: list[UOp]) -> tuple[tuple[UOp, ...], tuple[UOp, ...]]:
    """The nodes, and those which go outside."""
    made: list[UOp] = []
    new: dict[UOp, UOp] = {}
    turned: dict[UOp, _Turned] = {}
    raised: list[UOp] = []
    wanted = set(found)
    for node in uops:
        if node.op == "ENDRANGE" and node.src[0] in turned:
            loop, inside, _ = turned[node.src[0]]
            made += [UOp("ENDIF", None, (inside,)), UOp("ENDRANGE", None, (loop,))]
            continue
        sources = tuple(new.get(part, part) for part in node.src)
        first = first_of(node) if node in wanted else None
        if first is not None:
            turned[node] = _turn(node, sources[1:], first, made)
            new[node] = turned[node].counter
            raised += [turned[node].loop, turned[node].inside.src[0].src[1]]
            continue
        if sources != node.src:
            new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
        made.append(new.get(node, node))
        if node in wanted:
            raised.append(made[-1])
    return tuple(made), tuple(raised)


def _turn(loop: UOp, bounds: tuple[UOp, ...], first: tuple[str, int], made: list[UOp]) -> _Turned:
    """for k in range(t + c, n, s) becomes for j in range(c, n, s): if t < n - j: k = j + t."""

    def add(op: str, *src: UOp, dtype: DType | None = int32, arg: object = None) -> UOp:
        made.append(UOp(op, dtype, src, arg, loop.line))
        return made[-1]

    kind, more = first
    if kind == "thread_idx":
        start = add("CONST", arg=more)
    else:
        start = add("MUL", *(add("SPECIAL", arg=(name, 0)) for name in ("block_idx", "block_dim")))
    counted = add("RANGE", start, *bounds, arg=loop.arg)
    left = add("SUB", bounds[0], counted)  # not n < j + t, which could wrap
    thread = add("SPECIAL", arg=("thread_idx", 0))
    inside = add("IF", add("LT", thread, left, dtype=bool_), dtype=None)
    return _Turned(counted, inside, add("ADD", counted, thread))
