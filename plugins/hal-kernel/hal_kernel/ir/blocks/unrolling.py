"""Write out the short loops of a region in which all threads of a row load the same elements.

    for k in range(3):                          total += w[0] * x[i]
        total += w[k] * x[i + k]        ->      total += w[1] * x[i + 1]
                                                total += w[2] * x[i + 2]

On the right each element of `w` is a load of its own, which can be moved ahead of the loop over the
threads. Compilers unroll the loop too, but do not move the loads: `y` may lie in the same memory.

Loops whose counters index a thread's own array are written out in the whole kernel. The elements of
the array are variables then, which compilers keep in vector registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from hal_kernel.ir.blocks.counting import with_ranges
from hal_kernel.ir.blocks.rows import Row, loads_parameter
from hal_kernel.ir.blocks.values import with_values
from hal_kernel.ir.fold.constants import Number, evaluate
from hal_kernel.ir.fold.dead_code import without_dead
from hal_kernel.ir.fold.registers import in_registers
from hal_kernel.ir.loops import over_integers, unrolled
from hal_kernel.ir.uop import PURE, Kernel, UOp

_ENDS = {"ENDRANGE", "ENDLOOP", "ENDIF"}
_MOST_NODES = 1000  # of a kernel whose loops are written out
_MOST_OPERATIONS = 500  # of a loop that indexes an array, in all iterations


def with_elements(kernel: Kernel) -> Kernel:
    """Return a kernel with variables instead of arrays that short loops index, by constants then.

    v = hal.local(hal.float32, 3)
    for d in range(3):                  v_0 = x[i]
        v[d] = x[d * n + i]     ->      v_1 = x[n + i]
                                        v_2 = x[2 * n + i]
    """
    if not any(node.op == "LOCAL" for node in kernel.uops):
        return kernel
    uops = with_ranges(with_values(kernel.uops))
    exits = {node.src[0] for node in uops if node.op in ("BREAK", "CONTINUE")}
    short = unrolled(uops, _MOST_OPERATIONS)
    used: dict[UOp, set[UOp]] = {}  # number -> the counters that it is made of, beside constants
    loops: dict[UOp, set[UOp] | None] = {}  # array -> the counters in its indices
    for node in uops:
        if node.op == "CONST":
            used[node] = set()
        elif node.op == "RANGE":
            bounds = [used.get(source) for source in node.src]
            around = set().union(*(found for found in bounds if found))
            if node not in exits and (node in short or (around and None not in bounds)):
                used[node] = {node} | around
        elif node.op in PURE and all(source in used for source in node.src):
            used[node] = set().union(*(used[source] for source in node.src))
        elif node.op in ("LOAD", "STORE") and node.src[0].op == "LOCAL":
            array, index = node.src[:2]
            found = loops.setdefault(array, set())
            known = used.get(index)
            loops[array] = None if found is None or known is None else found | known
    chosen = set().union(*(found for found in loops.values() if found))
    if not chosen:
        return kernel
    made = _Copy(uops, chosen, _MOST_NODES).made
    if len(made) > _MOST_NODES:
        return kernel
    written = in_registers(kernel._replace(uops=tuple(made)))
    # A loop that declares an array declares as many as it has iterations.
    if written.local_nbytes > kernel.local_nbytes:
        return kernel
    return written._replace(uops=without_dead(list(written.uops)))


def with_bits(uops: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the nodes of a kernel with longer loops written out that compute integers only.

    for k in range(32):                     r |= (v >> 0 & 1) << 31
        r |= (v >> k & 1) << 31 - k   ->    r |= (v >> 1 & 1) << 30
                                            ...
    """
    loops = over_integers(uops) if "RANGE" in [node.op for node in uops] else set()
    if loops:
        loops -= unrolled(uops)
    made = _Copy(uops, loops, _MOST_NODES).made if loops else []
    return with_values(tuple(made)) if 0 < len(made) <= _MOST_NODES else uops


def written_out(nodes: list[UOp]) -> list[UOp]:
    """Return the nodes of a region with such loops written out, and the loops inside of them."""
    loops = _gaining(nodes)
    return _Copy(nodes, loops).made if loops else nodes


def _gaining(nodes: Sequence[UOp]) -> set[UOp]:
    """Return the short loops in which a row shares the index of a load, in each iteration."""
    exits = {node.src[0] for node in nodes if node.op in ("BREAK", "CONTINUE")}
    counters = unrolled(tuple(nodes)) - exits
    if not counters:
        return set()
    differing = Row(list(nodes), counters).differing
    found: set[UOp] = set()
    around: list[UOp] = []
    for node in nodes:
        if node.op in _ENDS:
            around.pop()
        elif node.op in ("RANGE", "LOOP", "IF"):
            around.append(node)
        elif loads_parameter(node) and node.src[1] not in differing:
            loops = {block for block in around if block.op != "IF"}
            found |= loops if loops <= counters else set()
    return found


class _Copy:
    """A copy of nodes in which loops are written out; `made` has its nodes, and ends behind `most`.

    The bounds of a loop are made of constants and of the counters of such loops around it.
    """

    def __init__(self, nodes: Sequence[UOp], loops: set[UOp], most: float = inf) -> None:
        self.nodes, self.loops, self.most = nodes, loops, most
        self.ends = {node.src[0]: place for place, node in enumerate(nodes) if node.op in _ENDS}
        self.new: dict[UOp, UOp] = {}
        self.made: list[UOp] = []
        self._copy(0, len(nodes))

    def _copy(self, place: int, end: int) -> None:
        while place < end:
            node = self.nodes[place]
            place += 1
            if node not in self.loops:
                sources = tuple([self.new.get(source, source) for source in node.src])
                made = UOp(node.op, node.dtype, sources, node.arg, node.line)
                number = _number(made)
                if number is not None:
                    made = UOp("CONST", node.dtype, (), number, node.line)
                self.new[node] = self._keep(made)
                continue
            for count in range(*(self.new.get(source, source).arg for source in node.src)):
                if len(self.made) > self.most:
                    return
                self.new[node] = self._keep(UOp("CONST", node.dtype, (), count, node.line))
                self._copy(place, self.ends[node])
            place = self.ends[node] + 1

    def _keep(self, node: UOp) -> UOp:
        self.made.append(node)
        return node


def _number(node: UOp) -> Number | None:
    """Return the value of integer arithmetic on constants; None for other nodes."""
    if node.op not in PURE or not (node.dtype and node.dtype.is_integer):
        return None
    if any(s.op != "CONST" or not (s.dtype and s.dtype.is_integer) for s in node.src):
        return None
    return evaluate(node, [source.arg for source in node.src])
