"""A kernel's flat list as nested steps, ready to be carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hal_core.dtypes import int32
from hal_core.interpreter.operations import operation
from hal_core.ir import Kernel, UOp

_WRITES = frozenset({"STORE", "ATOMIC", "CAS"})
_ACCESSES = _WRITES | {"LOAD"}
_OPENS = frozenset({"IF", "RANGE", "LOOP"})
_ENDS = frozenset({"ENDIF", "ENDRANGE", "ENDLOOP"})
_INDEX_ARITHMETIC = frozenset({"ADD", "SUB", "MUL"})


class Step(NamedTuple):
    """A node, and where values are: its own and its sources' places in the kernel's list."""

    node: UOp
    place: int
    sources: tuple[int, ...]
    compute: Callable[..., Any] | None  # from the sources' values; None: it does more than that
    body: list[Step]  # of an IF, RANGE or LOOP
    other: list[Step]  # behind ELSE
    wide: Callable[[list[Any]], Any] | None  # an access' index in 64 bits, where it may differ


class Script:
    """The steps of a verified kernel; `device` is named where it goes wrong."""

    def __init__(self, kernel: Kernel, device: str | None = None) -> None:
        self.kernel, self.device = kernel, device
        self.places = {id(node): place for place, node in enumerate(kernel.uops)}
        # Memory that is only read needs no watch.
        self.written = {id(node.src[0]) for node in kernel.uops if node.op in _WRITES}
        self.steps = self._block(iter(kernel.uops))

    def _block(self, nodes: Iterator[UOp]) -> list[Step]:
        """Up to the end of the block that is open. What stands behind ELSE goes to its IF."""
        steps: list[Step] = []
        into = steps
        for node in nodes:
            if node.op in _ENDS:
                break
            if node.op == "ELSE":
                steps.append(self._step(node, []))
                into = steps[-1].body
                continue
            into.append(self._step(node, self._block(nodes) if node.op in _OPENS else []))
        return steps

    def _step(self, node: UOp, body: list[Step]) -> Step:
        other = body.pop().body if body and body[-1].node.op == "ELSE" else []
        sources = tuple(self.places[id(source)] for source in node.src)
        wide = self._wide(node.src[1]) if node.op in _ACCESSES else None
        return Step(node, self.places[id(node)], sources, operation(node), body, other, wide)

    def _wide(self, index: UOp) -> Callable[[list[Any]], Any] | None:
        """The index as it would be if its own + - * had 64 bits: what a CPU computes."""
        if index.dtype is not int32 or index.op not in _INDEX_ARITHMETIC:
            return None
        compute, (left, right) = operation(index), (self._leaf(source) for source in index.src)
        return lambda values: compute(left(values), right(values)) if compute else None

    def _leaf(self, node: UOp) -> Callable[[list[Any]], Any]:
        place = self.places[id(node)]
        return self._wide(node) or (lambda values: values[place].astype("int64"))
