"""Collect IR nodes in execution order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from hal_core.dtypes import DType, bool_
from hal_kernel.ir import UOp
from hal_kernel.lang.constants import Number

if TYPE_CHECKING:
    import ast

    from hal_kernel.lang.text import SourceText

V = TypeVar("V")

# Ops that are pure and cost no more than a branch: computing an unneeded one does no harm.
_CHEAP = frozenset(
    {
        "CONST", "SPECIAL", "GET", "CAST", "ADD", "SUB", "MUL", "MIN", "MAX", "NEG", "ABS", "NOT",
        "AND", "OR", "XOR", "SHL", "SHR", "LT", "LE", "GT", "GE", "EQ", "NE", "WHERE", "ISNAN",
    }
)  # fmt: skip
_FEW = 8  # most such nodes on one side of a choice that is computed without a branch


class Memory:
    """A pointer, an array, or a part of one, which can be indexed but is not a value itself."""

    __slots__ = ("const", "name", "node", "offset", "origin", "shape")

    def __init__(
        self, name: str, node: UOp, const: bool = False, shape: tuple[UOp | int, ...] | None = None,
        offset: UOp | int | None = None, origin: str | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.node = node  # PARAM, SHARED or VIEW
        self.const = const
        self.shape = shape  # None: a pointer
        # The element of `node` that it begins with. None: it is all of `node`, whose bounds are
        # tested at each access; the shape of a part is tested by ASSERTs of the indices.
        self.offset = offset
        self.origin = origin or name  # the parameter or array that it is a part of

    def called(self, name: str, origin: str | None = None) -> Memory:
        """Return the same memory with another name."""
        origin = origin or self.origin
        return Memory(name, self.node, self.const, self.shape, self.offset, origin)

    def moved(self, move: Callable[[UOp], UOp]) -> Memory:
        """Return the same memory with another node for each value that it is computed from."""

        def new(part: UOp | int) -> UOp | int:
            return move(part) if isinstance(part, UOp) else part

        shape = None if self.shape is None else tuple(map(new, self.shape))
        offset = None if self.offset is None else new(self.offset)
        return Memory(self.name, self.node, self.const, shape, offset, self.origin)


class Nothing:
    """The result of a call that returns no value, as hal.barrier()."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Emitter:
    """The list of nodes that grows while the front end reads a kernel."""

    def __init__(self, block: tuple[int, int, int] | None = None) -> None:
        self.block = block  # None: the launch decides
        # The VARs, arrays and views, declared before everything else: Python's locals are
        # function-wide, and so is memory.
        self.declared: list[UOp] = []
        self.uops: list[UOp] = []
        self.line = 0  # of the user's file; the next nodes get it
        # The id of each node that threads reach together -> its call.
        self.together: dict[int, tuple[SourceText, ast.AST]] = {}
        self.calls: list[object] = []  # functions that are being inlined, the outermost first
        self.made = 0  # nodes, captured ones included, inlined calls and unrolled iterations
        self.tables: dict[int, tuple[Any, Any]] = {}  # id of a captured object -> it, its table
        self.table_nbytes = 0
        self.local_nbytes = 0  # of the thread's own arrays
        self.depth = 0  # open blocks, which a thread may skip

    def node(
        self, op: str, dtype: DType | None = None, src: tuple[UOp, ...] = (), arg: Any = None
    ) -> UOp:
        made = UOp(op, dtype, src, arg, self.line)
        self.uops.append(made)
        self.made += 1
        return made

    def constant(self, value: Number, dtype: DType) -> UOp:
        return self.node("CONST", dtype, (), value)

    def declare(self, op: str, dtype: DType, src: tuple[UOp, ...] = (), arg: object = None) -> UOp:
        made = UOp(op, dtype, src, arg, self.line)
        self.declared.append(made)
        return made

    def variable(self, name: str, dtype: DType) -> UOp:
        return self.declare("VAR", dtype, (), name)

    def view(self, array: UOp, dtype: DType) -> UOp:
        """Return a PARAM or SHARED as memory of another dtype, declared once."""
        for node in self.declared:
            if node.op == "VIEW" and node.src[0] is array and node.dtype is dtype:
                return node
        return array if dtype is array.dtype else self.declare("VIEW", dtype, (array,))

    def set(self, variable: UOp, value: UOp) -> None:
        self.node("SET", None, (variable, value))

    def set_before(self, end: UOp, variable: UOp, value: UOp | Number) -> None:
        """Insert a SET in front of `end`, a node that is in the list already."""
        made = [] if isinstance(value, UOp) else [UOp("CONST", variable.dtype, (), value, end.line)]
        source = value if isinstance(value, UOp) else made[0]
        self.insert_before(end, [*made, UOp("SET", None, (variable, source), None, end.line)])

    def insert_before(self, end: UOp, nodes: list[UOp]) -> None:
        place = next(k for k in range(len(self.uops) - 1, -1, -1) if self.uops[k] is end)
        self.uops[place:place] = nodes

    def open(
        self, op: str, dtype: DType | None = None, src: tuple[UOp, ...] = (), arg: Any = None
    ) -> UOp:
        """Append the node that begins a block."""
        self.depth += 1
        return self.node(op, dtype, src, arg)

    def close(self, block: UOp) -> UOp:
        self.depth -= 1
        return self.node(f"END{block.op}", None, (block,))

    def get(self, variable: UOp) -> UOp:
        return self.node("GET", variable.dtype, (variable,))

    def capture(self, make: Callable[[], V]) -> tuple[V, list[UOp]]:
        """Return the result of `make`, and the nodes it emitted, which are kept out of the list."""
        outer, self.uops = self.uops, []
        self.depth += 1
        try:
            return make(), self.uops
        finally:
            self.uops = outer
            self.depth -= 1

    def choose(
        self, condition: UOp, first: tuple[list[UOp], list[UOp]],
        second: tuple[list[UOp], list[UOp]],
    ) -> list[UOp]:  # fmt: skip
        """Emit `first if condition else second`, each values with the captured nodes they need.

        Both are computed only where that is cheap and has no effect.
        """
        pairs = list(zip(first[0], second[0], strict=True))
        both = first[1] + second[1]
        few = len(first[1]) <= _FEW and len(second[1]) <= _FEW
        if few and all(node.op in _CHEAP for node in both):
            (a, b), *more = pairs
            if a.dtype is bool_ and not more:
                # `c ? x : False` is `c and x`.
                if b.op == "CONST" and b.arg is False:
                    self.uops += first[1]
                    return [self.node("AND", bool_, (condition, a))]
                if a.op == "CONST" and a.arg is True:
                    self.uops += second[1]
                    return [self.node("OR", bool_, (condition, b))]
            self.uops += both
            return [self.node("WHERE", a.dtype, (condition, a, b)) for a, b in pairs]
        # Only one side may run: its values go through variables.
        results = [self.node("VAR", a.dtype, (), "choice") for a, _ in pairs]
        sides = [
            nodes
            + [
                UOp("SET", None, pair, None, self.line)
                for pair in zip(results, values, strict=True)
            ]
            for values, nodes in (first, second)
        ]
        self.branch(condition, *sides)
        return [self.get(result) for result in results]

    def branch(self, condition: UOp, first: list[UOp], second: list[UOp]) -> None:
        """Emit an IF with one of two lists of captured nodes on each side."""
        block = self.node("IF", None, (condition,))
        self.uops += first
        if second:
            self.node("ELSE", None, (block,))
            self.uops += second
        self.node("ENDIF", None, (block,))
