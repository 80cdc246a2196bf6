"""Write variables and memory in LLVM IR: stack slots, loads, stores and atomics."""

from __future__ import annotations

from hal_core.dtypes import DType, int32
from hal_cpu.render.values import INTEGER, Values, literal, type_of
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import array_of, dtype_of

_DEPTH = 6  # nested operations of an index that are computed again in 64 bits
_WHOLE = {
    "ADD": "add", "MIN": "min", "MAX": "max", "AND": "and", "OR": "or", "XOR": "xor",
    "EXCHANGE": "xchg",
}  # fmt: skip


class Memory(Values):
    """Write accesses to memory; arrays and variables are declared in the entry block."""

    def __init__(self, half: bool, block_threads: int) -> None:
        super().__init__(half)
        self.block_threads = block_threads
        self.frame: list[str] = []  # the allocas of the entry block
        self.access = ""  # metadata that loads and stores carry now
        self.same: dict[UOp, UOp] = {}  # nodes that equal another one in the loop that is written
        self.differing: set[UOp] = set()  # nodes that differ between the threads of that loop
        self.thread = ""  # number of this thread in its block; empty outside of threads

    # -- variables

    def on_VAR(self, uop: UOp) -> None:
        # LLVM turns the stack slot into a register (mem2reg).
        name = self.values[uop] = f"%{word(uop.arg)}.{self.number()}"
        self.frame.append(f"  {name} = alloca {type_of(dtype_of(uop))}")

    def on_SPILL(self, uop: UOp) -> None:
        # An array with an element for each thread of the block, whose values cross a barrier.
        name = self.values[uop] = f"%{word(uop.arg)}.{self.number()}"
        self._array(name, dtype_of(uop), self.block_threads)

    def on_SHARED(self, uop: UOp) -> None:
        # One array serves all blocks of this call, which run one after the other.
        name = self.values[uop] = f"%{word(uop.arg[0])}.{self.number()}"
        self._array(name, dtype_of(uop), uop.arg[1])

    def on_LOCAL(self, uop: UOp) -> None:
        # One array serves all threads where they run one after the other; elsewhere there is none.
        name = self.values[uop] = f"%{word(uop.arg[0])}.{self.number()}"
        self._array(name, dtype_of(uop), uop.arg[1])

    def _array(self, name: str, dtype: DType, count: int) -> None:
        """Declare an array in the entry block, aligned for vectors."""
        self.frame.append(f"  {name} = alloca [{count} x {memory_type_of(dtype)}], align 64")

    def on_SET(self, uop: UOp) -> None:
        variable, value = uop.src
        if variable.op == "SPILL":
            self._store(dtype_of(variable), self._own(variable), self.values[value])
        else:
            kind = type_of(dtype_of(variable))
            self.line(f"store {kind} {self.values[value]}, ptr {self.values[variable]}")

    def on_GET(self, uop: UOp) -> None:
        (variable,) = uop.src
        if variable.op == "SPILL":
            self.values[uop] = self._load(dtype_of(uop), self._own(variable))
        else:
            kind = type_of(dtype_of(uop))
            self.values[uop] = self.let(f"load {kind}, ptr {self.values[variable]}")

    def on_COUNT(self, uop: UOp) -> None:
        variable, value = (self.values[source] for source in uop.src)
        total = self.let(f"add i32 {self.let(f'load i32, ptr {variable}')}, {value}")
        self.line(f"store i32 {total}, ptr {variable}")

    def _own(self, spill: UOp) -> str:
        """Return the address of this thread's element of a SPILL."""
        return self._element(dtype_of(spill), self.values[spill], self.thread)

    # -- memory

    def on_TABLE(self, uop: UOp) -> None:
        (_, values), dtype = uop.arg, dtype_of(uop)
        kind, name = memory_type_of(dtype), f"@hal.table.{self.number()}"
        elements = (
            f"{kind} {int(value) if dtype.kind == 'b' else literal(value, dtype)}"
            for value in values
        )
        text = f"internal constant [{len(values)} x {kind}] [{', '.join(elements)}], align 16"
        self.declarations[f"{name} = {text}"] = None
        self.values[uop] = name

    def on_VIEW(self, uop: UOp) -> None:
        self.values[uop] = self.values[uop.src[0]]  # pointers have no type

    def on_LOAD(self, uop: UOp) -> None:
        self.values[uop] = self._load(dtype_of(uop), self._address(uop))

    def on_STORE(self, uop: UOp) -> None:
        value = uop.src[2]
        self._store(dtype_of(value), self._address(uop), self.values[value])

    def on_ATOMIC(self, uop: UOp) -> None:
        memory, _, value = uop.src
        dtype, given = dtype_of(uop), self.values[value]
        place = self._address(uop)
        if array_of(memory).op == "SHARED":
            # A plain update is enough: one thread of the host runs all threads of a block.
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
        """Return the new value of an element that an atomic operation changes."""
        if how == "EXCHANGE":
            return given
        if how in ("MIN", "MAX"):
            return self.least_or_greatest(how, dtype, old, given)
        how = "fadd" if dtype.is_float else _WHOLE[how]
        return self.let(f"{how} {type_of(dtype)} {old}, {given}")

    def on_ATOMICLOAD(self, uop: UOp) -> None:
        if array_of(uop.src[0]).op == "SHARED":
            self.on_LOAD(uop)
            return
        dtype, order = dtype_of(uop), uop.arg.replace("relaxed", "monotonic")
        place = self._address(uop)
        self.values[uop] = self.let(
            f"load atomic {type_of(dtype)}, ptr {place} {order}, align {dtype.itemsize}"
        )

    def on_ATOMICSTORE(self, uop: UOp) -> None:
        memory, _, value = uop.src
        if array_of(memory).op == "SHARED":
            self.on_STORE(uop)
            return
        dtype, order = dtype_of(value), uop.arg.replace("relaxed", "monotonic")
        given, place = self.values[value], self._address(uop)
        self.line(
            f"store atomic {type_of(dtype)} {given}, ptr {place} {order}, align {dtype.itemsize}"
        )

    def on_FENCE(self, uop: UOp) -> None:
        self.line("fence acq_rel")

    def on_CAS(self, uop: UOp) -> None:
        memory, _, *pair = uop.src
        expected, desired = (self.values[value] for value in pair)
        dtype, place = dtype_of(uop), self._address(uop)
        kind = type_of(dtype)
        if array_of(memory).op == "SHARED":
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

    def _address(self, uop: UOp) -> str:
        memory, index = uop.src[:2]
        wide = self._strided(index) or self._wide(index, _DEPTH)
        # Plain elements: LLVM makes vectors of them, and of the loop over threads, itself.
        if isinstance(uop.arg, tuple) and uop.arg[0]:
            wide = self.let(f"add i64 {wide}, {uop.arg[0]}")
        return self._element(dtype_of(memory), self.values[memory], wide)

    def _element(self, dtype: DType, base: str, wide: str) -> str:
        kind = memory_type_of(dtype)
        return self.let(f"getelementptr inbounds {kind}, ptr {base}, i64 {wide}")

    def _wide(self, index: UOp, depth: int, clamped: bool = False) -> str:
        """Return an index as i64.

        An index that overflows int32 is undefined, so its arithmetic need not wrap. Computed in 64
        bits, LLVM sees that consecutive indices are consecutive in memory. In a clamp that is left
        out here, what the threads of a row share may wrap.
        """
        wraps = clamped and index not in self.differing
        while index in self.same:
            index, clamped, wraps = self.same[index], True, False
        dtype, value = dtype_of(index), self.values[index]
        if dtype.itemsize == 8 or index.op == "CONST":
            return value
        if depth and dtype is int32 and index.op in ("ADD", "SUB", "MUL") and not wraps:
            a, b = (self._wide(source, depth - 1, clamped) for source in index.src)
            return self.let(f"{INTEGER[index.op]} i64 {a}, {b}")
        return self.let(
            f"{'sext' if dtype.kind == 'i' else 'zext'} {type_of(dtype)} {value} to i64"
        )

    def _strided(self, index: UOp) -> str:
        """Return an index such as `(j * w + i) * 3 + c` as `(j * w * 3 + c) + i * 3`, else "".

        LLVM then finds that neighbours along x are three elements apart, and loads the colours of
        several pixels as vectors, which it sorts. In the other order it knows of no such sum that
        it does not wrap.
        """
        own, shared = list[tuple[UOp, int]](), list[tuple[UOp, int]]()
        pending = [(index, 1)]
        while pending:
            node, factor = pending.pop()
            if node in self.same or len(own) + len(shared) + len(pending) > _DEPTH:
                return ""
            inner = node in self.differing and node.dtype is int32
            times = [part.arg for part in node.src if part.op == "CONST"]
            if inner and node.op in ("ADD", "SUB"):
                a, b = node.src
                pending += [(b, factor if node.op == "ADD" else -factor), (a, factor)]
            elif inner and node.op == "MUL" and len(times) == 1:
                number = next(part for part in node.src if part.op != "CONST")
                pending.append((number, factor * times[0]))
            else:
                (own if node in self.differing else shared).append((node, factor))
        if not any(node.op != "CONST" and abs(factor) > 1 for node, factor in shared):
            return ""
        total = ""
        for node, factor in (*shared, *own):
            term = self._wide(node, _DEPTH)
            if factor != 1:
                term = self.let(f"mul i64 {term}, {factor}")
            total = self.let(f"add i64 {total}, {term}") if total else term
        return total


def memory_type_of(dtype: DType) -> str:
    """Return the type of an element in memory, where a bool is a byte."""
    return "i8" if dtype.kind == "b" else type_of(dtype)


def word(arg: object) -> str:
    """Return a variable's own name, or `v` if that is no identifier for LLVM."""
    return str(arg) if str(arg).isascii() and str(arg).isidentifier() else "v"
