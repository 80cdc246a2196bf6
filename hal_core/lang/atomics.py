"""Lower atomics: changes of an element that all other threads see as one step."""

from __future__ import annotations

import ast

from hal_core.dtypes import STORAGE_DTYPES
from hal_core.ir import UOp
from hal_core.lang.builtins import ORDERS
from hal_core.lang.emit import dtype_of
from hal_core.lang.expressions import Expressions
from hal_core.lang.memory import named
from hal_core.lang.shapes import flat

_FLOATS = ("ADD", "EXCHANGE", "LOAD")  # the atomics that take floats
# The arguments after pointer and index; the other atomics take one `value`.
_VALUES: dict[str, tuple[str, ...]] = {"CAS": ("expected", "desired"), "LOAD": ()}


def atomic(x: Expressions, node: ast.Call, name: str, kind: str) -> UOp:
    """Lower a call of an atomic function; its result is the element's old value."""
    takes = ("p", "i", *_VALUES.get(kind, ("value",)))
    given, (before, behind) = node.args, (False, False)
    if len(given) == len(takes) + 1:
        order, given = x.expression(given[-1]), given[:-1]
        if not callable(order) or order not in ORDERS:
            problem = f"{ast.unparse(node.args[-1])} is not an order of memory"
            fix = "Write hal.acquire, hal.release or hal.acq_rel, or leave it out."
            raise x.error(node.args[-1], problem, fix)
        before, behind = ORDERS[order]
    if len(given) != len(takes):
        problem = f"{name} takes {len(takes)} arguments, not {len(given)}"
        raise x.error(node, problem, f"Write hal.{name}({', '.join(takes)}).")
    label, index_node, *value_nodes = given
    array = named(x, node, x.expression(label), label, stored=True)
    if array.node.op == "LOCAL":
        problem = f"no other thread sees the local array {array.name!r}"
        raise x.error(label, problem, f"Write {array.name}[i] += value, or use hal.shared.")
    index = flat(x, node, array, index_node)
    dtype = dtype_of(array.node)
    if dtype in STORAGE_DTYPES or dtype.itemsize < 4:
        wide = "float32" if dtype.is_float else "int32"
        problem = f"atomics take dtypes of 32 and 64 bits, not {dtype}"
        raise x.error(label, problem, f"Collect in a hal.Ptr[hal.{wide}].")
    if dtype.is_float and kind not in _FLOATS:
        whole = f"int{8 * dtype.itemsize}"
        fix = f"Keep its bits in a hal.Ptr[hal.{whole}], through hal.bitcast(hal.{whole}, x)"
        fix += ": floats that are not negative are in the same order as their bits."
        raise x.error(label, f"{name} does not take {dtype}", fix)
    operands = [x.typed(part, x.value(part, dtype), dtype) for part in value_nodes]
    x.emit.line = x.text.line(node)
    if kind == "LOAD":  # adds -0.0, because 0.0 would turn an element of -0.0 into 0.0
        kind, operands = "ADD", [x.emit.constant(-0.0 if dtype.is_float else 0, dtype)]
    op, arg = ("CAS", None) if kind == "CAS" else ("ATOMIC", kind)
    if before:
        x.emit.node("FENCE")
    old = x.emit.node(op, dtype, (array.node, index, *operands), arg)
    if behind:
        x.emit.node("FENCE")
    return old
