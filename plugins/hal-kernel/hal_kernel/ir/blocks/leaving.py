"""Run a loop in lockstep that each thread leaves after another number of iterations.

                                running = 0
    while n < x[i]:             while True:
        n += step       ->          running = 0
    y[i] = n                        if n < x[i]:
                                        n += step
                                        running += 1    # of all threads: COUNT
                                    if running <= 3: break
                                if running != 0:
                                    while n < x[i]:
                                        n += step
                                y[i] = n

A loop over a range whose threads load neighbours, `x[i + k]`, has one counter for all of them: in
each iteration the threads that run have done as many.

All threads of a group leave the first loop on the right together, so it stands outside of the loop
over threads, which becomes vectors. A thread that has left keeps its values, and loads nothing new.
When few threads are left each goes on by itself.

In the list of nodes

| op | src | arg | meaning |
| --- | --- | --- | --- |
| COUNT | VAR of the block, int32 | | the VAR grows by the number, for each thread that gets here |
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hal_core.dtypes import DType, bool_, int32
from hal_kernel.ir.blocks.counting import as_while
from hal_kernel.ir.blocks.divisions import DIVISIONS, by_floats, fits
from hal_kernel.ir.blocks.exits import without_exits
from hal_kernel.ir.blocks.hoisting import is_common
from hal_kernel.ir.blocks.liveness import Liveness
from hal_kernel.ir.blocks.lockstep import Leaving, without_guards
from hal_kernel.ir.blocks.nests import with_strides
from hal_kernel.ir.blocks.returns import without_returns
from hal_kernel.ir.blocks.strides import Stride
from hal_kernel.ir.blocks.windows import FITS
from hal_kernel.ir.loops import FUNCTIONS, unrolled
from hal_kernel.ir.uop import CLOSES, OPENS, PURE, UOp

# So many threads take no longer one by one than in vectors, which gather what they load, and divide
# integers as floats.
_FEW, _FEW_WITH_SLOW = 3, 8
_MOST_BESIDE = 12  # nodes for each load of a loop that mostly loads
_ASKED = PURE | {"CONST", "SPECIAL", "GET", "LOAD"}
# A loop with anything else is left as it is.
_INSIDE = _ASKED | {"VAR", "SET", "IF", "ELSE", "ENDIF", "BREAK", "RANGE", "ENDRANGE"}


def with_lockstep(uops: tuple[UOp, ...]) -> Leaving | None:
    """Return the nodes of a kernel with such loops rewritten; None without one."""
    found = _with_lockstep(uops)
    if found is not None or not any(node.op == "LOOP" for node in uops):
        return found
    body, guards = without_guards(uops)
    body, strides = with_strides(body)
    found = _with_lockstep(body) if strides else None
    return found and found._replace(strides=strides, guards=guards)


def _with_lockstep(uops: tuple[UOp, ...]) -> Leaving | None:
    """Return the nodes with such loops rewritten that stand in no loop in which threads stride."""
    moved = without_exits(uops)
    uops = uops if moved is uops else without_returns(moved)
    wanted = {node.src[0] for node in uops if node.op == "BREAK"}
    wanted |= {node for node in uops if node.op == "RANGE" and varies(node.src[:2])}
    short = unrolled(uops) if wanted else set()
    if not wanted - short:
        return None
    ends = {node.src[0]: n for n, node in enumerate(uops) if node.op in ("ENDLOOP", "ENDRANGE")}
    bodies = {
        loop: uops[place + 1 : ends[loop]]
        for place, loop in enumerate(uops)
        if loop in wanted
        and loop not in short
        # `nests.py` counts the iterations of those in which threads stride over data.
        and (loop.op == "RANGE" or Stride.of(uops, place, ends) is None)
    }
    bodies = {loop: body for loop, body in bodies.items() if may_gain(loop, body, short)}
    around = ifs_around(uops, bodies, short) if bodies else {}
    around = {loop: cut for loop, cut in around.items() if _may_cut(uops, loop, bodies[loop], cut)}
    cut = _Cut(uops, {block for blocks in around.values() for block in blocks})
    found = Leaving((), [], set())
    place = 0
    while place < len(uops):
        node = uops[place]
        if node in around:
            conditions = cut.close()
            written = _Written(node, bodies[node], cut.made, conditions)
            found.together.extend((written.together, written.left))
            found.alone.update(written.alone)
            cut.reopen()
            place = ends[node]
        else:
            cut.add(node)
        place += 1
    return found._replace(uops=tuple(cut.made)) if around else None


def ifs_around(
    uops: tuple[UOp, ...], loops: Collection[UOp], short: Collection[UOp]
) -> dict[UOp, list[UOp]]:
    """Return the loops that can be rewritten, each with the IFs to cut around it.

    Guards around the whole kernel stay whole, and so do blocks with a barrier, which all threads
    run. Around these IFs may be nothing but loops that all threads share. A loop that no usual
    launch runs, as `windows.py` writes it, stays as it is.
    """
    found: dict[UOp, list[UOp]] = {}
    guards = without_guards(uops)[1]
    whole = {node for node in uops if node.op == "IF" and node.src[0] in guards}
    opened: list[UOp] = []
    rare: set[UOp] = set()  # IFs whose ELSE has begun, which no usual launch runs
    for node in uops:
        if node in loops and rare.isdisjoint(opened):
            found[node] = opened.copy()
        if node.op == "ELSE" and node.src[0].arg == FITS:
            rare.add(node.src[0])
        elif node.op == "BARRIER":
            whole.update(opened)
        elif node.op in ("IF", "RANGE", "LOOP"):
            opened.append(node)
        elif node.op in ("ENDIF", "ENDRANGE", "ENDLOOP"):
            opened.pop()
    for loop, blocks in [*found.items()]:
        loops_around = [node for node in blocks if node.op != "IF" and node not in whole]
        cut = [node for node in blocks if node.op == "IF" and node not in whole]
        found[loop] = cut
        shared = all(
            node.op == "RANGE" and node not in short and not varies(node.src[:2])
            for node in loops_around
        )
        if not shared or blocks[len(blocks) - len(cut) :] != cut:
            del found[loop]
    return found


def _may_cut(uops: Sequence[UOp], loop: UOp, body: Sequence[UOp], blocks: Sequence[UOp]) -> bool:
    """Tell whether nothing that is written ahead of a loop is computed in the IFs cut around it."""
    if not blocks:
        return True
    if loop.op == "RANGE":
        start = uops.index(blocks[0])
        if not is_common(loop.src[0]) and loop.src[0] in uops[start : uops.index(loop)]:
            return False
        _, loop, body = as_while(loop, body)
    return len(blocks) == 1 or bool(tests_of(loop, body))  # without tests it is a flag of its own


class _Cut:
    """The nodes of a kernel, in which IFs end ahead of a loop and begin again behind it.

    if x[i] > 0:                     c = x[i] > 0
        a = x[i]                     if c:
        while n < a:                     a = x[i]
            n += step       ->       while n < a:  # only threads for which c holds
        y[i] = n                         n += step
                                     if c:
                                         y[i] = n
    """

    def __init__(self, uops: Sequence[UOp], blocks: Collection[UOp]) -> None:
        """Prepare to cut these IFs."""
        self.made: list[UOp] = []
        self.blocks = blocks
        halved = {node.src[0] for node in uops if node.op == "ELSE"} if blocks else set()
        self.opposites = {
            node: UOp("NOT", bool_, node.src, None, node.line) for node in blocks if node in halved
        }
        self.opened: list[UOp] = []  # the IFs that are open, as they were last written
        self.conditions: list[UOp] = []  # what holds for the threads that are in them

    def add(self, node: UOp) -> None:
        """Write a node; the side of an IF that has become empty is left out."""
        block = node.src[0] if node.op in ("ELSE", "ENDIF") else node
        if block not in self.blocks:
            self.made.append(node)
        elif node.op == "IF":
            if node in self.opposites:
                self.made.append(self.opposites[node])
            self.made.append(node)
            self.opened.append(node)
            self.conditions.append(node.src[0])
        elif node.op == "ENDIF":
            self.conditions.pop()
            self._end(self.opened.pop())
        else:
            self.conditions[-1] = self.opposites[block]
            if self.made[-1] is self.opened[-1]:
                self.made[-1] = self.opened[-1] = UOp("IF", None, (self.conditions[-1],))
            else:
                self.made.append(UOp("ELSE", None, (self.opened[-1],), None, node.line))

    def close(self) -> list[UOp]:
        """End the IFs that are open; return what holds for the threads in them."""
        for block in reversed(self.opened):
            self._end(block)
        return self.conditions

    def reopen(self) -> None:
        """Begin the IFs again that were open."""
        self.opened = [UOp("IF", None, (condition,)) for condition in self.conditions]
        self.made += self.opened

    def _end(self, block: UOp) -> None:
        last = self.made[-1]
        if last is block or (last.op == "ELSE" and last.src[0] is block):
            self.made.pop()
        if last is not block:
            self.made.append(UOp("ENDIF", None, (block,)))


def varies(bounds: Sequence[UOp]) -> bool:
    """Tell whether the threads of a row may see different bounds of a loop."""
    pending, seen = list(bounds), set[UOp]()
    while pending:
        node = pending.pop()
        if node.op in ("LOAD", "GET", "SPECIAL") and not is_common(node):
            return True
        if node not in seen:
            seen.add(node)
            pending += node.src
    return False


def may_gain(loop: UOp, body: tuple[UOp, ...], short: Collection[UOp]) -> bool:
    """Tell whether a loop only computes and loads, and compilers make no vectors of it.

    One that counts and mostly loads elements that lie apart, as in a sparse product, gains nothing:
    vectors take as long for such loads as threads, which wait for the one with most iterations.
    """
    for node in body:
        if node.op not in _INSIDE or (node.op == "RANGE" and node not in short):
            return False
        if node.op in DIVISIONS and node.src[1].op != "CONST" and not fits(node):
            return False
    if body[-1:] and body[-1].op == "BREAK":  # as a function that returns within `hal.unroll`
        return False
    if loop.op == "LOOP":
        return True
    if abs(loop.src[2].arg) != 1:  # the counter may wrap behind the last iteration
        return False
    leaves = any(node.op == "BREAK" and node.src[0] is loop for node in body)
    apart = len({node.src for node in body if node.op == "LOAD" and lies_apart(node.src[1])})
    computes = any(node.op in FUNCTIONS for node in body) or len(body) > _MOST_BESIDE * apart
    if apart >= (3 if leaves else 2) and not computes:
        return False
    known = Liveness(body)
    # Compilers add integers in any order, so that iterations are lanes of a vector.
    ordered = any(
        v.dtype is not None and v.dtype.is_float and v in known.exposed for v in known.written
    )
    return ordered or leaves


def lies_apart(index: UOp) -> bool:
    """Tell whether an index is by data or by a multiple of a thread's number."""
    return any(
        (node.op in ("LOAD", "GET") and not is_common(node))
        or (node.op == "MUL" and varies(node.src))
        for node in parts_of_index(index)
    )


