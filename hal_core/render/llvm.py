"""LLVM IR for the CPU, in the calling convention of hal-cpu; text that LLVM 15 and later read.

Names with a dot are ours, names without are the user's parameters. No target is named: the
backend sets triple and data layout.
"""

from __future__ import annotations

from collections.abc import Callable

from hal_core.dtypes import DTYPES, DType
from hal_core.errors import InvalidKernel
from hal_core.ir import Kernel, UOp
from hal_core.render.literals import llvm_float, power_of_two
from hal_core.render.llvm_helpers import floor_division, modulo
from hal_core.render.names import Names
from hal_core.render.renderer import Renderer

_DEPTH = 6  # of an index expression that is computed in 64 bits
_AXES = "xyz"
_INTEGER = {"ADD": "add", "SUB": "sub", "MUL": "mul", "AND": "and", "OR": "or", "XOR": "xor"}
_FLOAT = {"ADD": "fadd", "SUB": "fsub", "MUL": "fmul", "DIV": "fdiv", "FMOD": "frem"}
_SIGNED_COMPARE = {"LT": "slt", "LE": "sle", "GT": "sgt", "GE": "sge", "EQ": "eq", "NE": "ne"}
_UNSIGNED_COMPARE = {"LT": "ult", "LE": "ule", "GT": "ugt", "GE": "uge", "EQ": "eq", "NE": "ne"}
_FLOAT_COMPARE = {"LT": "olt", "LE": "ole", "GT": "ogt", "GE": "oge", "EQ": "oeq", "NE": "une"}
_INTRINSICS = {
    "SQRT": "sqrt", "EXP": "exp", "EXP2": "exp2", "LOG": "log", "LOG2": "log2", "SIN": "sin",
    "COS": "cos", "FLOOR": "floor", "CEIL": "ceil", "TRUNC": "trunc", "ROUND": "rint",
    "ABS": "fabs", "POW": "pow", "FMA": "fma",
}  # fmt: skip
# No intrinsics before LLVM 19: the C library's.
_LIBRARY = {"TAN": "tan", "TANH": "tanh", "ATAN": "atan", "ATAN2": "atan2"}
# Threads of a block are independent: no access of one turn waits for another turn's.
_PARALLEL = """
!0 = distinct !{}
!1 = !{!"llvm.loop.parallel_accesses", !0}
!2 = distinct !{!2, !1}
"""
_PARAMETERS = "ptr %hal.args, ptr %hal.launch, i64 %hal.first, i64 %hal.last"
_ACCESS = ", !llvm.access.group !0"


class LLVMRenderer(Renderer):
    """LLVM IR; one exported function, everything else internal."""

    name, language = "LLVM IR", "llvm"

    def _render(self, kernel: Kernel) -> str:
        return _Module(kernel).whole()


def _type(dtype: DType) -> str:
    """The type of a value; in memory a bool is an i8."""
    if dtype.kind == "f":
        return "float" if dtype.itemsize == 4 else "double"
    return "i1" if dtype.kind == "b" else f"i{8 * dtype.itemsize}"


def _dtype(uop: UOp) -> DType:
    if uop.dtype is None:  # verify has refused it before
        raise InvalidKernel("render", f"{uop!r} is not a value")
    return uop.dtype


class _Loop:
    """A loop being written: the names of its blocks and how its counter goes on."""

    def __init__(self, name: str, kind: str, advance: str, step: str) -> None:
        self.name, self.kind, self.advance, self.step = name, kind, advance, step


