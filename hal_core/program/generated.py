"""Functions written as text for one kernel's signature, and the storage that launches share.

A loop over the arguments costs as much again as a launch itself, so a program's call is generated,
and so is the launch of some backends. A rendered kernel with the signature `y: float32*, n: int32`
gets this call:

    def __call__(self, *given, vals=None, grid=None, block=None, threads=None, shared=0, wait=False,
                 queue=None):
        try:
            if vals is None:  # all arguments in the order of the signature
                [b0, v1] = given
            else:
                [b0] = given
                [v1] = vals if vals.__class__ is tuple or vals.__class__ is list else None
            [k0] = self._keys
            try:
                geometry = self._geometries[grid, block, threads, shared]
            except TypeError:  # lists
                geometry = self._resolved(grid, block, threads, shared)
            if v1.__class__ is not int: v1 = to_int[v1.__class__](v1)
            if not (geometry is not None
                    and (b0._key is k0 or b0._key is self._misaligned[0])
                    and -2147483648 <= v1 <= 2147483647): raise ValueError
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            pass
        else:
            if wait is not False or queue is not None or captures:  # some thread captures a graph
                return handed(self, geometry, queue, (b0,), (b0._buf, v1), wait,
                              (grid, block, threads, shared))
            self._launch(geometry, b0._buf, v1)
            return None
        return checked(self, *given, vals=vals, grid=grid, block=block, threads=threads,
                       shared=shared, wait=wait, queue=queue)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hal_core.dtypes import DType, alike, any_
from hal_core.queue import captures
from hal_core.signature import Signature

ANY_ALIGNMENT = 8  # bytes: memory without a dtype may be seen as elements of any

# Class of a parameter's numbers -> class of a given number -> what converts it. A launch with the
# first number of a class adds that.
CASTS: dict[type, dict[type, type]] = {bool: {}, int: {bool: int}, float: {bool: float, int: float}}
_NUMPY_KINDS = {bool: "b", int: "biu", float: "biuf"}

P = TypeVar("P", bound=type[Any])

# The classes that were made, by a backend's program and the dtypes of a signature.
_SHAPES: dict[tuple[type, tuple[tuple[bool, DType], ...], bool], Any] = {}

_CALL = """
def __call__(self, *given, vals=None, grid=None, block=None, threads=None, shared=0, wait=False,
             queue=None):
    try:
        if vals is None:
            [{all}] = given
        else:
            [{buffers}] = given
            [{values}] = vals if vals.__class__ is tuple or vals.__class__ is list else None
        [{keys}] = self._keys
        try:
            geometry = self._geometries[grid, block, threads, shared]
        except TypeError:  # lists
            geometry = self._resolved(grid, block, threads, shared)
        {numbers}
        if not (geometry is not None{tests}): raise ValueError
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        pass
    else:
        if wait is not False or queue is not None or captures:
            return handed(self, geometry, queue, ({owners}), ({tuple}), wait,
                          (grid, block, threads, shared))
        self._launch(geometry, {args})
        return None
    return checked(self, *given, vals=vals, grid=grid, block=block, threads=threads,
                   shared=shared, wait=wait, queue=queue)
