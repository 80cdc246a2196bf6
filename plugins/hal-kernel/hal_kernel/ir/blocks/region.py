"""Write the nodes of one region: the work that threads do between two barriers.

A region has three parts: it fetches values of other regions, does the work, and hands values on.

    THREADS
      VAR acc        a local copy of a variable that lives in an array of the block (SPILL):
      GET spill      compilers do not hold an array's element in a register while the work
      SET acc        writes memory
      ...            the work
      GET acc
      SET spill
    ENDTHREADS
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hal_core.dtypes import bool_
from hal_kernel.ir.uop import ATOMIC_OPS, PURE, UOp

_NO_EFFECT = PURE | {"SPECIAL", "CONST", "VAR"}
_EFFECTS = ATOMIC_OPS | {"STORE", "FENCE", "RETURN"}


def enclosed(body: Sequence[UOp]) -> list[UOp]:
    """Return `body` between THREADS and ENDTHREADS."""
    threads = UOp("THREADS", None, ())
    return [threads, *body, UOp("ENDTHREADS", None, (threads,))]


class Region:
    """The nodes of one region, and what `whole` needs to know of the other regions.

    `home` maps each node of a region to the region's number. `spills` maps the values and variables
    that are live across regions to their SPILLs; other values are computed again.
    """

    def __init__(
        self, nodes: list[UOp], number: int, home: Mapping[UOp, int], spills: Mapping[UOp, UOp]
    ) -> None:
        self.nodes, self.number = nodes, number
        self.home, self.spills = home, spills
        self._note_variables()
        self.returns = any(node.op == "RETURN" for node in nodes)
        self.skipped_if: UOp | None = None  # a SPILL: this thread has returned in an earlier region
        self.set_at_return: UOp | None = None  # the same SPILL, if regions follow
        self._new: dict[UOp, UOp] = {}
        self._before: list[UOp] = []
        self._work: list[UOp] = []

    def _note_variables(self) -> None:
        """Find the VARs that are read from outside, and those that are set."""
        self.exposed: dict[UOp, None] = {}  # VARs that may be read before they are set here
        self.written: dict[UOp, None] = {}
        # For each open block, the VARs that are set for certain.
        certain: list[frozenset[UOp]] = [frozenset()]
        for node in self.nodes:
            if node.op == "SET":
                self.written[node.src[0]] = None
                certain[-1] |= {node.src[0]}
            elif node.op == "GET" and node.src[0] not in certain[-1]:
                self.exposed[node.src[0]] = None
            elif node.op in ("IF", "RANGE", "LOOP"):
                certain.append(certain[-1])
            elif node.op == "ELSE":
                certain[-1] = certain[-2]
            elif node.op in ("ENDIF", "ENDRANGE", "ENDLOOP"):
                certain.pop()
        # What may stay unset is fetched, too, as it is handed on.
        self._fetched = self.exposed.keys() | (self.written.keys() - certain[0])

    def whole(self) -> list[UOp]:
        """Return the nodes from THREADS to ENDTHREADS; none if they would have no effect."""
        read = dict.fromkeys(node.src[0] for node in self.nodes if node.op == "GET")
        for variable in {**self.written, **read}:
            # A hoisted variable has no home, and a variable of this region alone is declared in it.
            spill, home = self.spills.get(variable), self.home.get(variable)
            if home is None or (home == self.number and spill is None):
                continue
            local = UOp("VAR", variable.dtype, (), variable.arg, variable.line)
            self._new[variable] = local
            self._before.append(local)
            if spill is not None and variable in self._fetched:
                value = UOp("GET", variable.dtype, (spill,))
                self._before += [value, UOp("SET", None, (local, value))]
        for node in self.nodes:
            if node.op != "VAR" or node not in self._new:
                self._add(node)
        body = self._in_ifs() or [*self._before, *self._work, *self._after()]
        hands_on = any(node.op == "SET" and node.src[0].op == "SPILL" for node in body)
        # Nothing but arithmetic whose results nobody reads: the loop over threads is left out.
        if not hands_on and not any(node.op in _EFFECTS for node in body):
            return []
        if self.skipped_if is not None:
            here = UOp("GET", bool_, (self.skipped_if,))
            runs = UOp("NOT", bool_, (here,))
            block = UOp("IF", None, (runs,))
            body = [here, runs, block, *body, UOp("ENDIF", None, (block,))]
        return enclosed(body)

    def _in_ifs(self) -> list[UOp]:
        """Return the region with everything moved into the IFs around all its work; [] without one.

        Threads for which a condition is false then neither fetch nor hand on anything.
        """
        made: list[UOp] = []
        ends: list[UOp] = []
        before, work = self._before, self._work
        while True:
            first = next((n for n, node in enumerate(work) if node.op not in _NO_EFFECT), len(work))
            block = work[first] if first < len(work) else None
            if block is None or block.op != "IF" or work[-1].op != "ENDIF":
                break
            if work[-1].src[0] is not block or any(
                node.op == "ELSE" and node.src[0] is block for node in work
            ):
                break
            # What the condition itself needs stays ahead of the IF.
            needed = {source for node in work[: first + 1] for source in node.src}
            for node in reversed(before):
                if node in needed:
                    needed.update(node.src)
            ahead = [node for node in before if node in needed]
            if any(node.op not in _NO_EFFECT for node in ahead):
                break
            before = [node for node in before if node not in needed]
            made += [*ahead, *work[: first + 1]]
            ends.append(work[-1])
            work = work[first + 1 : -1]
        return [*made, *before, *work, *self._after(), *reversed(ends)] if ends else []

    def _add(self, node: UOp) -> None:
        """Add a node to the work, with its sources as they are in this region."""
        # A RETURN leaves only this loop over threads; the flag makes later regions skip the thread.
        if node.op == "RETURN" and self.set_at_return is not None:
            yes = UOp("CONST", bool_, (), True)
            self._work += [yes, UOp("SET", None, (self.set_at_return, yes))]
        made, sources = node, tuple([self._new.get(part) or self._here(part) for part in node.src])
        if sources != node.src:
            made = UOp(node.op, node.dtype, sources, node.arg, node.line)
        self._new[node] = made
        self._work.append(made)
        if node in self.spills and node.op != "VAR":
            self._work.append(UOp("SET", None, (self.spills[node], made)))

    def _here(self, source: UOp) -> UOp:
        """Return the node that gives the value of `source` in this region, if it is not `_new`."""
        if self.home.get(source, self.number) == self.number:
            return source
        if source in self.spills:
            made = UOp("GET", source.dtype, (self.spills[source],))
        else:  # computed again, and so are its sources
            sources = tuple([self._new.get(part) or self._here(part) for part in source.src])
            made = UOp(source.op, source.dtype, sources, source.arg, source.line)
        self._new[source] = made
        self._before.append(made)
        return made

    def _after(self) -> list[UOp]:
        """Return the nodes that hand this region's variables on."""
        if self._work and self._work[-1].op == "RETURN":
            return []  # the thread has ended, and reads its variables no more
        after = []
        for variable in self.written:
            if variable in self.spills:
                value = UOp("GET", variable.dtype, (self._new[variable],))
                after += [value, UOp("SET", None, (self.spills[variable], value))]
        return after
