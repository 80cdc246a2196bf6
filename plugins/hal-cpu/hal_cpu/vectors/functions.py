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
from hal_cpu.vectors.arithmetic import Arithmetic, intrinsic, number, of, typed
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
        if uop.op not in FUNCTIONS or not self.fma:
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


def calls_library(node: UOp) -> bool:
    """Tell whether a node is a function that calls the C library for some arguments."""
    return node.op in FUNCTIONS and _formula(node.op, dtype_of(node)).size is not None


def operations(node: UOp) -> int:
    """Return how many nodes a node stands for: itself, or the arithmetic of a function."""
    return len(_formula(node.op, dtype_of(node)).nodes) if node.op in FUNCTIONS else 1


@functools.cache
def itemsize(op: str, dtype: DType) -> int:
    """Return the bytes of a number of a dtype, or of the largest that a function computes of it."""
    nodes = _formula(op, dtype).nodes if op in FUNCTIONS else []
    return max([dtype.itemsize, *[part.dtype.itemsize for part in nodes if part.dtype]])


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
        operands = [formula.size, *formula.operands]
        given = ", ".join([f"{kind} {names[operand]}" for operand in operands])
        rare = text.let(f"call {kind} {_write_far(text, op, formula, n)}({given})")
        result = text.select(names[formula.is_near], kind, result, rare)
    return result


def _write_far(text: Arithmetic, op: str, formula: _Formula, n: int) -> str:
    """Write a function that calls the library if a lane's size is not less than the limit."""
    name, kind, calls = f"@hal.far.{op.lower()}.{n}", of("double", n), Arithmetic(half=False)
    operands = [f"%a{k}" for k in range(len(formula.operands))]
    given = ", ".join([f"{kind} {operand}" for operand in ("%size", *operands)])
    head = f"define internal {kind} {name}({given}) noinline nounwind willreturn readnone {{"
    far = calls.let(f"fcmp uge {kind} %size, {number(formula.limit, float64, n)}")
    if n > 1:
        far = calls.let(f"icmp ne i{n} {calls.let(f'bitcast <{n} x i1> {far} to i{n}')}, 0")
    calls.branch(far, "call", "near")
    calls.label("call")
    calls.line(f"ret {kind} {calls.by_lanes(intrinsic(op, float64, 1), float64, operands, n)}")
    calls.label("near")
    calls.line(f"ret {kind} zeroinitializer")
    text.declarations |= calls.declarations
    text.helpers[name] = "\n".join([head, *calls.whole(), "}", ""])
    return name


def _result(kind: str, count: int) -> str:
    return kind if count == 1 else f"{{ {', '.join([kind] * count)} }}"
