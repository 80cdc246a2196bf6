"""Write parameters, global and shared memory, and atomics in PTX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hal_core.dtypes import DType, bool_, uint32, uint64
from hal_core.signature import Param
from hal_cuda.render.casts import bitcast
from hal_cuda.render.text import kind_of, literal, memory_type_of, type_of
from hal_cuda.render.values import Values
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.uop import array_of, dtype_of
from hal_kernel.ir.vectors import NBYTES, vectors
from hal_kernel.render.renderer import MOST_STATIC_NBYTES

_SPACES = {"PARAM": "global", "SHARED": "shared", "LOCAL": "local", "TABLE": "const"}
_OF_BITS = {"EXCHANGE": "exch", "AND": "and", "OR": "or", "XOR": "xor"}
_ALL = "0xffffffff"  # the threads of a warp; those that do not exist count as ended


class Accesses(Values):
    """Write accesses to memory. Addresses are 64 bits wide, in the state space global or shared."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel.contract)
        self.kernel = kernel
        self.vectors = vectors(kernel.uops)
        self.lanes = {lane for lanes in self.vectors.values() for lane in lanes[1:]}
        self.arrays: list[str] = []  # declarations
        self.is_dynamic, self.shared_nbytes = kernel.shared_nbytes > MOST_STATIC_NBYTES, 0
        # Likewise, ahead of the entry.
        self.tables = [".extern .shared .align 16 .b8 hal_shared[];"] if self.is_dynamic else []

    def parameters(self) -> list[str]:
        params = self.kernel.signature.params
        kinds = ("u64" if param.is_pointer else memory_type_of(param.dtype) for param in params)
        lines = [
            f"    .param .{kind} {self._name(param)}"
            for kind, param in zip(kinds, params, strict=True)
        ]
        return [f"{line}," for line in lines[:-1]] + lines[-1:]

    def _name(self, param: Param) -> str:
        """Return a parameter's name, with a prefix so that it is no word of PTX."""
        return f"{self.kernel.name}_param_{param.name}"

    def on_PARAM(self, uop: UOp) -> None:
        param = self.kernel.signature.params[uop.arg]
        if param.is_pointer:
            generic = self.let("ld.param.u64", "b64", f"[{self._name(param)}]")
            # Accesses name the state space global, whose addresses may differ from generic ones.
            self.values[uop] = self.let("cvta.to.global.u64", "b64", generic)
        else:
            self.values[uop] = self._read("ld.param", param.dtype, self._name(param))

    def on_LOAD(self, uop: UOp) -> None:
        if uop in self.vectors:
            self._load_vector(uop, self.vectors[uop])
        elif uop not in self.lanes:
            self.values[uop] = self._read(f"ld.{_space(uop)}", dtype_of(uop), self._address(uop))

    def _load_vector(self, uop: UOp, lanes: Sequence[UOp]) -> None:
        dtype = dtype_of(uop)
        register = "b32" if dtype is bool_ else kind_of(dtype)
        values = [self.register(register) for _ in lanes]
        for how, place, part in self._parts(uop, values):
            self.line(f"@{how.format(f'ld.{_space(uop)}')} {part}, {place}")
        for lane, value in zip(lanes, values, strict=True):
            is_bool = dtype is bool_
            self.values[lane] = self.test("ne", "s32", value, "0") if is_bool else value

    def _parts(self, uop: UOp, values: list[str]) -> Iterator[tuple[str, str, str]]:
        """Yield the accesses of a vector: a predicate and an instruction, an address, registers.

        They are of up to 4 elements and 16 bytes where the address allows it, and of one otherwise.
        """
        kind, size = memory_type_of(dtype_of(uop.src[0])), dtype_of(uop.src[0]).itemsize
        count = min(len(values), 4, NBYTES // size)
        address = self._address(uop)
        rest = self.let("and.b64", "b64", address, str(count * size - 1))
        whole = self.test("eq", "u64", rest, "0")
        for lane in range(0, len(values), count):
            part = ", ".join(values[lane : lane + count])
            yield f"{whole} {{}}.v{count}.{kind}", f"[{address}+{lane * size}]", f"{{{part}}}"
        for lane, value in enumerate(values):
            yield f"!{whole} {{}}.{kind}", f"[{address}+{lane * size}]", value

    def _read(self, instruction: str, dtype: DType, address: str) -> str:
        kind = "b32" if dtype is bool_ else kind_of(dtype)
        value = self.let(f"{instruction}.{memory_type_of(dtype)}", kind, f"[{address}]")
        return self.test("ne", "s32", value, "0") if dtype is bool_ else value

    def on_SHARED(self, uop: UOp) -> None:
        space = _SPACES[uop.op]
        name, nbytes = self.name(space), uop.arg[1] * dtype_of(uop).itemsize
        if self.is_dynamic and uop.op == "SHARED":
            name = f"hal_shared+{self.shared_nbytes}"
            self.shared_nbytes += -(-nbytes // 16) * 16
        else:
            self.arrays.append(f"    .{space} .align 16 .b8 {name}[{nbytes}];")
        self.values[uop] = self.let("mov.u64", "b64", name)

    on_LOCAL = on_SHARED

    def on_TABLE(self, uop: UOp) -> None:
        (_, values), dtype, name = uop.arg, dtype_of(uop), self.name("table")
        elements = (
            str(int(value)) if dtype is bool_ else literal(value, dtype) for value in values
        )
        kind = memory_type_of(dtype)
        self.tables.append(
            f".const .align 16 .{kind} {name}[{len(values)}] = {{{', '.join(elements)}}};"
        )
        self.values[uop] = self.let("mov.u64", "b64", name)

    def on_VIEW(self, uop: UOp) -> None:
        self.values[uop] = self.values[uop.src[0]]  # addresses have no type

    def _address(self, uop: UOp) -> str:
        memory, index = uop.src[:2]
        size, base, place = dtype_of(memory).itemsize, self.values[memory], self.values[index]
        if isinstance(uop.arg, tuple) and uop.arg[0]:
            base = self.let("add.s64", "b64", base, str(uop.arg[0] * size))
        if index.op == "CONST":
            return self.let("add.s64", "b64", base, literal(index.arg * size % 2**64, uint64))
        kind = type_of(dtype_of(index))
        if kind.endswith("32"):
            offset = self.let(f"mul.wide.{kind}", "b64", place, str(size))
        else:
            offset = self.let("mul.lo.s64", "b64", place, str(size))
        return self.let("add.s64", "b64", base, offset)

    def on_STORE(self, uop: UOp) -> None:
        if uop in self.vectors:
            values = [self._stored(lane) for lane in self.vectors[uop]]
            for how, place, part in self._parts(uop, values):
                self.line(f"@{how.format(f'st.{_space(uop)}')} {place}, {part}")
        elif uop not in self.lanes:
            value, kind = self._stored(uop), memory_type_of(dtype_of(uop.src[0]))
            self.line(f"st.{_space(uop)}.{kind} [{self._address(uop)}], {value}")

    def _stored(self, uop: UOp) -> str:
        """Return the register, or the number, that a STORE writes."""
        value = self.values[uop.src[2]]
        is_bool = dtype_of(uop.src[0]) is bool_
        return self.select(value, "b32", "1", "0") if is_bool else value

    def on_ATOMIC(self, uop: UOp) -> None:
        dtype = dtype_of(uop)
        kind = kind_of(dtype)
        if uop.op == "CAS":
            action = f"cas.b{8 * dtype.itemsize}"
        elif uop.arg in _OF_BITS:
            action = f"{_OF_BITS[uop.arg]}.b{8 * dtype.itemsize}"
        elif uop.arg == "ADD" and dtype.is_integer:
            action = f"add.u{8 * dtype.itemsize}"  # wraps, so it is right for signed numbers too
        else:
            action = f"{uop.arg.lower()}.{type_of(dtype)}"
        operands = [self.values[source] for source in uop.src[2:]]
        instruction = f"atom.relaxed.gpu.{_space(uop)}.{action}"
        place = f"[{self._address(uop)}]"
        self.values[uop] = self.let(instruction, kind, place, *operands)

    on_CAS = on_ATOMIC

    def on_ATOMICLOAD(self, uop: UOp) -> None:
        instruction = f"ld.{uop.arg}.gpu.{_space(uop)}"
        self.values[uop] = self._read(instruction, dtype_of(uop), self._address(uop))

    def on_ATOMICSTORE(self, uop: UOp) -> None:
        kind = memory_type_of(dtype_of(uop.src[0]))
        place, value = self._address(uop), self._stored(uop)
        self.line(f"st.{uop.arg}.gpu.{_space(uop)}.{kind} [{place}], {value}")

    def on_FENCE(self, uop: UOp) -> None:
        self.line("fence.acq_rel.gpu")

    # -- subgroups: a warp, whose threads all come here

    def on_SHUFFLE(self, uop: UOp) -> None:
        dtype, (value, lane) = dtype_of(uop), (self.values[source] for source in uop.src)
        bits = uint64 if dtype.itemsize == 8 else uint32
        value = bitcast(self, value, dtype, bits)
        if not value.startswith("%"):
            value = self.let(f"mov.b{8 * bits.itemsize}", kind_of(bits), value)
        if bits is uint32:
            result = self._from_lane(value, lane)
        else:
            high = self.let("cvt.u32.u64", "b32", self.let("shr.u64", "b64", value, "32"))
            low = self._from_lane(self.let("cvt.u32.u64", "b32", value), lane)
            high = self.let("cvt.u64.u32", "b64", self._from_lane(high, lane))
            low = self.let("cvt.u64.u32", "b64", low)
            result = self.let("or.b64", "b64", self.let("shl.b64", "b64", high, "32"), low)
        self.values[uop] = bitcast(self, result, bits, dtype)

    def _from_lane(self, value: str, lane: str) -> str:
        return self.let("shfl.sync.idx.b32", "b32", value, lane, "31", _ALL)

    def on_BALLOT(self, uop: UOp) -> None:
        condition = self.values[uop.src[0]]
        if uop.src[0].op == "CONST":
            condition = self.let("mov.pred", "pred", condition)
        votes = self.let("vote.sync.ballot.b32", "b32", condition, _ALL)
        self.values[uop] = self.let("cvt.u64.u32", "b64", votes)


def _space(uop: UOp) -> str:
    """Return the state space of an access."""
    return _SPACES[array_of(uop.src[0]).op]
