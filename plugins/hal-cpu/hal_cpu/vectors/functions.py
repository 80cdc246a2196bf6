"""Write math functions: each once, of scalars or of lanes, however often a kernel calls it.

    y = hal.exp(x)   ->   %y = call <8 x float> @hal.exp.float32.8(<8 x float> %x)

LLVM puts their arithmetic where they are called. For large arguments of some functions of float64
it is long and has loops, so there the C library is called, which is seldom.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from hal_core.dtypes import DType, float64
from hal_cpu.vectors.arithmetic import Arithmetic, intrinsic, literal, number, of, typed
from hal_kernel.ir.expand import FUNCTIONS
from hal_kernel.ir.uop import UOp, dtype_of

# One function has both, as kernels ask for both of one angle; LLVM drops what is not used.
_TOGETHER = dict.fromkeys(("SIN", "COS"), ("SIN", "COS"))


class _Formula(NamedTuple):
    """The arithmetic of a function."""

    operands: list[UOp]
    nodes: list[UOp]  # in order
    result: UOp
    is_near: UOp | None = None  # whether the result is right
    size: UOp | None = None  # it is if this is less than the limit
    limit: float = 0.0


class Functions(Arithmetic):
    """Call functions. `fma`: True if they are written out; else the library's are called."""

    def __init__(self, half: bool, fma: bool) -> None:
        super().__init__(half)
        self.fma = fma

    def operation(self, uop: UOp, operands: Sequence[str], n: int) -> str:
        if not (self.fma and is_function(uop)):
            return super().operation(uop, operands, n)
        dtype, ops = dtype_of(uop), _TOGETHER.get(uop.op, (uop.op,))
        name, declarations, helpers = _written(ops, dtype, n)
        if name not in self.helpers:
            self.declarations.update(declarations)
            self.helpers.update(helpers)
        kind = typed(dtype, n)
        given = ", ".join([f"{kind} {operand}" for operand in operands])
        result = _result(kind, len(ops))
        whole = self.let(f"call {result} {name}({given})", free=True)
        if len(ops) == 1:
            return whole
        return self.let(f"extractvalue {result} {whole}, {ops.index(uop.op)}")


def is_function(node: UOp) -> bool:
    """Tell whether a node is a function that is written as arithmetic."""
    return node.op in FUNCTIONS and node.dtype in FUNCTIONS[node.op]


def calls_library(node: UOp) -> bool:
    """Tell whether a node is a function that calls the C library for some arguments."""
    return is_function(node) and _formula(node.op, dtype_of(node)).size is not None


def operations(node: UOp) -> int:
    """Return how many nodes a node stands for: itself, or the arithmetic of a function."""
    return len(_formula(node.op, dtype_of(node)).nodes) if is_function(node) else 1


def itemsize(node: UOp) -> int:
    """Return the bytes of a number that a node has, or of the largest that a function computes."""
    nodes = _formula(node.op, dtype_of(node)).nodes if is_function(node) else [node]
    return max(part.dtype.itemsize for part in nodes if part.dtype)


@functools.cache
def _formula(op: str, dtype: DType) -> _Formula:
    from hal_kernel.ir.math import FORMULAS, NEAR  # few kernels need them, and they take long
    from hal_kernel.ir.math.value import Page, Value

    count = 2 if op in ("ATAN2", "POW", "FMOD") else 1
    operands, page = [UOp("PARAM", dtype, (), k) for k in range(count)], Page([], 0)
    values = [Value(operand, page) for operand in operands]
    if dtype is not float64 or op not in NEAR:
        return _Formula(operands, page.uops, FORMULAS[op](*values).node)
    near, size, limit = NEAR[op](*values)
    is_near = (size < limit).node
    return _Formula(operands, page.uops, near.node, is_near, size.node, limit)


