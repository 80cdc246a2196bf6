"""Call a vendor's C library through ctypes, by a table of its functions.

    SHORT = {"hipStreamCreateWithFlags": ((HANDLE,), (c_uint,)), ...}

A row says the types of the results, then those of the arguments. In the C call pointers to the
results come before the arguments, and a status is returned; here
`call("hipStreamCreateWithFlags", 0)` gives the stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from hal_core.streams.driver import Refused, StreamDriver

HANDLE = ctypes.c_uint64  # a handle or an address that is returned: an integer, never None
Row = tuple[tuple[Any, ...], tuple[Any, ...]]  # types of the results, types of the arguments


class LibraryDriver(StreamDriver):
    """Functions of a C library; handles are integers. A subclass says what a status means."""

    def __init__(
        self, library: str, long: dict[str, Row], short: dict[str, Row], version: str = ""
    ) -> None:
        """Look the functions up; those in `short` are called with the GIL, which is faster than to
        give it up. `version` ends names in the library, not those in `call`.

        Raises: OSError where there is no such library; AttributeError where it lacks a function.
        """
        super().__init__()
        self._functions: dict[str, tuple[Callable[..., int], tuple[Any, ...]]] = {}
        for kind, table in ((ctypes.CDLL, long), (ctypes.PyDLL, short)):
            loaded = kind(library)
            for symbol, (results, arguments) in table.items():
                function = getattr(loaded, symbol)
                function.argtypes = (*[ctypes.c_void_p] * len(results), *arguments)
                self._functions[symbol.removesuffix(version)] = function, results

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the table; return its result or results."""
        function, kinds = self._functions[name]
        if kinds:
            results = [kind() for kind in kinds]
            code = function(*map(ctypes.byref, results), *arguments)
        else:  # copies, events: the fast way
            code = function(*arguments)
        if code:
            raise self.refused(name, code)
        if len(kinds) > 1:
            return tuple(result.value for result in results)
        return results[0].value if kinds else None

    def refused(self, name: str, status: Any) -> Refused:
        """Explain a status with the driver's own words."""
        raise NotImplementedError

    def function(self, name: str) -> Callable[..., int]:
        """Return a function of the table itself, which gives its status without raising."""
        return self._functions[name][0]


def address_of(dest: Any, nbytes: int) -> Any:
    """Return what ctypes takes as the pointer to a host address or to a flat writable buffer."""
    return dest if isinstance(dest, int) else (ctypes.c_ubyte * nbytes).from_buffer(dest)
