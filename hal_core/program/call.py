"""The generated call of a program: what a launch tests when nothing is unusual."""

from __future__ import annotations

from typing import Any, TypeVar

from hal_core.dtypes import DType
from hal_core.ir import Signature
from hal_core.program.generated import define

P = TypeVar("P", bound=type[Any])

Shape = tuple[tuple[str, DType], ...]
_SHAPES: dict[tuple[type, Shape, bool], type] = {}

_CALL = """
def __call__(self, *bufs, vals=(), grid=None, block=None, threads=None, shared=0, wait=False):
    try:
        {unpack}
        geometry = self._geometries[grid, block, threads, shared]
        known = {tests}
    except (AttributeError, KeyError, TypeError, ValueError):
        known = False
    if known:
        self._launch(geometry, {args})
        return None
    return self._checked(bufs, vals, grid, block, threads, shared, wait)
"""


def specialised(cls: P, signature: Signature, rendered: bool) -> P:
    """The subclass of a backend's program whose `__call__` is written for this signature.

    What it reads of a program: `_keys` and `_misaligned` of its pointers, `_geometries` of earlier
    launches, `_launch`; and `_checked`, for everything else.
    """
    shape = tuple(("pointer" if p.is_pointer else "value", p.dtype) for p in signature.params)
    found = _SHAPES.get((cls, shape, rendered))
    if found is None:
        call = define(_call_text(shape, rendered), "__call__", f"launch of {cls.__name__}", {})
        call.__doc__ = cls.__call__.__doc__
        made = type(cls.__name__, (cls,), {"__call__": call, "__module__": cls.__module__})
        found = _SHAPES.setdefault((cls, shape, rendered), made)
    return found  # type: ignore[return-value]


def _call_text(shape: Shape, rendered: bool) -> str:
    buffers = [f"b{i}" for i, (kind, _) in enumerate(shape) if kind == "pointer"]
    values = [(f"v{i}", dtype) for i, (kind, dtype) in enumerate(shape) if kind == "value"]
    keys = [name.replace("b", "k") for name in buffers]
    unpack = [
        f"{_targets(buffers)} = bufs",
        f"{_targets([name for name, _ in values])} = vals",
        f"{_targets(keys)} = self._keys",
    ]
    tests = ["not wait"]
    if values:
        tests.append("vals.__class__ is tuple")
    for place, (b, k) in enumerate(zip(buffers, keys, strict=True)):
        either = f" or {b}._key is self._misaligned[{place}]" if rendered else ""
        tests.append(f"({b}._key is {k}{either})")
    tests += [_value_test(name, dtype) for name, dtype in values]
    args = [f"b{i}._buf" if kind == "pointer" else f"v{i}" for i, (kind, _) in enumerate(shape)]
    return _CALL.format(
        unpack="\n        ".join(unpack), tests=" and ".join(tests), args=", ".join(args)
    )


def _targets(names: list[str]) -> str:
    return f"[{', '.join(names)}]"


def _value_test(name: str, dtype: DType) -> str:
    if dtype.kind == "b":
        return f"{name}.__class__ is bool"
    kind = "float" if dtype.kind == "f" else "int"
    return f"{name}.__class__ is {kind} and {dtype.min!r} <= {name} <= {dtype.max!r}"
