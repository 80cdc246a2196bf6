"""Fold a kernel: compute constants, drop branches that are never taken and unused nodes.

    n = 4                       |
    if n > 2:                   | for k in range(8):
        for k in range(n * 2):  |     y[k] = 0.0
            y[k] = 0.0          |

Constants have the values that the kernel language defines. Everything with a visible effect stays:
every access to memory, every barrier, every loop that may not end. An ASSERT has none, as the
interpreter alone tests it, and goes. The rendered text becomes shorter, and depends less on what a
compiler folds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from hal_core.dtypes import int32, int64, uint32, uint64
from hal_kernel.ir.fold.constants import Number, constant, evaluate, spreads_nan
from hal_kernel.ir.fold.dead_code import without_dead
from hal_kernel.ir.fold.identities import merged_extremes, simpler
from hal_kernel.ir.fold.registers import in_registers
from hal_kernel.ir.uop import LEAVES, STRUCTURE, Kernel, UOp

_NOT_COMPUTED = STRUCTURE | {"SET", "ASSERT", "PRINT"}
_GIVEN = {"CONST", "PARAM", "VAR", "SHARED", "LOCAL", "TABLE"}  # nodes that have no sources
_WIDE = {int64, uint32, uint64}  # which hold each int32 that is not negative
_INDICES = _WIDE | {int32}
_ROUNDS = 4  # a second round is rare, and only a kernel made for it needs more

_ONE_BREAK = {"BREAK": 1, "CONTINUE": 0}

# The fate of an IF or a loop: it stays, one of its sides replaces it, or it is dropped.
_KEPT, _THEN, _ELSE, _DROPPED = "kept", "replaced by its body", "replaced by its else", "dropped"


def fold(kernel: Kernel) -> Kernel:
    """Return an equivalent kernel. Takes a verified kernel, and the result passes `verify` too.

    Equal kernels give equal results, and a kernel that is folded already keeps its nodes.
    """
    for _ in range(_ROUNDS):
        walk = _Walk(kernel)
        for node in kernel.uops:
            walk.step(node)
        kernel = kernel._replace(uops=without_dead(walk.out))
        if not walk.again:
            break
    found = in_registers(kernel)
    return kernel if found is kernel else fold(found)


class _Block:
    """An IF, RANGE or LOOP that is open."""

    def __init__(self, node: UOp, fate: str, unreached: bool) -> None:
        self.node, self.fate, self.unreached = node, fate, unreached
        self.place = 0  # index of the opening node in the output
        # Of the variables that are set in this block: their values before it, and at its ELSE.
        self.before: dict[UOp, Number | None] = {}
        self.then: dict[UOp, Number | None] | None = None
        self.then_left = False  # no thread reaches the end of the IF's first side
        self.exits = {"BREAK": 0, "CONTINUE": 0}  # how many nodes leave this loop


class _Walk:
    """One pass from the first node to the last."""

    def __init__(self, kernel: Kernel) -> None:
        self.shape = kernel.block
        self.out: list[UOp] = []
        self.new: dict[UOp, UOp] = {}  # old node -> the node that replaces it
        self.known: dict[UOp, Number] = {}  # variable -> its value at this place
        self.blocks: list[_Block] = []
        self.loops: dict[UOp, _Block] = {}
        self.left = False  # no thread reaches the current node
        # True once a SET in a loop was dropped: `set_in` counted it, so another pass may find more.
        self.again = False
        self.set_in = _set_in_loops(kernel)

    def step(self, node: UOp) -> None:
        op = node.op
        if op not in _NOT_COMPUTED and not self.left:
            self._compute(node)
        elif op in _BLOCK_STEPS:
            _BLOCK_STEPS[op](self, node)
        elif self.left:
            if op == "SET" and any(b.fate == _KEPT and b.node.op != "IF" for b in self.blocks):
                self.again = True
        elif op in LEAVES:
            if op != "RETURN":
                self.loops[node.src[0]].exits[op] += 1
            self._emit(node)
            self.left = True
        elif op == "SET":
            self._assign(self.new[node.src[0]], _value(self.new[node.src[1]]))
            self._emit(node)
        # An ASSERT and a PRINT go: for the interpreter nothing is folded.

    # -- values

    def _compute(self, node: UOp) -> None:
        if node.op in _GIVEN:
            self.new[node] = node
            self.out.append(node)
            return
        sources = [self.new[source] for source in node.src]
        found: Number | UOp | None = None
        if node.op == "GET":
            found = self.known.get(sources[0])
        elif node.op == "SPECIAL":
            kind, axis = node.arg
            if self.shape is not None and self.shape[axis] < 2**31:
                if kind == "block_dim":
                    found = self.shape[axis]
                elif kind == "thread_idx" and self.shape[axis] == 1:
                    found = 0
        elif node.op == "LOAD" and sources[0].op == "TABLE" and sources[1].op == "CONST":
            table, place = sources[0].arg[1], sources[1].arg
            found = table[place] if 0 <= place < len(table) else None
        elif sources:
            values = [constant(s) if s.op == "CONST" else None for s in sources]
            if None not in values:
                found = evaluate(node, [value for value in values if value is not None])
            if found is None:
                spreads = spreads_nan(node, sources, values)
                found = math.nan if spreads else simpler(node, sources, values)
            axis = None
            if found is None and node.op == "ADD" and sources[0].dtype in _INDICES:
                axis = _global_axis(sources, self.shape)
            if axis is not None:
                self._put(node, UOp("SPECIAL", int32, (), ("global_idx", axis), node.line))
                if node.dtype is not int32:
                    self._put(node, UOp("CAST", node.dtype, (self.new[node],), None, node.line))
                return
            if found is None and (merged := merged_extremes(node, sources)):
                self._put(node, merged)
                return
        if found is None:
            self._emit_of(node, sources)
        elif isinstance(found, UOp):
            self.new[node] = found
        else:
            self._put(node, UOp("CONST", node.dtype, (), found, node.line))

    def _emit(self, node: UOp) -> None:
        self._emit_of(node, [self.new[source] for source in node.src])

    def _emit_of(self, node: UOp, sources: list[UOp]) -> None:
        src = tuple(sources)
        if src != node.src:  # nodes are compared by identity
            self._put(node, UOp(node.op, node.dtype, src, node.arg, node.line))
        else:
            self.new[node] = node
            self.out.append(node)

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
        """Forget the variables that a loop sets: an iteration sees what an earlier one set."""
        for variable in self.set_in[loop]:
            if variable in self.new:  # else it is declared inside
                self._assign(self.new[variable], None)

    # -- blocks

    def open_block(self, node: UOp) -> None:
        block = _Block(node, _DROPPED if self.left else self._fate(node), self.left)
        if block.fate == _KEPT:
            if node.op != "IF":
                self._forget(node)
                self.loops[node] = block
            block.place = len(self.out)
            self._emit(node)
        self.left = block.fate in (_ELSE, _DROPPED)
        self.blocks.append(block)

    def _fate(self, node: UOp) -> str:
        values = [_value(self.new[source]) for source in node.src]
        if node.op == "LOOP" or None in values:
            return _KEPT
        if node.op == "IF":
            return _THEN if values[0] else _ELSE
        start, stop, step = (int(value) for value in values if value is not None)
        return _KEPT if (start < stop if step > 0 else start > stop) else _DROPPED

    def enter_else(self, node: UOp) -> None:
        block = self.blocks[-1]
        block.then = {variable: self.known.get(variable) for variable in block.before}
        block.then_left = self.left
        if block.fate == _KEPT:
            for variable, value in block.before.items():
                self._know(variable, value)
            self._emit(node)
        self.left = block.fate in (_THEN, _DROPPED)

    def close_block(self, node: UOp) -> None:
        block = self.blocks.pop()
        if block.fate == _DROPPED:
            self.left = block.unreached
            return
        if self.blocks:  # the block around sets these variables as well
            outer = self.blocks[-1].before
            for variable, value in block.before.items():
                outer.setdefault(variable, value)
        if (
            node.op == "ENDLOOP"
            and block.exits == _ONE_BREAK
            and self.out[-1].op == "BREAK"
            and self.out[-1].src[0] is self.new[block.node]
        ):
            # The loop runs one iteration, so its body can replace it.
            self.out.pop()
            del self.out[block.place]
            self.left = False
            self.again = self.again or bool(self.set_in[block.node])
        elif node.op != "ENDIF":
            self._forget(block.node)
            self._emit(node)
            self.left = node.op == "ENDLOOP" and not block.exits["BREAK"]
        elif block.fate == _KEPT:
            self._join(block)
            self._emit(node)
        elif block.fate == _THEN:
            self.left = self.left if block.then is None else block.then_left
        else:
            self.left = self.left and block.then is not None

    def _join(self, block: _Block) -> None:
        """Keep the values that both sides of an IF agree on; a side that is left does not count."""
        no_else = block.then is None
        then: Mapping[UOp, Number | None] = self.known if block.then is None else block.then
        then_left = self.left if no_else else block.then_left
        other_left = not no_else and self.left
        for variable, before in block.before.items():
            first = then.get(variable) if no_else else then.get(variable, before)
            second = before if no_else else self.known.get(variable)
            # repr tells 0.0 from -0.0 and 1 from True, and finds a NaN equal to a NaN.
            if then_left or (not other_left and repr(first) == repr(second)):
                self._know(variable, second)
            else:
                self._know(variable, first if other_left else None)
        self.left = then_left and other_left


_BLOCK_STEPS: dict[str, Callable[[_Walk, UOp], None]] = {
    **dict.fromkeys(("IF", "RANGE", "LOOP"), _Walk.open_block),
    "ELSE": _Walk.enter_else,
    **dict.fromkeys(("ENDIF", "ENDRANGE", "ENDLOOP"), _Walk.close_block),
}


def _global_axis(sources: list[UOp], shape: tuple[int, int, int] | None) -> int | None:
    """Return the axis of a sum that is `block_idx * block_dim + thread_idx`; None for any other."""
    sources = [_narrow(source) for source in sources]
    for thread, first in (sources, reversed(sources)):
        if thread.op != "SPECIAL" or thread.arg[0] != "thread_idx" or first.op != "MUL":
            continue
        axis = thread.arg[1]
        factors = [_narrow(source) for source in first.src]
        for block, size in (factors, reversed(factors)):
            fixed = shape is not None and size.op == "CONST" and size.arg == shape[axis]
            if block.arg == ("block_idx", axis) and (fixed or size.arg == ("block_dim", axis)):
                return int(axis)
    return None


def _narrow(node: UOp) -> UOp:
    """Return an int32 that is not negative from a cast of it: the index of a thread, or a part."""
    wide = node.op == "CAST" and node.dtype in _WIDE and node.src[0].dtype is int32
    return node.src[0] if wide else node


def _value(node: UOp) -> Number | None:
    return constant(node) if node.op == "CONST" else None


def _set_in_loops(kernel: Kernel) -> dict[UOp, dict[UOp, None]]:
    """Return the variables set in each RANGE and LOOP and in the loops inside it, in order."""
    found: dict[UOp, dict[UOp, None]] = {}
    open_: list[UOp] = []
    for node in kernel.uops:
        op = node.op
        if op in ("RANGE", "LOOP"):
            found[node] = {}
            open_.append(node)
        elif op in ("ENDRANGE", "ENDLOOP"):
            inner = found[open_.pop()]
            if open_:
                found[open_[-1]].update(inner)
        elif op == "SET" and open_:
            found[open_[-1]][node.src[0]] = None
    return found