def parts_of_index(index: UOp) -> set[UOp]:
    """Return the nodes that an index is computed from: of a loop's counter what it starts with."""
    found, pending = set[UOp](), [index]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.src[:1] if node.op == "RANGE" else node.src
    return found


def tests_of(loop: UOp, body: Sequence[UOp]) -> list[UOp]:
    """Return the IFs that a loop begins with and leaves by, if it leaves by nothing else.

    Nothing ahead of them changes what they compute, so a thread that has left may ask them again.
    """
    tests: list[UOp] = []
    own: set[UOp] = set()
    read = {node.src[0] for node in body if node.op == "GET"}
    start = 0  # of the IF that was opened last
    for place, node in enumerate(body):
        if node.op in OPENS:
            start = place
        elif node.op == "BREAK" and node.src[0] is loop:
            inside = body[start + 1 : place]
            if body[start].op != "IF" or body[place + 1].op != "ENDIF":
                return []
            if any(part.op not in _ASKED and part.op != "SET" for part in inside):
                return []
            # It may set again what nothing else in the loop reads.
            again = {part.src[0] for part in inside if part.op == "SET"}
            if not again.isdisjoint(read):
                return []
            own |= again
            tests.append(body[start])
    depth, left = 0, len(tests)
    for node in body:
        if node in tests:
            left -= 1
            if depth:
                return []
        if not left:
            break
        depth += (node.op in OPENS) - (node.op in CLOSES)
        if node.op == "VAR":
            own.add(node)
        elif node.op == "SET" and node.src[0] not in own:
            return []
    return tests


