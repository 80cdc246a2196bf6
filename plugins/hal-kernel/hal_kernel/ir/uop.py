"""The nodes of the kernel IR.

A kernel is a flat list of nodes in execution order. A node's `src` are earlier nodes of the same
list; nodes are compared by identity. `RANGE ... ENDRANGE`, `LOOP ... ENDLOOP` and
`IF ... [ELSE] ... ENDIF` nest and, with `BREAK`, `CONTINUE` and `RETURN`, are the only control
flow; a value computed inside one is not visible after it - what must survive goes through a local
variable (`VAR`, `SET`, `GET`).

| op | src | arg | dtype of the node |
| --- | --- | --- | --- |
| PARAM | | position in the signature | the parameter's (a pointer's element) |
| CONST | | Python number | any |
| SPECIAL | | (kind, axis), kind in SPECIALS | int32 |
| VAR | | name, for reading only | the variable's; declares it without a value |
| SET | variable, value | | None |
| GET | variable | | the variable's |
| CAST | value | | the target |
| unary, binary, comparison | operands of one dtype | | theirs; bool for comparisons |
| WHERE | bool, value, value | | the values' |
| FMA | three floats | | theirs |
| BITCAST | value | | the target, as wide as the value: the same bits |
| SHARED | | (name, number of elements) | the element's; one array per block, contents undefined |
| LOCAL | | (name, number of elements) | the element's; an array of the thread's own, undefined |
| TABLE | | (name, finite Python numbers) | the element's; constant memory |
| VIEW | PARAM or SHARED | | another element's: the same memory as elements of this dtype |
| LOAD | memory, integer index | | the element's |
| LOAD | memory, integer index, bool, value | | the element's; false gives the value and no read |
| LOAD | memory, integer index | (k, n) | the element's; element k of n from the index on |
| STORE | memory, integer index, value | | None |
| STORE | memory, integer index, value | (k, n) | None; element k of n from the index on |
| ATOMIC | memory, integer index, value | ADD MIN MAX AND OR XOR EXCHANGE | the old value's |
| CAS | memory, integer index, expected, desired | | the element's: the old value |
| ATOMICLOAD | memory, integer index | relaxed acquire | the element's |
| ATOMICSTORE | memory, integer index, value | relaxed release | None |
| BARRIER | | | None; all threads of the block reach it or none |
| FENCE | | | None; this thread's accesses before it come before those after it |
| SHUFFLE | value of 32 or 64 bits, int32 | | the value's; the value of that thread |
| BALLOT | bool | | uint64; bit i is the bool of thread i of the subgroup |
| RANGE | start, stop, step (one integer dtype; step a CONST, not 0) | name | theirs: the counter |
| ENDRANGE | its RANGE | | None |
| LOOP | | | None; repeats until a BREAK or RETURN |
| ENDLOOP | its LOOP | | None |
| BREAK, CONTINUE | the innermost RANGE or LOOP | | None; the last node of their block |
| RETURN | | | None; ends this thread; the last node of its block |
| IF | bool | | None |
| ELSE, ENDIF | its IF | | None |
| ASSERT | bool | message | None; tested in checked mode only |
| PRINT | values | a line of text with a `{}` for each | None; printed in checked mode only |
| ASSERT | integer index, integer extent | its name | None; 0 <= index < extent, checked mode only |
| ASSERT | integer index | its name | None; 0 <= index, checked mode only |

Memory is a PARAM that is a pointer, a SHARED, a LOCAL, a TABLE, or a VIEW of one of the first two.
A LOCAL may stand in a block, and is then undefined again each time; no atomic takes it. Numbers are
stored as float16 and bfloat16, but not computed with: only memory, LOADs, values of STOREs,
BITCASTs, and CASTs from and to float32 have these dtypes; a TABLE has not. The index
of a (k, n) is a multiple of n, which is in VECTORS; its memory is no LOCAL and no TABLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.dtypes import DType, bool_
from hal_core.signature import Signature
from hal_kernel.errors import InvalidKernel

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.source import Source

SPECIALS = ("global_idx", "block_idx", "thread_idx", "block_dim", "grid_dim")
# SPECIALs too; their axis is 0.
SUBGROUP = ("subgroup_size", "subgroup_idx", "subgroup_lane", "subgroup_threads")

ARITHMETIC = frozenset({"ADD", "SUB", "MUL", "MIN", "MAX"})  # integers and floats
FLOAT_BINARY = frozenset({"DIV", "POW", "ATAN2", "FMOD"})
INTEGER_BINARY = frozenset({"FLOORDIV", "MOD", "TRUNCDIV", "TRUNCMOD", "SHL", "SHR"})
BITWISE = frozenset({"AND", "OR", "XOR"})  # integers and bool
BINARY = ARITHMETIC | FLOAT_BINARY | INTEGER_BINARY | BITWISE
COMPARISON = frozenset({"LT", "LE", "GT", "GE", "EQ", "NE"})
FLOAT_UNARY = frozenset(
    {
        "SQRT", "RSQRT", "EXP", "EXP2", "LOG", "LOG2", "SIN", "COS", "TAN", "TANH", "ATAN",
        "FLOOR", "CEIL", "TRUNC", "ROUND", "ISNAN",
    }
)  # fmt: skip
UNARY = frozenset({"NEG", "ABS", "NOT"}) | FLOAT_UNARY  # NOT: bitwise; logical for bool
PURE = UNARY | BINARY | COMPARISON | {"CAST", "BITCAST", "WHERE", "FMA"}  # of its sources alone
OPENS = frozenset({"RANGE", "LOOP", "IF", "ELSE"})  # they open a block
CLOSES = frozenset({"ENDRANGE", "ENDLOOP", "ELSE", "ENDIF"})
LEAVES = frozenset({"BREAK", "CONTINUE", "RETURN"})  # they leave a block before its end
STRUCTURE = OPENS | CLOSES | LEAVES
TABLE_LIMIT = 64 << 10  # bytes of all tables: what every device has as constant memory
TOGETHER = frozenset({"SHUFFLE", "BALLOT"})  # all threads of a subgroup reach them or none
LOCAL_LIMIT = 4096  # bytes of a thread's own arrays: OpenCL on CPUs keeps them on a stack
ATOMICS = frozenset({"ADD", "MIN", "MAX", "AND", "OR", "XOR", "EXCHANGE"})
ORDERS = {"ATOMICLOAD": ("relaxed", "acquire"), "ATOMICSTORE": ("relaxed", "release")}
ATOMIC_OPS = frozenset({"ATOMIC", "CAS", *ORDERS})
MOST_THREADS = 1024  # in a block whose shape the launch decides
VECTORS = (2, 4, 8, 16)  # elements that one access may have


class UOp:
    """One node of a kernel. Nodes never change: a pass makes new ones."""

    __slots__ = ("arg", "dtype", "line", "op", "src")

    op: str
    dtype: DType | None
    src: tuple[UOp, ...]
    arg: Any
    line: int  # its line in the user's file; 0 for none

    def __init__(
        self, op: str, dtype: DType | None = None, src: tuple[UOp, ...] = (), arg: Any = None,
        line: int = 0,
    ) -> None:  # fmt: skip
        _put_op(self, op)
        _put_dtype(self, dtype)
        _put_src(self, src)
        _put_arg(self, arg)
        _put_line(self, line)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a UOp is frozen; make a new one instead of setting {name}")

    __delattr__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[object, ...]:
        return UOp, (self.op, self.dtype, self.src, self.arg, self.line)

    def __repr__(self) -> str:
        arg = "" if self.arg is None else f" {self.arg!r}"
        return f"<UOp {self.op}{arg}{f' {self.dtype!r}' if self.dtype else ''}>"


# The setters of the slots, faster than object.__setattr__: a kernel has hundreds of nodes.
_put_op, _put_dtype, _put_src, _put_arg, _put_line = (
    vars(UOp)[slot].__set__ for slot in ("op", "dtype", "src", "arg", "line")
)


def array_of(memory: UOp) -> UOp:
    """Return the node that memory belongs to: itself, or the PARAM or SHARED of a VIEW."""
    return memory.src[0] if memory.op == "VIEW" else memory


def replaced(node: UOp, new: Mapping[UOp, UOp]) -> UOp:
    """Return a node that takes the new nodes of its sources; the same node if none has one."""
    src = tuple([new.get(source, source) for source in node.src])
    return node if src == node.src else UOp(node.op, node.dtype, src, node.arg, node.line)


def is_gated(node: UOp) -> bool:
    """Tell whether a node is a LOAD that reads only where its third source is true."""
    return node.op == "LOAD" and len(node.src) == 4


def dtype_of(node: UOp) -> DType:
    """Return the dtype of a node that is a value. Raises: InvalidKernel for a store, an IF, ..."""
    if node.dtype is None:
        raise InvalidKernel("read a node", f"{node!r} is not a value")
    return node.dtype


def atomic_name(node: UOp) -> str:
    """Return what an atomic does: ADD, compare-exchange, load."""
    names = {"CAS": "compare-exchange", "ATOMICLOAD": "load", "ATOMICSTORE": "store"}
    return names.get(node.op) or str(node.arg)


def is_fence(node: UOp) -> bool:
    """Tell whether a node orders this thread's accesses: a FENCE, or an atomic with an order."""
    return node.op == "FENCE" or (node.op in ORDERS and node.arg != "relaxed")


