"""Lower a kernel function to IR: the grammar of the kernel language, and the whole step."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import FunctionType

from hal_core.signature import Signature
from hal_kernel.ir import Kernel
from hal_kernel.ir.uniformity import divergent
from hal_kernel.lang import access, calls, control, operators
from hal_kernel.lang.emit import Emitter
from hal_kernel.lang.expressions import Grammar
from hal_kernel.lang.names import Names
from hal_kernel.lang.statements import TOO_DEEP, Statements
from hal_kernel.lang.text import SourceText

_GRAMMAR = Grammar(
    {
        ast.BinOp: operators.binary_op,
        ast.UnaryOp: operators.unary_op,
        ast.Compare: operators.comparison,
        ast.BoolOp: operators.bool_op,
        ast.IfExp: operators.choice,
        ast.Constant: access.constant,
        ast.Name: access.name,
        ast.Attribute: access.attribute,
        ast.Subscript: access.subscript,
        ast.Call: calls.call,
    },
    {
        ast.Assign: Statements.assign,
        ast.AugAssign: Statements.augmented_assign,
        ast.If: control.if_,
        ast.For: control.for_,
        ast.While: control.while_,
        ast.Break: control.break_,
        ast.Continue: control.continue_,
        ast.Return: control.return_,
        ast.Expr: Statements.expression,
        ast.Assert: Statements.assert_,
        ast.Pass: Statements.pass_,
    },
)


def lower(
    function: FunctionType, lines: Sequence[str], signature: Signature,
    block: tuple[int, int, int] | None, contract: bool,
) -> Kernel:  # fmt: skip
    """Return the IR of a kernel function; `lines` are its file. Raises: KernelSyntaxError."""
    text, emit = SourceText(function, lines), Emitter(block)
    try:
        uops = Statements(text, Names(function, text.tree), emit, _GRAMMAR).function(signature)
    except RecursionError:  # too many nested blocks; `block` points at a single deep statement
        raise text.error(text.tree, *TOO_DEEP) from None
    kernel = Kernel(signature.name, signature, uops, block, contract)
    # `verify` checks this too, for kernels of other compilers. Here the error points at the call.
    fault = divergent(kernel)
    if fault is not None:
        node, cause, reason = fault
        text, place = emit.together[id(node)]
        what = "block reach this barrier" if node.op == "BARRIER" else "subgroup reach this"
        problem = f"not all threads of a {what}: {reason} (line {cause.line})"
        fix = "Move it to a place that all threads reach, and put only the work under the if."
        raise text.error(place, problem, fix)
    return kernel