"""


def specialised(cls: P, signature: Signature, any_offset: bool) -> P:
    """Return the subclass of a backend's program whose `__call__` is made for this signature.

    Programs whose signatures have the same dtypes in the same places share one. `any_offset` says
    that views need no alignment, as for rendered kernels and `Source` kernels that take offsets.
    """
    shape = tuple((param.is_pointer, param.dtype) for param in signature.params)
    found = _SHAPES.get((cls, shape, any_offset))
    if found is not None:
        return found  # type: ignore[no-any-return]
    buffers = [f"b{param.position}" for param in signature.pointers]
    values = [f"v{param.position}" for param in signature.values]
    keys = [f"k{param.position}" for param in signature.pointers]
    tests, numbers = [], []
    for place, (buffer, key) in enumerate(zip(buffers, keys, strict=True)):
        dtype = signature.pointers[place].dtype
        untyped = dtype is any_
        same = f"{buffer}._key {'in' if untyped or len(alike(dtype)) > 1 else 'is'}"
        either = f" or {same} self._misaligned[{place}]" if any_offset else ""
        tests.append(f"({same} {key}{either})")
        tests += [f"not {buffer}._start() % {ANY_ALIGNMENT}"] if untyped else []
    images = [f"b{param.position}" for param in signature.pointers if param.dtype.kind == "I"]
    if len(images) > 1:  # else the call looks whether one of them is written
        tests.append(f"len(set(({', '.join(images)}))) == {len(images)}")
    for value, param in zip(values, signature.values, strict=True):
        dtype = param.dtype
        if dtype.kind in ("c", "V"):
            tests.append(f"{value}.__class__ is bytes and len({value}) == {dtype.itemsize}")
            continue
        kind = {"b": "bool", "f": "float"}.get(dtype.kind, "int")
        to = f"to_{kind}[{value}.__class__]"
        numbers.append(f"if {value}.__class__ is not {kind}: {value} = {to}({value})")
        if kind != "bool":
            tests.append(f"{dtype.min!r} <= {value} <= {dtype.max!r}")
    args = [f"b{p.position}._buf" if p.is_pointer else f"v{p.position}" for p in signature.params]
    text = _CALL.format(
        all=", ".join(f"{'b' if p.is_pointer else 'v'}{p.position}" for p in signature.params),
        buffers=", ".join(buffers),
        values=", ".join(values),
        keys=", ".join(keys),
        numbers="\n        ".join(numbers),
        tests="".join(f" and {test}" for test in tests),
        args=", ".join(args),
        owners="".join(f"{buffer}, " for buffer in buffers),
        tuple="".join(f"{arg}, " for arg in args),
    )
    names = {"checked": cls.__call__, "handed": cls._hand_over, "captures": captures}
    names |= {f"to_{kind.__name__}": casts for kind, casts in CASTS.items()}
    call = define(text, "__call__", f"launch of {cls.__name__}", names)
    call.__doc__ = cls.__call__.__doc__
    # Python's own error for a misspelt keyword begins with this name.
    call.__qualname__ = "program(*arguments, vals, grid, block, threads, shared, wait, queue)"
    made = type(cls.__name__, (cls,), {"__module__": cls.__module__, "__call__": call})
    return _SHAPES.setdefault((cls, shape, any_offset), made)  # type: ignore[no-any-return]


def learn_casts(vals: Sequence[Any], numbers: list[DType]) -> bool:
    """Let launches convert the classes of `vals` for numbers of these dtypes; True if any is new.

    They are numpy's; no longdouble, which as a float may be inf.
    """
    numpy, known = sys.modules.get("numpy"), True
    for value, dtype in zip(vals, numbers, strict=False):
        kind: type = {"b": bool, "f": float}.get(dtype.kind, int)
        of_numpy = numpy and isinstance(value, numpy.generic) and value.itemsize <= 8
        of_numpy = of_numpy and dtype.kind in "biuf"
        if of_numpy and type(value) not in CASTS[kind] and value.dtype.kind in _NUMPY_KINDS[kind]:
            CASTS[kind][type(value)], known = kind, False
    return not known


def define(text: str, name: str, title: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Return the function `name` that `text` defines over `names`, its global variables.

    Tracebacks show `title` in the place of a file.
    """
    exec(compile(text, f"<{title}>", "exec"), names)
    # Taken out of its own globals: without that cycle it goes with its last user, at once.
    function: Callable[..., Any] = names.pop(name)
    return function


def spare_storage(make: Callable[[], Any], *ready: Any) -> dict[str, Any]:
    """Return `take`, `make` and `give_back`, names for the text of a launch.

    Each launch in progress owns its argument storage: another thread, a signal handler or a
    finalizer may launch in the middle of it. `take()` raises IndexError when all storage is in
    use; `make()` then makes one more, which the launch gives back like any other.
    """
    spare = list(ready)
    return {"take": spare.pop, "make": make, "give_back": spare.append}  # one step under the GIL
