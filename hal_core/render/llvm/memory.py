"""Variables and memory in LLVM IR: where things lie, loads, stores and atomics."""

from __future__ import annotations

from hal_core.dtypes import DType, int32
from hal_core.ir import UOp
from hal_core.render.llvm.values import INTEGER, Values, type_of
from hal_core.render.renderer import dtype_of

_DEPTH = 6  # of an index expression that is computed in 64 bits
_WHOLE = {
    "ADD": "add", "MIN": "min", "MAX": "max", "AND": "and", "OR": "or", "XOR": "xor",
    "EXCHANGE": "xchg",
}  # fmt: skip


class Memory(Values):
    """Writes accesses; what they reach stands in the entry block, where LLVM wants it."""

    def __init__(self, contract: bool, half: bool, block_threads: int) -> None:
        super().__init__(contract, half)
        self.block_threads = block_threads
        self.frame: list[str] = []  # allocas
        self.access = ""  # metadata of loads and stores here
        self.thread = ""  # this thread's number in the block, where there is one

    # variables

    def declare(self, uop: UOp) -> None:
        """VAR: a register of this thread, as soon as LLVM has seen it. SPILL: one each."""
        name = self.values[uop] = f"%{word(uop.arg)}.{self.number()}"
        dtype = dtype_of(uop)
        if uop.op == "VAR":
            self.frame.append(f"  {name} = alloca {type_of(dtype)}")
        else:
            self._array(name, dtype, self.block_threads)

    def declare_shared(self, uop: UOp) -> None:
        """One array for all blocks that this call runs: one after the other."""
        name = self.values[uop] = f"%{word(uop.arg[0])}.{self.number()}"
        self._array(name, dtype_of(uop), uop.arg[1])

    def _array(self, name: str, dtype: DType, count: int) -> None:
        self.frame.append(f"  {name} = alloca [{count} x {memory_type_of(dtype)}], align 64")

    def set(self, uop: UOp) -> None:
        variable, value = uop.src
        if variable.op == "SPILL":
            self._store(dtype_of(variable), self._own(variable), self.values[value])
        else:
            kind = type_of(dtype_of(variable))
            self.line(f"store {kind} {self.values[value]}, ptr {self.values[variable]}")

    def get(self, uop: UOp) -> None:
        (variable,) = uop.src
        if variable.op == "SPILL":
            self.values[uop] = self._load(dtype_of(uop), self._own(variable))
        else:
            kind = type_of(dtype_of(uop))
            self.values[uop] = self.let(f"load {kind}, ptr {self.values[variable]}")

    def _own(self, spill: UOp) -> str:
        return self._element(dtype_of(spill), self.values[spill], self.thread)

    # memory

    def load(self, uop: UOp) -> None:
        self.values[uop] = self._load(dtype_of(uop), self._address(*uop.src))

    def store(self, uop: UOp) -> None:
        memory, index, value = uop.src
        self._store(dtype_of(value), self._address(memory, index), self.values[value])

    def atomic(self, uop: UOp) -> None:
        """On shared memory an ordinary update does: one thread of the host runs a block."""
        memory, index, value = uop.src
        dtype, given = dtype_of(uop), self.values[value]
        place = self._address(memory, index)
        if memory.op == "SHARED":
            old = self.values[uop] = self._load(dtype, place)
            self._store(dtype, place, self.updated(uop.arg, dtype, old, given))
            return
        kind, how = type_of(dtype), _WHOLE[uop.arg]
        if how in ("min", "max") and dtype.kind == "u":
            how = f"u{how}"
        elif how == "add" and dtype.is_float:
            how = "fadd"
        self.values[uop] = self.let(f"atomicrmw {how} ptr {place}, {kind} {given} monotonic")

    def updated(self, how: str, dtype: DType, old: str, given: str) -> str:
        if how == "EXCHANGE":
            return given
        if how in ("MIN", "MAX"):
            return self.least_or_greatest(how, dtype, old, given)
        how = "fadd" if dtype.is_float else _WHOLE[how]
        return self.let(f"{how} {type_of(dtype)} {old}, {given}")

    def compare_and_swap(self, uop: UOp) -> None:
        memory, index, *pair = uop.src
        expected, desired = (self.values[value] for value in pair)
        dtype, place = dtype_of(uop), self._address(memory, index)
        kind = type_of(dtype)
        if memory.op == "SHARED":
            old = self.values[uop] = self._load(dtype, place)
            same = self.let(f"icmp eq {kind} {old}, {expected}")
            self._store(dtype, place, self.select(same, kind, desired, old))
            return
        both = self.let(
            f"cmpxchg ptr {place}, {kind} {expected}, {kind} {desired} monotonic monotonic"
        )
        self.values[uop] = self.let(f"extractvalue {{ {kind}, i1 }} {both}, 0")

    def _load(self, dtype: DType, place: str) -> str:
        value = self.let(f"load {memory_type_of(dtype)}, ptr {place}{self.access}")
        return self.let(f"icmp ne i8 {value}, 0") if dtype.kind == "b" else value

    def _store(self, dtype: DType, place: str, value: str) -> None:
        if dtype.kind == "b":
            value = self.let(f"zext i1 {value} to i8")
        self.line(f"store {memory_type_of(dtype)} {value}, ptr {place}{self.access}")

    def _address(self, memory: UOp, index: UOp) -> str:
        return self._element(dtype_of(memory), self.values[memory], self._wide(index, _DEPTH))

    def _element(self, dtype: DType, base: str, wide: str) -> str:
        kind = memory_type_of(dtype)
        return self.let(f"getelementptr inbounds {kind}, ptr {base}, i64 {wide}")

    def _wide(self, index: UOp, depth: int) -> str:
        """An index as i64. One too large for int32 is undefined, so its arithmetic need not wrap:
        in 64 bits LLVM sees that neighbours in the index are neighbours in memory."""
        dtype, value = dtype_of(index), self.values[index]
        if dtype.itemsize == 8 or index.op == "CONST":
            return value
        if depth and dtype is int32 and index.op in ("ADD", "SUB", "MUL"):
            a, b = (self._wide(source, depth - 1) for source in index.src)
            return self.let(f"{INTEGER[index.op]} i64 {a}, {b}")
        return self.let(
            f"{'sext' if dtype.kind == 'i' else 'zext'} {type_of(dtype)} {value} to i64"
        )


def memory_type_of(dtype: DType) -> str:
    return "i8" if dtype.kind == "b" else type_of(dtype)


def word(arg: object) -> str:
    """A variable's own name where it has one that LLVM reads."""
    return str(arg) if str(arg).isascii() and str(arg).isidentifier() else "v"