class _Module:
    """One kernel on its way to text."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        names = Names(frozenset())
        self.params = [names.take(param.name) for param in kernel.signature.params]
        self.count = 0
        self.block = "hal.entry"  # the label that the next instruction belongs to
        self.variables: list[str] = []  # allocas, which LLVM wants in the entry block
        self.lines: list[str] = []
        self.values: dict[UOp, str] = {}
        self.specials: dict[tuple[str, int], str] = {}
        self.loops: list[_Loop] = []
        self.branches: dict[UOp, str] = {}  # IF -> the name its labels start with
        self.declarations: dict[str, None] = {}
        self.helpers: dict[str, str] = {}
        self.fast = "contract " if kernel.contract else ""

    def whole(self) -> str:
        self._enter()
        for uop in self.kernel.uops:
            self._node(uop)
        self._leave()
        head = f"define void @{self.kernel.name}({_PARAMETERS}) {{"
        parts = [*self.declarations, "", *self.helpers.values(), head, "hal.entry:"]
        parts += [*self.variables, *self.lines, "}"]
        return "\n".join(parts).lstrip("\n") + "\n" + _PARALLEL

    # text

    def _line(self, text: str) -> None:
        self.lines.append("  " + text)

    def _let(self, text: str, name: str | None = None) -> str:
        if name is None:
            name = f"%v.{self._number()}"
        self._line(f"{name} = {text}")
        return name

    def _number(self) -> int:
        self.count += 1
        return self.count - 1

    def _label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def _open_loop(
        self, name: str, kind: str, start: str, stop: str, order: str, step: str = "1",
        advance: str = "add nsw",
    ) -> str:  # fmt: skip
        """`for (name = start; name ORDER stop; name += step)`; the counter."""
        before = self.block
        self._line(f"br label %{name}.head")
        self._label(f"{name}.head")
        following = f"[ %{name}.next, %{name}.step ]"
        self._let(f"phi {kind} [ {start}, %{before} ], {following}", f"%{name}")
        more = self._let(f"icmp {order} {kind} %{name}, {stop}", f"%{name}.more")
        self._line(f"br i1 {more}, label %{name}.body, label %{name}.end")
        self._label(f"{name}.body")
        self.loops.append(_Loop(name, kind, advance, step))
        return f"%{name}"

    def _close_loop(self, metadata: str = "") -> None:
        loop = self.loops.pop()
        name = loop.name
        self._line(f"br label %{name}.step")
        self._label(f"{name}.step")
        self._let(f"{loop.advance} {loop.kind} %{name}, {loop.step}", f"%{name}.next")
        self._line(f"br label %{name}.head{metadata}")
        self._label(f"{name}.end")

    # the frame: arguments, the loop over blocks, the loops over threads

    def _enter(self) -> None:
        for param, name in zip(self.kernel.signature.params, self.params, strict=True):
            slot = self._let(f"getelementptr i8, ptr %hal.args, i64 {8 * param.position}")
            self._load_argument(name, "ptr" if param.is_pointer else param.dtype, slot)
        dims = ["grid.dim.x", "grid.dim.y", "grid.dim.z"]
        fixed = self.kernel.block
        for axis in range(3):
            if fixed is None:
                dims.append(f"block.dim.{_AXES[axis]}")
            else:
                self.specials["block_dim", axis] = str(fixed[axis])
        for position, name in enumerate(dims):
            slot = self._let(f"getelementptr i32, ptr %hal.launch, i64 {position}")
            kind = "grid_dim" if position < 3 else "block_dim"
            self.specials[kind, position % 3] = self._let(f"load i32, ptr {slot}", f"%{name}")
        wide = [self._let(f"zext i32 {self.specials['grid_dim', axis]} to i64") for axis in (0, 1)]
        block = self._open_loop("each.block", "i64", "%hal.first", "%hal.last", "slt")
        rows = self._let(f"sdiv i64 {block}, {wide[0]}")
        places = (
            self._let(f"srem i64 {block}, {wide[0]}"),
            self._let(f"srem i64 {rows}, {wide[1]}"),
            self._let(f"sdiv i64 {rows}, {wide[1]}"),
        )
        first = []
        for axis, place in enumerate(places):
            name = f"%block.{_AXES[axis]}"
            index = self._let(f"trunc i64 {place} to i32", name)
            self.specials["block_idx", axis] = index
            dim = self.specials["block_dim", axis]
            first.append(self._let(f"mul nsw i32 {index}, {dim}"))
        for axis in (2, 1, 0):
            name, dim = f"thread.{_AXES[axis]}", self.specials["block_dim", axis]
            thread = self._open_loop(name, "i32", "0", dim, "slt")
            self.specials["thread_idx", axis] = thread
            # The launch checks that it fits: no wrap, which is what lets LLVM vectorise.
            place = self._let(f"add nsw i32 {first[axis]}, {thread}", f"%global.{_AXES[axis]}")
            self.specials["global_idx", axis] = place

    def _load_argument(self, name: str, kind: DType | str, slot: str) -> None:
        if isinstance(kind, str):
            self._let(f"load {kind}, ptr {slot}", f"%{name}")
        elif kind.kind == "b":
            byte = self._let(f"load i8, ptr {slot}")
            self._let(f"icmp ne i8 {byte}, 0", f"%{name}")
        else:
            self._let(f"load {_type(kind)}, ptr {slot}", f"%{name}")

    def _leave(self) -> None:
        self._close_loop(", !llvm.loop !2")
        for _ in range(3):
            self._close_loop()
        self._line("ret void")

    # nodes

    def _node(self, uop: UOp) -> None:
        op = uop.op
        if op in _STATEMENTS:
            _STATEMENTS[op](self, uop)
        elif op == "PARAM":
            self.values[uop] = f"%{self.params[uop.arg]}"
        elif op == "CONST":
            self.values[uop] = _literal(uop.arg, _dtype(uop))
        elif op == "SPECIAL":
            self.values[uop] = self.specials[uop.arg]
        else:
            operands = [self.values[source] for source in uop.src]
            self.values[uop] = self._value(uop, operands)

    def _var(self, uop: UOp) -> None:
        name = f"%{_word(uop.arg)}.{self._number()}"
        self.variables.append(f"  {name} = alloca {_type(_dtype(uop))}")
        self.values[uop] = name

    def _set(self, uop: UOp) -> None:
        variable, value = uop.src
        kind = _type(_dtype(variable))
        self._line(f"store {kind} {self.values[value]}, ptr {self.values[variable]}")

    def _address(self, pointer: UOp, index: UOp) -> str:
        wide = self._wide(index, _DEPTH)
        element = _memory_type(_dtype(pointer))
        base = self.values[pointer]
        return self._let(f"getelementptr inbounds {element}, ptr {base}, i64 {wide}")

    def _wide(self, index: UOp, depth: int) -> str:
        """An index as i64. One too large for int32 is undefined, so its arithmetic need not wrap:
        in 64 bits LLVM sees that neighbours in the index are neighbours in memory."""
        dtype, value = _dtype(index), self.values[index]
        if dtype.itemsize == 8 or index.op == "CONST":
            return value
        if depth and dtype is DTYPES["int32"] and index.op in ("ADD", "SUB", "MUL"):
            a, b = (self._wide(source, depth - 1) for source in index.src)
            return self._let(f"{_INTEGER[index.op]} i64 {a}, {b}")
        return self._let(f"{'sext' if dtype.kind == 'i' else 'zext'} {_type(dtype)} {value} to i64")

    def _store(self, uop: UOp) -> None:
        pointer, index, value = uop.src
        address, text = self._address(pointer, index), self.values[value]
        if _dtype(value).kind == "b":
            text = self._let(f"zext i1 {text} to i8")
        self._line(f"store {_memory_type(_dtype(value))} {text}, ptr {address}{_ACCESS}")

    def _load(self, uop: UOp) -> str:
        address = self._address(*uop.src)
        value = self._let(f"load {_memory_type(_dtype(uop))}, ptr {address}{_ACCESS}")
        return self._let(f"icmp ne i8 {value}, 0") if _dtype(uop).kind == "b" else value

    def _if(self, uop: UOp) -> None:
        name = self.branches[uop] = f"if.{self._number()}"
        condition = self.values[uop.src[0]]
        self._line(f"br i1 {condition}, label %{name}.then, label %{name}.else")
        self._label(f"{name}.then")

    def _else(self, uop: UOp) -> None:
        name = self.branches[uop.src[0]]
        self._line(f"br label %{name}.end")
        self._label(f"{name}.else")

    def _endif(self, uop: UOp) -> None:
        name = self.branches[uop.src[0]]
        if f"{name}.else:" not in self.lines:
            self._else(uop)
        self._line(f"br label %{name}.end")
        self._label(f"{name}.end")

    def _range(self, uop: UOp) -> None:
        start, stop = (self.values[source] for source in uop.src[:2])
        dtype, step = _dtype(uop), uop.src[2].arg
        kind, signed = _type(dtype), dtype.kind == "i"
        order = ("s" if signed else "u") + ("lt" if step > 0 else "gt")
        name = f"{_word(uop.arg)}.{self._number()}"
        if abs(step) == 1:
            wraps = "add nsw" if signed else "add nuw" if step > 0 else "add"
            text = self._open_loop(name, kind, start, stop, order, str(step), wraps)
            self.values[uop] = text
            return
        # Count the turns first: one step more could take the counter past the end of its dtype.
        low, high = (start, stop) if step > 0 else (stop, start)
        some = self._let(f"icmp {order} {kind} {start}, {stop}")
        distance = self._let(f"sub {kind} {high}, {low}")
        short = self._let(f"sub {kind} {distance}, 1")
        jumps = self._let(f"udiv {kind} {short}, {abs(step)}")
        more = self._let(f"add {kind} {jumps}, 1")
        turns = self._let(f"select i1 {some}, {kind} {more}, {kind} 0")
        turn = self._open_loop(name, kind, "0", turns, "ult", advance="add nuw")
        offset = self._let(f"mul {kind} {turn}, {step}")
        self.values[uop] = self._let(f"add {kind} {start}, {offset}")

    def _endrange(self, uop: UOp) -> None:
        self._close_loop()

    # values

    def _value(self, uop: UOp, operands: list[str]) -> str:
        op, dtype = uop.op, _dtype(uop)
        if op == "LOAD":
            return self._load(uop)
        if op == "GET":
            return self._let(f"load {_type(dtype)}, ptr {operands[0]}")
        if op == "CAST":
            return self._cast(_dtype(uop.src[0]), dtype, operands[0])
        if op == "WHERE":
            kind = _type(dtype)
            return self._select(operands[0], kind, operands[1], operands[2])
        takes = _dtype(uop.src[0])
        kind = _type(takes)
        if op in _SIGNED_COMPARE:
            return self._compare(op, takes, *operands)
        if op in ("MIN", "MAX"):
            a, b = operands
            better = self._compare("LT" if op == "MIN" else "GT", takes, b, a)
            return self._select(better, kind, b, a)
        if takes.kind == "f":
            return self._float(op, takes, operands)
        if op in _INTEGER:
            return self._let(f"{_INTEGER[op]} {kind} {', '.join(operands)}")
        return self._integer(uop, takes, operands)

    def _float(self, op: str, dtype: DType, operands: list[str]) -> str:
        kind = _type(dtype)
        if op in _FLOAT:
            fast = "" if op in ("DIV", "FMOD") else self.fast
            return self._let(f"{_FLOAT[op]} {fast}{kind} {', '.join(operands)}")
        if op == "NEG":
            return self._let(f"fneg {self.fast}{kind} {operands[0]}")
        if op == "ISNAN":
            return self._let(f"fcmp uno {kind} {operands[0]}, {operands[0]}")
        if op == "RSQRT":
            root = self._float("SQRT", dtype, operands)
            return self._let(f"fdiv {kind} {llvm_float(1.0, dtype)}, {root}")
        if op in _LIBRARY:
            callee = f"@{_LIBRARY[op]}{'f' if dtype.itemsize == 4 else ''}"
        else:
            callee = f"@llvm.{_INTRINSICS[op]}.f{8 * dtype.itemsize}"
        return self._call(callee, kind, [kind] * len(operands), operands)

    def _integer(self, uop: UOp, dtype: DType, operands: list[str]) -> str:
        op, kind, a = uop.op, _type(dtype), operands[0]
        if op == "NEG":
            return self._let(f"sub {kind} 0, {a}")
        if op == "NOT":
            return self._let(f"xor {kind} {a}, {'true' if kind == 'i1' else '-1'}")
        if op == "ABS":
            if dtype.kind == "u":
                return a
            return self._call(f"@llvm.abs.{kind}", kind, [kind, "i1"], [a, "false"])
        b, constant = operands[1], uop.src[1].arg if uop.src[1].op == "CONST" else None
        if op in ("SHL", "SHR"):
            mask = 8 * dtype.itemsize - 1
            amount = self._let(f"and {kind} {b}, {mask}") if constant is None else constant & mask
            return self._let(f"{_shift(op, dtype)} {kind} {a}, {amount}")
        shift = power_of_two(constant)
        if shift is not None and op == "FLOORDIV":  # rounds down, as it should
            return self._let(f"{_shift('SHR', dtype)} {kind} {a}, {shift}")
        if shift is not None:
            return self._let(f"and {kind} {a}, {(1 << shift) - 1}")
        callee, text = (floor_division if op == "FLOORDIV" else modulo)(kind, dtype.kind == "i")
        self.helpers[callee] = text
        return self._let(f"call {kind} {callee}({kind} {a}, {kind} {b})")

    def _compare(self, op: str, dtype: DType, a: str, b: str) -> str:
        if dtype.kind == "f":
            return self._let(f"fcmp {_FLOAT_COMPARE[op]} {_type(dtype)} {a}, {b}")
        table = _SIGNED_COMPARE if dtype.kind == "i" else _UNSIGNED_COMPARE
        return self._let(f"icmp {table[op]} {_type(dtype)} {a}, {b}")

    def _select(self, condition: str, kind: str, a: str, b: str) -> str:
        return self._let(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    def _cast(self, source: DType, target: DType, value: str) -> str:
        old, new = _type(source), _type(target)
        if source is target:
            return value
        if target.kind == "b":
            zero = "fcmp une" if source.kind == "f" else "icmp ne"
            return self._let(f"{zero} {old} {value}, {_literal(0, source)}")
        if source.kind == "f" and target.kind == "f":
            how = "fpext" if target.itemsize > source.itemsize else "fptrunc"
        elif source.kind == "f":
            letter = "s" if target.kind == "i" else "u"
            callee = f"@llvm.fpto{letter}i.sat.{new}.f{8 * source.itemsize}"
            return self._call(callee, new, [old], [value])
        elif target.kind == "f":
            how = "sitofp" if source.kind == "i" else "uitofp"
        elif old == new:
            return value
        elif source.kind == "b" or target.itemsize > source.itemsize:
            how = "sext" if source.kind == "i" else "zext"
        else:
            how = "trunc"
        return self._let(f"{how} {old} {value} to {new}")

    def _call(self, callee: str, result: str, kinds: list[str], operands: list[str]) -> str:
        self.declarations[f"declare {result} {callee}({', '.join(kinds)})"] = None
        arguments = ", ".join(f"{k} {v}" for k, v in zip(kinds, operands, strict=True))
        return self._let(f"call {result} {callee}({arguments})")


def _shift(op: str, dtype: DType) -> str:
    return "shl" if op == "SHL" else "ashr" if dtype.kind == "i" else "lshr"


def _memory_type(dtype: DType) -> str:
    return "i8" if dtype.kind == "b" else _type(dtype)


def _word(arg: object) -> str:
    """A variable's own name where it has one that LLVM reads."""
    return str(arg) if str(arg).isascii() and str(arg).isidentifier() else "v"


def _literal(value: float, dtype: DType) -> str:
    if dtype.kind == "b":
        return "true" if value else "false"
    return llvm_float(value, dtype) if dtype.kind == "f" else str(int(value))


_STATEMENTS: dict[str, Callable[[_Module, UOp], None]] = {
    "VAR": _Module._var,
    "SET": _Module._set,
    "STORE": _Module._store,
    "IF": _Module._if,
    "ELSE": _Module._else,
    "ENDIF": _Module._endif,
    "RANGE": _Module._range,
    "ENDRANGE": _Module._endrange,
}