def is_bound(node: UOp) -> bool:
    """Tell whether a node is an ASSERT that tests an index, not a condition."""
    return node.op == "ASSERT" and node.src[0].dtype is not bool_


class Kernel(NamedTuple):
    """A kernel as IR, which renderers take.

    `block` is the only block shape that the kernel may be launched with; None leaves the shape to
    the launch. `contract` allows a multiply and an add of one expression to fuse.
    """

    name: str
    signature: Signature
    uops: tuple[UOp, ...]
    block: tuple[int, int, int] | None = None
    contract: bool = True

    @property
    def most_threads(self) -> int:
        """The largest number of threads that a block of this kernel can have."""
        return prod(self.block) if self.block else MOST_THREADS

    @property
    def shared_nbytes(self) -> int:
        """The bytes of shared memory per block, each array rounded up to 16."""
        return self._nbytes("SHARED")

    @property
    def local_nbytes(self) -> int:
        """The bytes of a thread's own arrays, each rounded up to 16."""
        return self._nbytes("LOCAL")

    @property
    def table_nbytes(self) -> int:
        """The bytes of constant memory, each table rounded up to 16."""
        return self._nbytes("TABLE")

    def __hal_source__(self, device: Compiled) -> Source:
        """Return the text of this kernel for a device; `device.compile` calls this.

        Raises: InvalidKernel when the IR breaks a rule; Unsupported; CompilerUnavailable.
        """
        from hal_kernel.ir.verify import verify
        from hal_kernel.ir.writing import source_of

        renderer = device.renderer  # first: a device without a compiler says so
        verify(self)  # a user's own IR may have nodes of any form
        return source_of(self, device, renderer)

    def _nbytes(self, op: str) -> int:
        nodes = [uop for uop in self.uops if uop.op == op]
        arrays = [(len(n.arg[1]) if op == "TABLE" else n.arg[1], n.dtype) for n in nodes]
        return sum(-(-count * dtype.itemsize // 16) * 16 for count, dtype in arrays if dtype)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the nodes as rows with positions: chains of nodes are too deep for recursion."""
        places = {node: place for place, node in enumerate(self.uops)}
        try:
            rows = [
                (node.op, node.dtype, [places[source] for source in node.src], node.arg, node.line)
                for node in self.uops
            ]
        except KeyError as error:
            raise InvalidKernel(
                f"pickle kernel {self.name!r}",
                f"{error.args[0]!r} is a source of a node and is not in `uops`",
                fix="Put every node that another one uses into `uops`.",
            ) from None
        return _from_rows, (self.name, self.signature, rows, self.block, self.contract)


def _from_rows(name: str, signature: Signature, rows: list[Any], *rest: Any) -> Kernel:
    """Return the kernel of the rows that `Kernel.__reduce__` wrote."""
    uops: list[UOp] = []
    for op, dtype, places, arg, line in rows:
        uops.append(UOp(op, dtype, tuple([uops[place] for place in places]), arg, line))
    return Kernel(name, signature, tuple(uops), *rest)
