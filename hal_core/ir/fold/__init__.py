"""Works out what a kernel's text already says, so that texts are short and no compiler has to.

Constants are computed as the language means them, branches with a known condition and loops
without turns go, and so does what nothing depends on. What a launch can see stays: every access
to memory, every barrier, every loop that may not end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from hal_core.ir.fold.constants import Number, constant, evaluate, spreads_nan
from hal_core.ir.fold.dead import without_dead
from hal_core.ir.fold.identities import simpler
from hal_core.ir.uop import LEAVES, STRUCTURE, Kernel, UOp

_NOT_COMPUTED = STRUCTURE | {"SET", "ASSERT"}
_ROUNDS = 4  # a second is rare; to need more, a kernel must be made for it

# What becomes of an IF or a loop.
_KEPT, _THEN, _ELSE, _GONE = "kept", "its own side is taken", "its other side is taken", "gone"


def fold(kernel: Kernel) -> Kernel:
    """A kernel of the same meaning. Takes a verified one and gives one that verifies.

    The same kernel gives the same nodes, and a folded one its own.
    """
    for _ in range(_ROUNDS):
        walk = _Walk(kernel)
        for node in kernel.uops:
            walk.step(node)
        kernel = kernel._replace(uops=without_dead(walk.out))
        if not walk.again:
            break
    return kernel


class _Block:
    """An IF, RANGE or LOOP that is open."""

    def __init__(self, node: UOp, way: str, unreached: bool) -> None:
        self.node, self.way, self.unreached = node, way, unreached
        self.place = 0  # of the opening node in the output
        self.before: dict[UOp, Number | None] = {}  # of each variable set in here since
        self.then: dict[UOp, Number | None] | None = None  # what those are at the ELSE
        self.then_left = False  # no thread comes to the end of the IF's own side
        self.breaks = self.continues = 0


class _Walk:
    """From the first node to the last, once."""

    def __init__(self, kernel: Kernel) -> None:
        self.shape = kernel.block
        self.out: list[UOp] = []
        self.new: dict[UOp, UOp] = {}  # what stands for each old node
        self.known: dict[UOp, Number] = {}  # variable -> its value here
        self.blocks: list[_Block] = []
        self.loops: dict[UOp, _Block] = {}
        self.left = False  # no thread gets here
        self.again = False  # less is set in a loop than was taken for granted
        self.set_in = _set_in_loops(kernel)

    def step(self, node: UOp) -> None:
        op = node.op
        if op not in _NOT_COMPUTED and not self.left:
            self._compute(node)
        elif op in ("IF", "RANGE", "LOOP"):
            self._open(node)
        elif op == "ELSE":
            self._else(node)
        elif op in ("ENDIF", "ENDRANGE", "ENDLOOP"):
            self._close(node)
        elif self.left:
            if op == "SET" and any(b.way == _KEPT and b.node.op != "IF" for b in self.blocks):
                self.again = True
        elif op in LEAVES:
            self._leave(node)
        elif op == "SET":
            self._assign(self.new[node.src[0]], _value(self.new[node.src[1]]))
            self._emit(node)
        elif not _value(self.new[node.src[0]]):  # an ASSERT
            self._compute(node)

    # -- values

    def _compute(self, node: UOp) -> None:
        sources = [self.new[source] for source in node.src]
        found = self._found(node, sources)
        if found is None:
            self._emit_of(node, sources)
        elif isinstance(found, UOp):
            self.new[node] = found
        else:
            self._put(node, UOp("CONST", node.dtype, (), found, node.line))

    def _found(self, node: UOp, sources: list[UOp]) -> Number | UOp | None:
        """What the node is, if that is known: a constant, or one of its sources."""
        if node.op == "GET":
            return self.known.get(sources[0])
        if node.op == "SPECIAL":
            return self._special(node)
        if not sources:
            return None
        values = [constant(s) if s.op == "CONST" else None for s in sources]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            value = evaluate(node, known)
            if value is not None:
                return value
        return math.nan if spreads_nan(node, sources, values) else simpler(node, sources, values)

    def _special(self, node: UOp) -> Number | None:
        kind, axis = node.arg
        if self.shape is None or self.shape[axis] >= 2**31:
            return None
        if kind == "block_dim":
            return self.shape[axis]
        return 0 if kind == "thread_idx" and self.shape[axis] == 1 else None

    def _emit(self, node: UOp) -> None:
        self._emit_of(node, [self.new[source] for source in node.src])

    def _emit_of(self, node: UOp, sources: list[UOp]) -> None:
        src = tuple(sources)
        same = src == node.src  # nodes are compared by identity
        self._put(node, node if same else UOp(node.op, node.dtype, src, node.arg, node.line))

    def _put(self, node: UOp, new: UOp) -> None:
        self.new[node] = new
        self.out.append(new)

    # -- variables

    def _assign(self, variable: UOp, value: Number | None) -> None:
        if self.blocks:
            self.blocks[-1].before.setdefault(variable, self.known.get(variable))
        self._know(variable, value)

    def _know(self, variable: UOp, value: Number | None) -> None:
        if value is None:
            self.known.pop(variable, None)
        else:
            self.known[variable] = value

    def _forget(self, loop: UOp) -> None:
        """A turn begins with what any turn before it has set."""
        for variable in self.set_in[loop]:
            if variable in self.new:  # else it is declared inside
                self._assign(self.new[variable], None)

    # -- blocks

    def _open(self, node: UOp) -> None:
        block = _Block(node, _GONE if self.left else self._way(node), self.left)
        if block.way == _KEPT:
            if node.op != "IF":
                self._forget(node)
                self.loops[node] = block
            block.place = len(self.out)
            self._emit(node)
        self.left = block.way in (_ELSE, _GONE)
        self.blocks.append(block)

    def _way(self, node: UOp) -> str:
        values = [_value(self.new[source]) for source in node.src]
        if node.op == "LOOP" or None in values:
            return _KEPT
        if node.op == "IF":
            return _THEN if values[0] else _ELSE
        start, stop, step = (int(value) for value in values if value is not None)
        return _KEPT if (start < stop if step > 0 else start > stop) else _GONE

    def _else(self, node: UOp) -> None:
        block = self.blocks[-1]
        block.then = {variable: self.known.get(variable) for variable in block.before}
        block.then_left = self.left
        if block.way == _KEPT:
            for variable, value in block.before.items():
                self._know(variable, value)
            self._emit(node)
        self.left = block.way in (_THEN, _GONE)

    def _close(self, node: UOp) -> None:
        block = self.blocks.pop()
        if block.way == _GONE:
            self.left = block.unreached
            return
        if self.blocks:  # what was set in here was set in the block around
            outer = self.blocks[-1].before
            for variable, value in block.before.items():
                outer.setdefault(variable, value)
        if node.op != "ENDIF":
            self._close_loop(block, node)
        elif block.way == _KEPT:
            self._join(block)
            self._emit(node)
        elif block.way == _THEN:
            self.left = self.left if block.then is None else block.then_left
        else:
            self.left = self.left and block.then is not None

    def _join(self, block: _Block) -> None:
        """What is known behind an IF: what both sides that come here agree on."""
        no_else = block.then is None
        then: Mapping[UOp, Number | None] = self.known if block.then is None else block.then
        then_left = self.left if no_else else block.then_left
        other_left = not no_else and self.left
        for variable, before in block.before.items():
            first = then.get(variable) if no_else else then.get(variable, before)
            second = before if no_else else self.known.get(variable)
            if then_left or (not other_left and repr(first) == repr(second)):
                self._know(variable, second)
            else:
                self._know(variable, first if other_left else None)
        self.left = then_left and other_left

    def _close_loop(self, block: _Block, node: UOp) -> None:
        if node.op == "ENDLOOP" and self._ends_in_its_only_break(block):
            self.out.pop()
            del self.out[block.place]
            self.left = False
            self.again = self.again or bool(self.set_in[block.node])
            return
        self._forget(block.node)
        self._emit(node)
        self.left = node.op == "ENDLOOP" and not block.breaks

    def _ends_in_its_only_break(self, block: _Block) -> bool:
        """Whether there is no second turn: the body may stand alone."""
        last = self.out[-1]
        alone = block.breaks == 1 and not block.continues
        return alone and last.op == "BREAK" and last.src[0] is self.new[block.node]

    def _leave(self, node: UOp) -> None:
        if node.op == "BREAK":
            self.loops[node.src[0]].breaks += 1
        elif node.op == "CONTINUE":
            self.loops[node.src[0]].continues += 1
        self._emit(node)
        self.left = True


def _value(node: UOp) -> Number | None:
    return constant(node) if node.op == "CONST" else None


def _set_in_loops(kernel: Kernel) -> dict[UOp, dict[UOp, None]]:
    """The variables set in each RANGE and LOOP, those inside it included, in order."""
    found: dict[UOp, dict[UOp, None]] = {}
    open_: list[UOp] = []
    for node in kernel.uops:
        if node.op in ("RANGE", "LOOP"):
            found[node] = {}
            open_.append(node)
        elif node.op in ("ENDRANGE", "ENDLOOP"):
            inner = found[open_.pop()]
            if open_:
                found[open_[-1]].update(inner)
        elif node.op == "SET" and open_:
            found[open_[-1]][node.src[0]] = None
    return found
