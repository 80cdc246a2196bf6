"""Writes kernel IR by hand, node by node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hal_core.dtypes import DType, bool_, int32
from hal_core.signature import Signature
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.uop import COMPARISON


class Builder:
    """`b = Builder("k", "y: float32*"); b.store("y", b.index(), ...); b.kernel()`."""

    def __init__(self, name: str, signature: str) -> None:
        self.signature = Signature.parse(name, signature)
        self.uops: list[UOp] = []
        self.params = {
            param.name: self.add("PARAM", param.dtype, arg=param.position)
            for param in self.signature.params
        }

    def add(self, op: str, dtype: DType | None = None, *src: UOp, arg: object = None) -> UOp:
        uop = UOp(op, dtype, src, arg)
        self.uops.append(uop)
        return uop

    def const(self, value: float, dtype: DType = int32) -> UOp:
        kind = {"f": float, "b": bool}.get(dtype.kind, int)
        return self.add("CONST", dtype, arg=kind(value))

    def special(self, kind: str, axis: int = 0) -> UOp:
        return self.add("SPECIAL", int32, arg=(kind, axis))

    def index(self) -> UOp:
        return self.special("global_idx")

    def op(self, op: str, *src: UOp) -> UOp:
        """An operation whose dtype follows from its operands."""
        dtype = bool_ if op in COMPARISON or op == "ISNAN" else src[-1].dtype
        return self.add(op, dtype, *src)

    def cast(self, value: UOp, dtype: DType) -> UOp:
        return self.add("CAST", dtype, value)

    def bitcast(self, value: UOp, dtype: DType) -> UOp:
        return self.add("BITCAST", dtype, value)

    def shared(self, name: str, count: int, dtype: DType = int32) -> UOp:
        return self.add("SHARED", dtype, arg=(name, count))

    def local(self, name: str, count: int, dtype: DType = int32) -> UOp:
        return self.add("LOCAL", dtype, arg=(name, count))

    def table(self, values: tuple[float, ...], dtype: DType = int32) -> UOp:
        return self.add("TABLE", dtype, arg=("table", values))

    def memory(self, where: str | UOp) -> UOp:
        """A parameter by its name, or shared memory as it is."""
        return self.params[where] if isinstance(where, str) else where

    def load(self, where: str | UOp, index: UOp) -> UOp:
        memory = self.memory(where)
        return self.add("LOAD", memory.dtype, memory, index)

    def store(self, where: str | UOp, index: UOp, value: UOp) -> None:
        self.add("STORE", None, self.memory(where), index, value)

    def atomic(
        self, op: str, where: str | UOp, index: UOp, *values: UOp, order: str = "relaxed"
    ) -> UOp:
        """`op` is ADD, MIN, MAX, EXCHANGE, CAS, ATOMICLOAD or ATOMICSTORE; these have an order."""
        memory = self.memory(where)
        if op == "CAS":
            return self.add(op, memory.dtype, memory, index, *values)
        if op in ("ATOMICLOAD", "ATOMICSTORE"):
            return self.add(op, None if values else memory.dtype, memory, index, *values, arg=order)
        return self.add("ATOMIC", memory.dtype, memory, index, *values, arg=op)

    def barrier(self) -> None:
        self.add("BARRIER")

    def var(self, name: str, value: UOp) -> UOp:
        variable = self.add("VAR", value.dtype, arg=name)
        self.set(variable, value)
        return variable

    def set(self, variable: UOp, value: UOp) -> None:
        self.add("SET", None, variable, value)

    def get(self, variable: UOp) -> UOp:
        return self.add("GET", variable.dtype, variable)

    def range(self, start: UOp, stop: UOp, step: UOp, name: str = "k") -> UOp:
        return self.add("RANGE", start.dtype, start, stop, step, arg=name)

    def loop(self) -> UOp:
        return self.add("LOOP")

    def end(self, opener: UOp) -> None:
        self.add(f"END{opener.op}", None, opener)

    def break_(self, loop: UOp) -> None:
        self.add("BREAK", None, loop)

    def continue_(self, loop: UOp) -> None:
        self.add("CONTINUE", None, loop)

    def return_(self) -> None:
        self.add("RETURN")

    @contextmanager
    def when(self, condition: UOp) -> Iterator[None]:
        opener = self.if_(condition)
        yield
        self.end(opener)

    def if_(self, condition: UOp) -> UOp:
        return self.add("IF", None, condition)

    def else_(self, opener: UOp) -> None:
        self.add("ELSE", None, opener)

    def kernel(self, block: tuple[int, int, int] | None = None, contract: bool = False) -> Kernel:
        return Kernel(self.signature.name, self.signature, tuple(self.uops), block, contract)
