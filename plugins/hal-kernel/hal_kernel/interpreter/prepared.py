"""Prepare a kernel for execution: turn its flat list of nodes into nested steps.

the list                       the steps

0 CONST 1                      0 CONST
1 PARAM y                      1 PARAM
2 LT ...                       2 LT
3 IF 2                         3 IF    body: 4 STORE
4   STORE 1, ...                       other: 6 STORE
5 ELSE 3
6   STORE 1, ...
7 ENDIF 3
8 RETURN                       8 RETURN
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hal_core.dtypes import int32
from hal_kernel.interpreter.operations import operation
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.uop import OPENS, array_of, is_fence

_WRITES = frozenset({"STORE", "ATOMIC", "CAS", "ATOMICSTORE"})
_ACCESSES = _WRITES | {"LOAD", "ATOMICLOAD"}
_ENDS = frozenset({"ENDIF", "ENDRANGE", "ENDLOOP"})
_INDEX_ARITHMETIC = frozenset({"ADD", "SUB", "MUL"})


class Step(NamedTuple):
    """One node, prepared. A place is an index in the kernel's list, and in the list of values."""

    node: UOp
    place: int  # of the node, and of its value
    sources: tuple[int, ...]  # the places of the values that it takes
    compute: Callable[..., Any] | None  # from sources to value; None: a statement, or memory
    body: list[Step]  # of an IF, RANGE or LOOP
    other: list[Step]  # the body of the IF's ELSE
    # Computes in 64 bits, from all values, the index of an access, or what a variable of indices
    # is set to; None where it cannot overflow.
    wide_index: Callable[[list[Any]], Any] | None


class PreparedKernel:
    """The steps of a verified kernel. Errors name `device`."""

    def __init__(self, kernel: Kernel, device: str | None = None) -> None:
        self.name, self.signature, self.uops = kernel.name, kernel.signature, kernel.uops
        self.device = device
        self.places = {node: place for place, node in enumerate(kernel.uops)}
        # Pointers and shared arrays that are only read cannot race.
        self.written = {array_of(node.src[0]) for node in kernel.uops if node.op in _WRITES}
        self.fences = any(map(is_fence, kernel.uops))
        # PARAM or SHARED -> the size of the smallest element that a VIEW of it has.
        self.narrowest: dict[UOp, int] = {}
        for node in kernel.uops:
            if node.op == "VIEW" and node.dtype is not None:
                known = self.narrowest.get(node.src[0], node.dtype.itemsize)
                self.narrowest[node.src[0]] = min(known, node.dtype.itemsize)
        self.wide = self._variables_of_indices()
        self.steps = self._block(iter(kernel.uops))

    def _variables_of_indices(self) -> set[UOp]:
        """Return the int32 variables that indices are sums of, which are kept in 64 bits, too."""
        given: dict[UOp, list[UOp]] = {}  # VAR -> what it is set to
        for node in self.uops:
            if node.op == "SET":
                given.setdefault(node.src[0], []).append(node.src[1])
        waiting = [node.src[1] for node in self.uops if node.op in _ACCESSES]
        seen: set[UOp] = set()
        while waiting:
            node = waiting.pop()
            if node.dtype is not int32 or node in seen:
                continue
            seen.add(node)
            if node.op in _INDEX_ARITHMETIC:
                waiting += node.src
            elif node.op == "GET":
                seen.add(node.src[0])
                waiting += given.get(node.src[0], ())
        return {node for node in seen if node.op == "VAR"}

    def _block(self, nodes: Iterator[UOp]) -> list[Step]:
        """Take nodes up to the end of the open block, and return their steps.

        An ELSE becomes a step whose body is the rest of the block; its IF then takes that body.
        """
        steps: list[Step] = []
        places = self.places
        for node in nodes:
            op = node.op
            if op in _ENDS:
                break
            body = self._block(nodes) if op in OPENS else []
            other = body.pop().body if body and body[-1].node.op == "ELSE" else []
            sources = tuple([places[source] for source in node.src])
            wide = None
            if op in _ACCESSES or (op == "SET" and node.src[0] in self.wide):
                wide = self._wide_index(node.src[1])
            steps.append(Step(node, places[node], sources, operation(node), body, other, wide))
            if op == "ELSE":
                break
        return steps

    def _wide_index(self, node: UOp) -> Callable[[list[Any]], Any] | None:
        """Return a function that computes an index with its + - * in 64 bits, as CPU code does."""
        if node.op == "GET" and node.src[0] in self.wide:
            place = self.places[node] + len(self.uops)
            return lambda values: values[place]
        if node.dtype is not int32 or node.op not in _INDEX_ARITHMETIC:
            return None
        compute: Any = operation(node)
        sources = [(self._wide_index(one), self.places[one]) for one in node.src]

        def wide_index(values: list[Any]) -> Any:
            left, right = (
                wide(values) if wide else values[place].astype("int64") for wide, place in sources
            )
            return compute(left, right)

        return wide_index