def counts_neighbours(loop: UOp, body: Sequence[UOp]) -> bool:
    """Tell whether threads that count a loop's iterations together load neighbours, `x[i + k]`."""
    for node in body if loop.op == "RANGE" else ():
        if node.op == "LOAD" and not lies_apart(node.src[1]):
            parts = parts_of_index(node.src[1])
            if loop in parts and any(
                part.op == "SPECIAL" and not is_common(part) for part in parts
            ):
                return True
    return False


class _Written:
    """A loop, written behind the nodes `made`."""

    def __init__(
        self, loop: UOp, body: Sequence[UOp], made: list[UOp], conditions: Sequence[UOp]
    ) -> None:
        """Write the loop for the threads for which all `conditions` hold."""
        self.made, self.line, start = made, loop.line, len(made)
        self.conditions = conditions
        self.zero, self.one = self._add("CONST", int32, arg=0), self._add("CONST", int32, arg=1)
        # In two IFs, of which the inner one's condition is computed in the outer, no flag is set.
        may_count = len(conditions) < 2 and counts_neighbours(loop, body)
        counted = loop if may_count else None
        if loop.op == "RANGE":
            ahead, loop, body = as_while(loop, body)
            made += ahead
        self.loop, self.new = loop, dict[UOp, UOp]()
        slow = any(
            node.op == "LOAD" or (node.op in DIVISIONS and node.src[1].op != "CONST")
            for node in body
        )
        few = self._add("CONST", int32, arg=_FEW_WITH_SLOW if slow else _FEW)
        self.running = self._add("VAR", int32, arg="running")
        tests = tests_of(loop, body)
        if counted is not None and tests:
            # A thread that has left would ask them again for another number.
            counts = (body[0] in node.src for node in body[2 : body.index(tests[-1])])
            tests = [] if any(counts) else tests
        if not tests:
            self.runs = self._add("VAR", int32, arg="runs")
            if conditions:
                self._add("SET", None, self.runs, self.zero)
            runs = self._begin()
            self._add("SET", None, self.runs, self.one)
            self._close(runs)
        self.write_together(body, tests, counted, few)
        left = self._add("NE", bool_, self._add("GET", int32, self.running), self.zero)
        self.left = self._add("IF", None, left)
        flagged = [self.left, *(self._begin() if tests else [self._ask()])]
        made += [loop, *body]
        self._add("ENDLOOP", None, loop)
        self._close(flagged)
        self.alone = {node for node in made[start:] if node.op in ("LOOP", "BREAK")}
        if counted is not None:
            self.alone.add(self.count)

    def write_together(
        self, body: Sequence[UOp], tests: Collection[UOp], counted: UOp | None, few: UOp
    ) -> None:
        """Write the loop that all threads leave together.

        If it is `counted`, they count its iterations in one variable, which is zero outside of it.
        """
        self.own: UOp | None = None  # the counter of each thread
        self.shared: dict[UOp, UOp] = {}  # own -> the same number, from the common counter
        self.kept = set[UOp]()  # nodes that go on reading `own`
        if counted is not None:
            zero = self._add("CONST", counted.dtype, arg=0)
            step = self._add("CONST", counted.dtype, arg=counted.src[2].arg)
            self.count = self._add("VAR", counted.dtype, arg="count")
            self._add("SET", None, self.count, zero)
        self.together = self._add("LOOP")
        self._add("SET", None, self.running, self.zero)
        if counted is not None:
            done = self._add("GET", counted.dtype, self.count)
            self.own = body[0]
            self.shared[self.own] = self._add("ADD", counted.dtype, counted.src[0], done)
            self.kept = {body[1], body[-2]} if tests else set()
        self._write(body, tests)
        if counted is not None:
            self._add("SET", None, self.count, self._add("ADD", counted.dtype, done, step))
        some = self._add("LE", bool_, self._add("GET", int32, self.running), few)
        block = self._add("IF", None, some)
        if counted is not None:
            self._add("SET", None, self.count, zero)
        self._add("BREAK", None, self.together)
        self._add("ENDIF", None, block)
        self._add("ENDLOOP", None, self.together)

    def _add(self, op: str, dtype: DType | None = None, *src: UOp, arg: object = None) -> UOp:
        self.made.append(UOp(op, dtype, src, arg, self.line))
        return self.made[-1]

    def _begin(self) -> list[UOp]:
        """Begin the IFs that stand around the loop."""
        return [self._add("IF", None, condition) for condition in self.conditions]

    def _ask(self) -> UOp:
        """Begin an IF that the threads run which have not left."""
        runs = self._add("GET", int32, self.runs)
        return self._add("IF", None, self._add("NE", bool_, runs, self.zero))

    def _close(self, opened: list[UOp]) -> None:
        for block in reversed(opened):
            self._add("ENDIF", None, block)
        opened.clear()

    def _write(self, body: Sequence[UOp], tests: Collection[UOp]) -> None:
        """Write an iteration in the IFs of its tests, or with a flag for each thread.

        Behind all that may clear the flag it is asked again.
        """
        # The IFs in each open block.
        opened: list[list[UOp]] = [self._begin() if tests else [self._ask()]]
        leaves = [False]  # whether an open block has a BREAK in it
        for node in body:
            leaving = node.op == "BREAK" and node.src[0] is self.loop
            if (tests and leaving) or (node is self.own and not self.kept):
                continue
            if node.op == "ENDIF" and node.src[0] in tests:
                test = self.new[node.src[0]]
                if self.made[-1] is test:
                    self.made.pop()
                else:
                    self._add("ENDIF", None, test)
                opened[0].append(self._add("IF", None, self._add("NOT", bool_, *test.src)))
                continue
            if node in tests:
                self.new[node] = self._add("IF", None, self.new.get(node.src[0], node.src[0]))
                continue
            if node.op in CLOSES:
                self._close(opened[-1])
            if leaving:
                self._add("SET", None, self.runs, self.zero)
                leaves[-1] = True
                continue
            new = self.new | self.shared if self.shared and node not in self.kept else self.new
            sources = tuple([new.get(source, source) for source in node.src])
            if node.op in DIVISIONS and node.src[1].op != "CONST":
                self.made += by_floats(node, *sources)
                self.new[node] = self.made[-1]
                continue
            self.new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
            self.made.append(self.new[node])
            if node.op in ("IF", "RANGE"):
                opened.append([])
                leaves.append(False)
            elif node.op in ("ENDIF", "ENDRANGE"):
                opened.pop()
                if leaves.pop():
                    leaves[-1] = True
                    opened[-1].append(self._ask())
        if tests:
            self._add("COUNT", None, self.running, self.one)
        self._close(opened[0])
        if not tests:
            self._add("COUNT", None, self.running, self._add("GET", int32, self.runs))
