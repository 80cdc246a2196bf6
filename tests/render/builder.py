"""Writes kernel IR by hand, node by node."""

from contextlib import contextmanager

from hal_core.dtypes import bool_, int32
from hal_core.signature import Signature
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.uop import COMPARISON


class Builder:
    """`b = Builder("k", "y: float32*"); b.store("y", b.index(), ...); b.kernel()`."""

    def __init__(self, name, signature):
        self.signature = Signature.parse(name, signature)
        self.uops = []
        self.params = {
            param.name: self.add("PARAM", param.dtype, arg=param.position)
            for param in self.signature.params
        }

    def add(self, op, dtype=None, *src, arg=None):
        uop = UOp(op, dtype, src, arg)
        self.uops.append(uop)
        return uop

    def const(self, value, dtype=int32):
        kind = {"f": float, "b": bool}.get(dtype.kind, int)
        return self.add("CONST", dtype, arg=kind(value))

    def special(self, kind, axis=0):
        return self.add("SPECIAL", int32, arg=(kind, axis))

    def index(self):
        return self.special("global_idx")

    def op(self, op, *src):
        """An operation whose dtype follows from its operands."""
        dtype = bool_ if op in COMPARISON or op == "ISNAN" else src[-1].dtype
        return self.add(op, dtype, *src)

    def cast(self, value, dtype):
        return self.add("CAST", dtype, value)

    def bitcast(self, value, dtype):
        return self.add("BITCAST", dtype, value)

    def shared(self, name, count, dtype=int32):
        return self.add("SHARED", dtype, arg=(name, count))

    def local(self, name, count, dtype=int32):
        return self.add("LOCAL", dtype, arg=(name, count))

    def table(self, values, dtype=int32):
        return self.add("TABLE", dtype, arg=("table", values))

    def memory(self, where):
        """A parameter by its name, or shared memory as it is."""
        return self.params[where] if isinstance(where, str) else where

    def load(self, where, index):
        memory = self.memory(where)
        return self.add("LOAD", memory.dtype, memory, index)

    def store(self, where, index, value):
        self.add("STORE", None, self.memory(where), index, value)

    def atomic(self, op, where, index, *values, order="relaxed"):
        """`op` is ADD, MIN, MAX, EXCHANGE, CAS, ATOMICLOAD or ATOMICSTORE; these have an order."""
        memory = self.memory(where)
        if op == "CAS":
            return self.add(op, memory.dtype, memory, index, *values)
        if op in ("ATOMICLOAD", "ATOMICSTORE"):
            return self.add(op, None if values else memory.dtype, memory, index, *values, arg=order)
        return self.add("ATOMIC", memory.dtype, memory, index, *values, arg=op)

    def barrier(self):
        self.add("BARRIER")

    def var(self, name, value):
        variable = self.add("VAR", value.dtype, arg=name)
        self.set(variable, value)
        return variable

    def set(self, variable, value):
        self.add("SET", None, variable, value)

    def get(self, variable):
        return self.add("GET", variable.dtype, variable)

    def range(self, start, stop, step, name="k"):
        return self.add("RANGE", start.dtype, start, stop, step, arg=name)

    def loop(self):
        return self.add("LOOP")

    def end(self, opener):
        self.add(f"END{opener.op}", None, opener)

    def break_(self, loop):
        self.add("BREAK", None, loop)

    def continue_(self, loop):
        self.add("CONTINUE", None, loop)

    def return_(self):
        self.add("RETURN")

    @contextmanager
    def when(self, condition):
        opener = self.if_(condition)
        yield
        self.end(opener)

    def if_(self, condition):
        return self.add("IF", None, condition)

    def else_(self, opener):
        self.add("ELSE", None, opener)

    def kernel(self, block=None, contract=False):
        return Kernel(self.signature.name, self.signature, tuple(self.uops), block, contract)
