"""Write what one thread does, or what runs once for a block: scalars, in the order of the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hal_cpu.vectors.arithmetic import scalar
from hal_cpu.vectors.loops import Counted, Loops
from hal_kernel.ir.uop import UOp, dtype_of


class _Open(NamedTuple):
    """An IF, a RANGE or a LOOP that is open."""

    place: int  # in its labels
    mark: int  # of the log
    is_loop: bool
    counted: Counted | None = None  # of a RANGE
    turned: bool = False  # the ELSE of an IF is written


class Flat(Loops):
    """Write nodes one after the other, however deep they are nested."""

    def flat(self, uops: Sequence[UOp]) -> None:
        open_: list[_Open] = []
        place = 0
        while place < len(uops):
            node = uops[place]
            place += 1
            op = node.op
            if op == "THREADS":
                end = next(n for n in range(place, len(uops)) if uops[n].op == "ENDTHREADS")
                self.threads(node, uops[place:end])
                place = end + 1
            elif op in ("IF", "RANGE", "LOOP"):
                open_.append(self._opened(node))
            elif op == "ELSE":
                one = open_[-1] = open_[-1]._replace(turned=True)
                self.jump(f"fi.{one.place}")
                self.log.back(one.mark)
                self.label(f"else.{one.place}")
            elif op in ("ENDIF", "ENDRANGE", "ENDLOOP"):
                self._close(node, open_.pop())
            elif op == "RETURN":
                self.jump(self.frames[0].end)
            elif op in ("BREAK", "CONTINUE"):
                loop = next(one.place for one in reversed(open_) if one.is_loop)
                self.jump(f"{'end' if op == 'BREAK' else 'step'}.{loop}")
            else:
                self._plain(node)

    def threads(self, node: UOp, uops: Sequence[UOp]) -> None:
        """Write a region."""
        raise NotImplementedError

    def _opened(self, node: UOp) -> _Open:
        place, counted = self.number(), None
        self.note(node, self.noting)
        if node.op == "IF":
            condition = self.get(node.src[0]).base
            self.branch(condition, f"then.{place}", f"else.{place}")
            mark = len(self.log)
            self.label(f"then.{place}")
        elif node.op == "LOOP":
            self.open_loop(f"step.{place}")
            mark = len(self.log)
        else:
            start, stop = (self.get(source) for source in node.src[:2])
            mark = len(self.log)
            counted = self.open_range(node, place, start, stop)
        return _Open(place, mark, node.op != "IF", counted)

    def _close(self, node: UOp, one: _Open) -> None:
        place = one.place
        if node.op == "ENDIF":
            self.jump(f"fi.{place}")
            self.log.back(one.mark)
            if not one.turned:
                self.label(f"else.{place}")
                self.jump(f"fi.{place}")
            self.label(f"fi.{place}")
        elif node.op == "ENDLOOP":
            self.jump(f"step.{place}")
            self.log.back(one.mark)
            self.close_loop()
            self.label(f"end.{place}")
        else:
            self.jump(f"step.{place}")
            if one.counted is not None:
                self.close_range(node.src[0], place, one.counted)
            self.log.back(one.mark)

    def _plain(self, node: UOp) -> None:
        variable = node.src[0] if node.op in ("SET", "GET") else None
        if variable is None or variable.op == "SPILL":
            self.node(node)
            return
        slot, kind = self.slot_of(variable)
        if node.op == "SET":
            self.store(kind, self.get(node.src[1]).base, slot)
        else:
            dtype = dtype_of(variable)
            self.values[node] = self.uniform(dtype, self.load(scalar(dtype), slot))
