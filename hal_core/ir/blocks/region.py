"""Writes one region of a kernel that was cut at its barriers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hal_core.dtypes import bool_
from hal_core.ir.blocks.assigned import Assigned
from hal_core.ir.blocks.independence import stores_last
from hal_core.ir.blocks.outside import PURE
from hal_core.ir.uop import UOp

_IDLE = PURE | {"SPECIAL", "CONST", "VAR"}
_EFFECTS = frozenset({"STORE", "ATOMIC", "CAS", "ASSERT", "RETURN"})


def enclosed(body: Sequence[UOp], accesses: Sequence[UOp]) -> list[UOp]:
    """`body` between THREADS and ENDTHREADS; `accesses`: the nodes that touch shared memory."""
    threads = UOp("THREADS", None, (), stores_last(accesses))
    return [threads, *body, UOp("ENDTHREADS", None, (threads,))]


def _under(nodes: list[UOp], body: list[UOp], condition: UOp) -> list[UOp]:
    """`nodes`, then `body` in an IF."""
    block = UOp("IF", None, (condition,))
    return [*nodes, block, *body, UOp("ENDIF", None, (block,))]


class Region:
    """The nodes of a region, which become: what comes from other regions, the work, what goes on.

    `home`: the region of each node that is in one. `again`: values that are cheap enough to be
    computed in every region. `spills`: what is kept from one region to another. `stay`: the threads
    that run it are those for which all of these hold.

    A variable that is kept is copied to a local one for the work: compilers do not keep an array's
    element in a register while the work writes memory.
    """

    def __init__(
        self,
        nodes: list[UOp],
        number: int,
        home: Mapping[UOp, int],
        again: Mapping[UOp, int],
        spills: Mapping[UOp, UOp],
        stay: Sequence[UOp] = (),
    ) -> None:
        self.nodes, self.number = nodes, number
        self.home, self.again, self.spills, self.stay = home, again, spills, stay
        self.variables = Assigned(nodes)
        self.returns = any(node.op == "RETURN" for node in nodes)
        self.skipped_if: UOp | None = None  # a SPILL: the threads that have returned
        self.told: UOp | None = None  # that SPILL, where regions follow
        self._new: dict[UOp, UOp] = {}
        self._before: list[UOp] = []
        self._work: list[UOp] = []

    def written(self) -> list[UOp]:
        """Its THREADS ... ENDTHREADS; nothing where nothing is left to do."""
        for variable in self.variables.used:
            self._local(variable)
        for node in self.nodes:
            self._step(node)
        body = self._tucked() or [*self._before, *self._work, *self._after()]
        keeps = any(node.op == "SET" and node.src[0].op == "SPILL" for node in body)
        if not keeps and not any(node.op in _EFFECTS for node in body):
            return []
        if self.skipped_if is not None:
            here = UOp("GET", bool_, (self.skipped_if,))
            stays = UOp("NOT", bool_, (here,))
            body = _under([here, stays], body, stays)
        for condition in self.stay:
            copies: dict[UOp, UOp] = {}
            made = self._copy(condition, copies)
            body = _under(list(copies.values()), body, made)
        return enclosed(body, self.nodes)

    def _copy(self, source: UOp, copies: dict[UOp, UOp]) -> UOp:
        """Pure arithmetic, once more, for in front of all else."""
        if source not in self.home:
            return source
        if source not in copies:
            sources = tuple(self._copy(part, copies) for part in source.src)
            copies[source] = UOp(source.op, source.dtype, sources, source.arg, source.line)
        return copies[source]

    def _tucked(self) -> list[UOp]:
        """Everything in the one IF that holds the work, if there is such: threads for which it is
        false then have nothing to do."""
        work = self._work
        first = next((n for n, node in enumerate(work) if node.op not in _IDLE), len(work))
        block = work[first] if first < len(work) else None
        if block is None or block.op != "IF" or work[-1].op != "ENDIF":
            return []
        if work[-1].src[0] is not block or any(
            node.op == "ELSE" and node.src[0] is block for node in work
        ):
            return []
        needed = {source for node in work[: first + 1] for source in node.src}
        for node in reversed(self._before):
            if node in needed:
                needed.update(node.src)
        ahead = [node for node in self._before if node in needed]
        if any(node.op not in _IDLE for node in ahead):
            return []
        rest = [node for node in self._before if node not in needed]
        inner = [*rest, *work[first + 1 : -1], *self._after()]
        return [*ahead, *work[: first + 1], *inner, work[-1]]

    def _local(self, variable: UOp) -> None:
        spill = self.spills.get(variable)
        if self.home.get(variable, self.number) == self.number and spill is None:
            return
        if variable not in self.home:  # it is outside
            return
        local = self._new[variable] = UOp("VAR", variable.dtype, (), variable.arg, variable.line)
        self._before.append(local)
        known = self.variables
        if spill is not None and (variable in known.exposed or variable in known.uncertain):
            value = UOp("GET", variable.dtype, (spill,))
            self._before += [value, UOp("SET", None, (local, value))]

    def _step(self, node: UOp) -> None:
        if node.op == "VAR" and node in self._new:
            return
        if node.op == "RETURN" and self.told is not None:
            yes = UOp("CONST", bool_, (), True)
            self._work += [yes, UOp("SET", None, (self.told, yes))]
        made = self._rebuilt(node)
        self._new[node] = made
        self._work.append(made)
        if node in self.spills and node.op != "VAR":
            self._work.append(UOp("SET", None, (self.spills[node], made)))

    def _rebuilt(self, node: UOp) -> UOp:
        sources = tuple(map(self._here, node.src))
        if all(new is old for new, old in zip(sources, node.src, strict=True)):
            return node
        return UOp(node.op, node.dtype, sources, node.arg, node.line)

    def _here(self, source: UOp) -> UOp:
        """What stands for a source in this region."""
        made = self._new.get(source)
        if made is not None or self.home.get(source, self.number) == self.number:
            return made or source
        if source in self.spills:
            made = UOp("GET", source.dtype, (self.spills[source],))
        else:  # as deep as it is cheap
            sources = tuple(map(self._here, source.src))
            made = UOp(source.op, source.dtype, sources, source.arg, source.line)
        self._new[source] = made
        self._before.append(made)
        return made

    def _after(self) -> list[UOp]:
        if self._work and self._work[-1].op == "RETURN":
            return []
        after = []
        for variable in self.variables.written:
            if variable in self.spills:
                value = UOp("GET", variable.dtype, (self._new[variable],))
                after += [value, UOp("SET", None, (self.spills[variable], value))]
        return after
