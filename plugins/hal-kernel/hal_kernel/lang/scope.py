"""Look up the names in annotations that are text: they mean what they mean where the def stands.

    def make(dtype):
        @log_calls                  # any number of calls may lie between make() and hal.kernel
        @hal.kernel
        def f(x: "hal.Ptr[dtype]"): ...

Python keeps no link from `f` to the call of `make` that defined it, and `f` captures only what its
body uses. So that call is looked for among the running ones. Where it cannot be proven, a name that
the text assigns there is refused: a variable of the same name elsewhere has nothing to do with it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from functools import partial
from operator import is_
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symtable import SymbolTable

_OPTIMIZED = 0x01  # flag of a function's code; classes and modules lack it


class OutOfReach(NameError):
    """A name belongs to a call that has ended, or that is not known to have made the function."""


class Scope(dict[str, Any]):
    """The names visible to a function's annotations, each looked up at its first use.

    `frame` is the call of `hal.kernel` or `hal.func`, `lines` are those of the function's file.
    """

    def __init__(self, function: FunctionType, frame: FrameType, lines: Sequence[str]) -> None:
        inner = getattr(function, "__wrapped__", None)
        # functools.wraps gives a wrapper the annotations of what it wraps.
        while isinstance(inner, FunctionType) and inner.__annotations__ == function.__annotations__:
            function, inner = inner, getattr(inner, "__wrapped__", None)
        self._function, self._caller, self._lines = function, frame, lines

    @functools.cached_property
    def _frames(self) -> list[FrameType]:
        """Return the running calls whose variables the function sees, from the inside outwards.

        Those are the body of a class, where it stands in one, and then a function or a module.
        """
        code, found = self._function.__code__, list[FrameType]()
        frame: FrameType | None = self._caller
        while frame is not None:
            holds = any(map(partial(is_, code), frame.f_code.co_consts))
            if holds and (found or _has_made(frame, self._function)):
                found.append(frame)
                code = frame.f_code
                if code.co_flags & _OPTIMIZED or code.co_qualname == "<module>":
                    break
            frame = frame.f_back
        return found[:1] + [one for one in found[1:] if one.f_code.co_flags & _OPTIMIZED]

    def __missing__(self, name: str) -> Any:
        """Return a value. Raises: KeyError for a builtin, OutOfReach, SyntaxError in the file."""
        for names in (*(one.f_locals for one in self._frames), closure_of(self._function)):
            if name in names:
                break
        else:
            owner = self._owner(name)
            if owner is not None:
                problem = f"{name!r} is a variable of {owner}, and its value is not known here"
                raise OutOfReach(problem)
            names = self._function.__globals__
        self[name] = value = names[name]
        return value

    def _owner(self, name: str) -> str | None:
        """Return the class or function that assigns the name by the text, or None."""
        code = self._frames[-1].f_code if self._frames else self._function.__code__
        *parts, own = code.co_qualname.split(".")
        if self._frames and name in code.co_varnames + code.co_cellvars:
            parts += [own, "<locals>"]  # not assigned yet
        # Functions around a known call matter; without lines there is no kernel either.
        if not self._lines or not (parts if not self._frames else "<locals>" in parts):
            return None
        import symtable  # few kernels need it

        top = symtable.symtable("".join(self._lines), code.co_filename, "exec")
        tables: list[SymbolTable] = [top]
        for number, part in enumerate(parts):
            if part == "<locals>":
                continue
            label = part.strip("<>")  # of a lambda
            tables = [t for table in tables for t in table.get_children() if t.get_name() == label]
            # A class is visible to functions that stand directly in it.
            is_last = number + 1 == len(parts)
            visible = not self._frames if is_last else parts[number + 1] == "<locals>"
            owners = [
                t for t in tables if name in t.get_identifiers() and t.lookup(name).is_local()
            ]
            if not tables or (visible and owners):
                return part
        return None


def _has_made(frame: FrameType, function: FunctionType) -> bool:
    """Tell whether this call of the code made the function: another call may be running, too."""
    code = function.__code__
    if frame.f_locals.get(code.co_name) is function:
        return True
    lines = [line for _, _, line in code.co_lines() if line is not None]
    first = code.co_firstlineno  # of the first decorator
    body = min((line for line in lines if line > first), default=first)
    return first <= frame.f_lineno <= body


def closure_of(function: FunctionType) -> dict[str, Any]:
    """Return the captured names that have a value already."""
    names = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue  # assigned after the kernel's definition
    return names
