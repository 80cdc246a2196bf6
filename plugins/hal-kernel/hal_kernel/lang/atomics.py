"""Lower atomics: accesses to an element that all other threads see as one step."""

from __future__ import annotations

import ast

from hal_core.dtypes import STORAGE_DTYPES
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import dtype_of
from hal_kernel.lang.builtins import ORDERS, Order, acquire, release
from hal_kernel.lang.emit import Memory, Nothing
from hal_kernel.lang.expressions import Expressions
from hal_kernel.lang.memory import named
from hal_kernel.lang.shapes import flat

_FLOATS = ("ADD", "EXCHANGE", "LOAD", "STORE")  # the atomics that take floats
# The arguments after pointer and index; the other atomics take one `value`.
_VALUES: dict[str, tuple[str, ...]] = {"CAS": ("expected", "desired"), "LOAD": ()}
# The one order that a load and a store may have.
_OWN_ORDER: dict[str, Order] = {"LOAD": acquire, "STORE": release}


def atomic(x: Expressions, node: ast.Call, name: str, kind: str) -> UOp | Nothing:
    """Lower a call of an atomic function; its result is the element's old value."""
    takes = ("p", "i", *_VALUES.get(kind, ("value",)))
    given, order = node.args, None
    if len(given) == len(takes) + 1:
        order, given = _order(x, given[-1], name, kind), given[:-1]
    if len(given) != len(takes):
        problem = f"{name} takes {len(takes)} arguments, not {len(given)}"
        raise x.error(node, problem, f"Write hal.{name}({', '.join(takes)}).")
    label, index_node, *value_nodes = given
    array = named(x, node, x.expression(label), label, stored=kind != "LOAD")
    _check_memory(x, label, array, name, kind)
    index = flat(x, node, array, index_node)
    dtype = dtype_of(array.node)
    operands = [x.typed(part, x.value(part, dtype), dtype) for part in value_nodes]
    x.emit.line = x.text.line(node)
    source = (array.node, index, *operands)
    if kind in _OWN_ORDER:
        kept = order.__name__ if order else "relaxed"
        done = x.emit.node(f"ATOMIC{kind}", dtype if kind == "LOAD" else None, source, kept)
        return done if kind == "LOAD" else Nothing("hal.atomic_store(...)")
    before, behind = ORDERS[order] if order else (False, False)
    op, arg = ("CAS", None) if kind == "CAS" else ("ATOMIC", kind)
    if before:
        x.emit.node("FENCE")
    old = x.emit.node(op, dtype, source, arg)
    if behind:
        x.emit.node("FENCE")
    return old


def _order(x: Expressions, node: ast.expr, name: str, kind: str) -> Order:
    """Return the order that an atomic's last argument names."""
    given = x.expression(node)
    order: Order | None = next((known for known in ORDERS if known is given), None)
    if order is None:
        problem = f"{ast.unparse(node)} is not an order of memory"
        own = _OWN_ORDER.get(kind)
        orders = f"hal.{own.__name__}" if own else "hal.acquire, hal.release or hal.acq_rel"
        raise x.error(node, problem, f"Write {orders}, or leave it out.")
    own = _OWN_ORDER.get(kind, order)
    if order is not own:
        lacks = "writes" if kind == "LOAD" else "reads"
        problem = f"{name} {lacks} nothing, and has no order {order.__name__}"
        raise x.error(node, problem, f"Write hal.{own.__name__}, or leave it out.")
    return order


def _check_memory(x: Expressions, label: ast.expr, array: Memory, name: str, kind: str) -> None:
    """Refuse memory that other threads do not see or change, and dtypes without the atomic."""
    if array.node.op == "LOCAL":
        problem = f"no other thread sees the local array {array.name!r}"
        instead = {"LOAD": "v = {}[i]", "STORE": "{}[i] = value"}.get(kind, "{}[i] += value")
        fix = f"Write {instead.format(array.name)}, or use hal.shared."
        raise x.error(label, problem, fix)
    if array.node.op == "TABLE":
        problem = f"nothing changes the captured tuple {array.name!r}"
        raise x.error(label, problem, f"Write {array.name}[i].")
    dtype = dtype_of(array.node)
    if dtype in STORAGE_DTYPES or dtype.itemsize < 4:
        wide = "float32" if dtype.is_float else "int32"
        problem = f"atomics take dtypes of 32 and 64 bits, not {dtype}"
        raise x.error(label, problem, f"Keep the elements in a hal.Ptr[hal.{wide}].")
    if dtype.is_float and kind not in _FLOATS:
        whole = f"int{8 * dtype.itemsize}"
        fix = f"Keep its bits in a hal.Ptr[hal.{whole}], through hal.bitcast(hal.{whole}, x)"
        fix += ": floats that are not negative are in the same order as their bits."
        raise x.error(label, f"{name} does not take {dtype}", fix)
