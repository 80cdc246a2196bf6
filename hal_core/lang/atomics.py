"""Lower atomics: changes of an element that all other threads see as one step."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from hal_core.dtypes import STORAGE_DTYPES
from hal_core.ir import UOp
from hal_core.lang.emit import dtype_of
from hal_core.lang.memory import place

if TYPE_CHECKING:
    from hal_core.lang.expressions import Expressions

_FLOATS = ("ADD", "EXCHANGE", "LOAD")
_VALUES: dict[str, tuple[str, ...]] = {"CAS": ("expected", "desired"), "LOAD": ()}


def atomic(x: Expressions, node: ast.Call, name: str, kind: str) -> UOp:
    """Lower a call; its value is that of the element before the change."""
    takes = ("p", "i", *_VALUES.get(kind, ("value",)))
    if len(node.args) != len(takes):
        problem = f"{name} takes {len(takes)} arguments, not {len(node.args)}"
        raise x.error(node, problem, f"Write hal.{name}({', '.join(takes)}).")
    label, index_node, *value_nodes = node.args
    owner = x.expression(label)
    memory, index = place(x, node, owner, label, index_node, stored=True)
    dtype = dtype_of(memory.node)
    if dtype in STORAGE_DTYPES or dtype.itemsize < 4:
        wide = "float32" if dtype.is_float else "int32"
        problem = f"atomics are of 32 and 64 bits, not {dtype}"
        raise x.error(label, problem, f"Collect in a hal.Ptr[hal.{wide}].")
    if dtype.is_float and kind not in _FLOATS:
        whole = f"int{8 * dtype.itemsize}"
        fix = f"Keep its bits in a hal.Ptr[hal.{whole}], through hal.bitcast(hal.{whole}, x)"
        fix += ": bits of floats from 0 up order as the floats do."
        raise x.error(label, f"{name} does not take {dtype}", fix)
    operands = [x.typed(part, x.value(part, dtype), dtype) for part in value_nodes]
    x.emit.line = x.text.line(node)
    if kind == "LOAD":  # an addition of -0.0, because 0.0 would turn -0.0 into 0.0
        kind, operands = "ADD", [x.emit.constant(-0.0 if dtype.is_float else 0, dtype)]
    op, arg = ("CAS", None) if kind == "CAS" else ("ATOMIC", kind)
    return x.emit.node(op, dtype, (memory.node, index, *operands), arg)
