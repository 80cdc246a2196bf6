"""Generate the call of a program: the tests of a launch in which nothing is unusual.

A rendered kernel with the signature `y: float32*, n: int32` gets this function:

    def __call__(self, *bufs, vals=(), grid=None, block=None, threads=None, shared=0, wait=False):
        try:
            [b0] = bufs
            [v1] = vals
            [k0] = self._keys
            geometry = self._geometries[grid, block, threads, shared]
            known = not wait and vals.__class__ is tuple
                and (b0._key is k0 or b0._key is self._misaligned[0])
                and v1.__class__ is int and -2147483648 <= v1 <= 2147483647
        except (AttributeError, KeyError, TypeError, ValueError):
            known = False
        if known:
            self._launch(geometry, b0._buf, v1)
            return None
        return self._checked(bufs, vals, grid, block, threads, shared, wait)
"""

from __future__ import annotations

from typing import Any, TypeVar

from hal_core.dtypes import DType
from hal_core.ir import Signature
from hal_core.program.generated import define

P = TypeVar("P", bound=type[Any])

_SHAPES: dict[tuple[type, tuple[tuple[bool, DType], ...], bool], type] = {}

_CALL = """
def __call__(self, *bufs, vals=(), grid=None, block=None, threads=None, shared=0, wait=False):
    try:
        [{buffers}] = bufs
        [{values}] = vals
        [{keys}] = self._keys
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
    """Return the subclass of a backend's program whose `__call__` is made for this signature.

    Programs whose signatures have the same dtypes in the same places share one.
    """
    shape = tuple((param.is_pointer, param.dtype) for param in signature.params)
    found = _SHAPES.get((cls, shape, rendered))
    if found is not None:
        return found  # type: ignore[return-value]
    buffers = [f"b{param.position}" for param in signature.pointers]
    values = [f"v{param.position}" for param in signature.values]
    keys = [f"k{param.position}" for param in signature.pointers]
    tests = ["not wait", "vals.__class__ is tuple"] if values else ["not wait"]
    for place, (buffer, key) in enumerate(zip(buffers, keys, strict=True)):
        # Rendered kernels take a view at any offset, `Source` kernels an aligned one only.
        either = f" or {buffer}._key is self._misaligned[{place}]" if rendered else ""
        tests.append(f"({buffer}._key is {key}{either})")
    for value, param in zip(values, signature.values, strict=True):
        dtype = param.dtype
        kind = {"b": "bool", "f": "float"}.get(dtype.kind, "int")
        tests.append(f"{value}.__class__ is {kind}")
        if kind != "bool":
            tests.append(f"{dtype.min!r} <= {value} <= {dtype.max!r}")
    args = [f"b{p.position}._buf" if p.is_pointer else f"v{p.position}" for p in signature.params]
    text = _CALL.format(
        buffers=", ".join(buffers),
        values=", ".join(values),
        keys=", ".join(keys),
        tests=" and ".join(tests),
        args=", ".join(args),
    )
    call = define(text, "__call__", f"launch of {cls.__name__}", {})
    call.__doc__ = cls.__call__.__doc__
    made = type(cls.__name__, (cls,), {"__call__": call, "__module__": cls.__module__})
    return _SHAPES.setdefault((cls, shape, rendered), made)  # type: ignore[return-value]
