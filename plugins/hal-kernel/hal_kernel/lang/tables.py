"""Make tables of captured tuples and numpy arrays that a kernel indexes at run time.

    WEIGHTS = (0.25, 0.5, 0.25)     WEIGHTS: TABLE float32 (0.25, 0.5, 0.25), constant memory
    ... WEIGHTS[j]            ->    LOAD WEIGHTS j

A constant index gives the number itself, and needs no table.
"""

from __future__ import annotations

import ast
import math
import sys
from typing import Any

from hal_core.dtypes import STORAGE_DTYPES, DType, bool_, float32, int32, int64, values_of
from hal_core.errors import InvalidArgument
from hal_kernel.ir.uop import TABLE_LIMIT
from hal_kernel.lang.constants import as_number, default_dtype, fit
from hal_kernel.lang.emit import Memory
from hal_kernel.lang.expressions import Expressions

_BUFFER = "Pass it as a buffer: a hal.ConstPtr parameter."


class Table(tuple[Any, ...]):
    """The numbers or the rows of a captured numpy array, with the array's dtype."""

    dtype: DType | None = None  # None: the numbers decide


def of_array(x: Expressions, at: ast.AST, array: Any) -> Table:
    """Return a captured numpy array as nested tuples. Raises: KernelSyntaxError."""
    known = x.emit.tables.get(id(array))
    if known is not None:
        return known[1]  # type: ignore[no-any-return]
    try:
        values, dtype = values_of(array, "", as_number)
    except InvalidArgument as error:
        problem = f"a numpy {type(array).__name__} of {array.dtype.name} is not a constant"
        problem += f" of the kernel language: {error.problem}"
        fix = "Capture a real number, or an array of real numbers; pass any other as a hal.Buffer."
        raise x.error(at, problem, fix) from None
    if array.nbytes > TABLE_LIMIT:
        problem = f"the array has {array.nbytes} bytes, and {TABLE_LIMIT} is the limit of tables"
        raise x.error(at, problem, _BUFFER)
    if array.ndim == 0 or 0 in array.shape:
        raise x.error(at, "the array has no elements to index", "Capture its number instead.")
    # float16 and bfloat16 exist in memory only, and a float32 holds each of their numbers.
    held = float32 if dtype in STORAGE_DTYPES else dtype
    made = _nested(values.astype(held.name).tolist(), held)
    x.emit.tables[id(array)] = array, made
    return made


def _nested(rows: list[Any], dtype: DType) -> Table:
    made = Table(_nested(row, dtype) if isinstance(row, list) else row for row in rows)
    made.dtype = dtype
    return made


def table(x: Expressions, at: ast.AST, owner: tuple[Any, ...], label: str) -> Memory:
    """Return a captured tuple as constant memory. Raises: KernelSyntaxError."""
    known = x.emit.tables.get(id(owner))
    if known is not None:
        return known[1].called(label, label)  # type: ignore[no-any-return]
    shape: list[int] = []
    values: list[Any] = [owner]
    while values and isinstance(values[0], tuple):
        size = len(values[0])
        if size == 0 or any(not isinstance(row, tuple) or len(row) != size for row in values):
            why = "its rows do not all have the same number of elements" if size else "it is empty"
            problem = f"{label} is no table: {why}"
            raise x.error(at, problem, "Capture rows of one length, or index it with constants.")
        shape.append(size)
        values = [part for row in values for part in row]
    generic = getattr(sys.modules.get("numpy"), "generic", ())
    of_numpy = [value for value in values if isinstance(value, generic)]
    dtype = getattr(owner, "dtype", None)
    if of_numpy:
        dtypes = sorted({str(value.dtype) for value in of_numpy})
        if len(dtypes) > 1:
            problem = f"{label} is no table: it mixes {' and '.join(dtypes)}"
            raise x.error(at, problem, f'Choose one dtype: np.array({label}, "f8").')
        plain = of_array(x, at, sys.modules["numpy"].array(of_numpy))
        dtype, rest = plain.dtype, iter(plain)
        values = [next(rest) if isinstance(value, generic) else value for value in values]
    if len(shape) > 4 or not all(isinstance(value, (int, float)) for value in values):
        problem = f"{label} is no table: its elements are not all numbers"
        if len(shape) > 4:
            problem = f"{label} is no table: it has {len(shape)} dimensions, and four are the limit"
        raise x.error(at, problem, "Index it with constants: for k in hal.unroll(...).")
    if dtype is None:
        found = set(map(default_dtype, values))
        dtype = next(one for one in (float32, int64, int32, bool_) if one in found)
    for value in values:
        if fit(value, dtype) is None or not math.isfinite(value):
            problem = f"{label} holds {value!r}, and a table of {dtype} cannot"
            fix = f'Capture np.array({label}, "f8"), or pass it as a buffer.'
            raise x.error(at, problem, fix if math.isfinite(value) else _BUFFER)
    x.emit.table_nbytes += -(-len(values) * dtype.itemsize // 16) * 16
    if x.emit.table_nbytes > TABLE_LIMIT:
        problem = f"the constant tables have {x.emit.table_nbytes} bytes up to here, and "
        raise x.error(at, f"{problem}{TABLE_LIMIT} is the limit", _BUFFER)
    numbers = tuple(fit(value, dtype) for value in values)
    name = label if label.isidentifier() else "table"
    node = x.emit.declare("TABLE", dtype, (), (name, numbers))
    made = Memory(label, node, True, tuple(shape))
    x.emit.tables[id(owner)] = owner, made
    return made