@functools.cache
def _written(
    ops: tuple[str, ...], dtype: DType, n: int
) -> tuple[str, dict[str, None], dict[str, str]]:
    """Return the name of a function, and the declarations and functions that it is made of."""
    text, kind = Arithmetic(half=False), typed(dtype, n)
    count = len(_formula(ops[0], dtype).operands)
    taken = ", ".join([f"{kind} %a{k}" for k in range(count)])
    results = [_write(text, op, dtype, n) for op in ops]
    last, result = results[0], _result(kind, len(ops))
    if len(ops) > 1:
        last = "poison"
        for place, one in enumerate(results):
            last = text.let(f"insertvalue {result} {last}, {kind} {one}, {place}")
    name = f"@hal.{'.'.join(ops).lower()}.{dtype.name}.{n}"
    head = f"define internal {result} {name}({taken}) alwaysinline {{"
    definition = "\n".join([head, *text.whole(), f"  ret {result} {last}", "}", ""])
    return name, text.declarations, text.helpers | {name: definition}


def _write(text: Arithmetic, op: str, dtype: DType, n: int) -> str:
    """Write the arithmetic of a function of %a0, %a1; return its result."""
    formula, kind = _formula(op, dtype), typed(dtype, n)
    names = {operand: f"%a{k}" for k, operand in enumerate(formula.operands)}
    for node in formula.nodes:
        if node.op == "CONST":
            names[node] = number(node.arg, dtype_of(node), n)
        else:
            names[node] = text.operation(node, [names[part] for part in node.src], n)
    result = names[formula.result]
    if formula.size and formula.is_near:
        far = f"@hal.far.{op.lower()}"
        text.helpers |= _far_of(op, len(formula.operands), literal(formula.limit, float64), n)
        operands = [formula.size, *formula.operands]
        given = ", ".join([f"{kind} {names[operand]}" for operand in operands])
        rare = text.let(f"call {kind} {far}.{n}({given})")
        result = text.select(names[formula.is_near], kind, result, rare)
        doubles = ", ".join(["double"] * len(formula.operands))
        text.declarations[f"declare double {intrinsic(op, float64, 1)}({doubles})"] = None
    return result


def _result(kind: str, count: int) -> str:
    return kind if count == 1 else f"{{ {', '.join([kind] * count)} }}"


def _far_of(op: str, count: int, limit: str, n: int) -> dict[str, str]:
    """Return functions that call the library where the size is not less than the limit, else 0."""
    given = ", ".join(f"double %a{k}" for k in range(count))
    name = f"@hal.far.{op.lower()}"
    library = intrinsic(op, float64, 1)
    one = _FAR.format(name=f"{name}.1", given=given, limit=limit, library=library)
    found = {f"{name}.1": one}
    if n > 1:
        found[f"{name}.{n}"] = _far_of_lanes(name, limit, count, n)
    return found


def _far_of_lanes(name: str, limit: str, count: int, n: int) -> str:
    """Return a function that looks whether any lane needs the call, and calls for each then."""
    kind, lines, last = of("double", n), list[str](), "poison"
    names = ["%size", *(f"%a{k}" for k in range(count))]
    for k in range(n):
        parts = [f"{one}.{k}" for one in names]
        for part, one in zip(parts, names, strict=True):
            lines.append(f"  {part} = extractelement {kind} {one}, i64 {k}")
        lines.append(f"  %y.{k} = call double {name}.1({', '.join(f'double {p}' for p in parts)})")
        lines.append(f"  %all.{k} = insertelement {kind} {last}, double %y.{k}, i64 {k}")
        last = f"%all.{k}"
    return _FAR_OF_LANES.format(
        kind=kind, name=f"{name}.{n}", given=", ".join(f"{kind} {one}" for one in names), n=n,
        limit=limit, calls="\n".join(lines), last=last,
    )  # fmt: skip


_FAR = """\
define internal double {name}(double %size, {given}) noinline nounwind willreturn readnone {{
  %far = fcmp uge double %size, {limit}
  br i1 %far, label %call, label %near
call:
  %y = call double {library}({given})
  ret double %y
near:
  ret double 0.0
}}
"""
_FAR_OF_LANES = """\
define internal {kind} {name}({given}) noinline nounwind willreturn readnone {{
  %limit = insertelement {kind} poison, double {limit}, i64 0
  %limits = shufflevector {kind} %limit, {kind} poison, <{n} x i32> zeroinitializer
  %far = fcmp uge {kind} %size, %limits
  %bits = bitcast <{n} x i1> %far to i{n}
  %any = icmp ne i{n} %bits, 0
  br i1 %any, label %call, label %near
call:
{calls}
  ret {kind} {last}
near:
  ret {kind} zeroinitializer
}}
"""
