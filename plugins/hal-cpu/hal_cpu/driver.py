"""Call the host's system and C library, and turn their failures into exceptions of hal-core."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from hal_core.concurrency import suppress
from hal_core.errors import OutOfMemory
from hal_cpu import processor
from hal_cpu.system.refused import Refused as Refused

if sys.platform == "win32":
    from hal_cpu.system import windows as system
else:
    from hal_cpu.system import posix as system

PAGE = mmap.PAGESIZE
HUGE = 2 << 20  # bytes of a huge page on x86-64, and on aarch64 with 4 KiB pages
READ, WRITE, EXECUTE = 1, 2, 4  # PROT_READ and so on

LARGE_COPY = 1 << 20  # bytes; a longer copy releases the GIL

_NO_ACCESS = 0


# -- failures


def explain(error: Refused, operation: str, device: str) -> OutOfMemory:
    """Return the exception of hal-core for a refusal: memory, addresses or mappings ran out."""
    return OutOfMemory(operation, str(error), got=error.nbytes, device=device)


class check:
    """`with check("allocate", name):` turns refused calls inside into exceptions of hal-core."""

    __slots__ = ("device", "operation")

    def __init__(self, operation: str, device: str) -> None:
        self.operation, self.device = operation, device

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Refused):
            raise explain(error, self.operation, self.device) from None


# -- memory


def pages(nbytes: int) -> int:
    """Round `nbytes` up to whole pages."""
    return (nbytes + PAGE - 1) // PAGE * PAGE


def map_pages(nbytes: int, huge: bool = False) -> int:
    """Return the address of fresh, private, zeroed pages that may be read and written.

    With `huge` Linux is asked for huge pages: 64 MiB costs 32 page faults, not 16384.
    Owns: the caller, until `unmap_pages`. Raises: Refused.
    """
    return system.map_pages(pages(nbytes), HUGE if huge else PAGE)


def unmap_pages(address: int, nbytes: int) -> None:
    system.unmap_pages(address, pages(nbytes))


def protect_pages(address: int, nbytes: int, rights: int) -> None:
    """Set what the pages may be used for. Raises: Refused, when there are too many mappings."""
    if nbytes:
        system.protect_pages(address, pages(nbytes), rights)


def map_guarded(nbytes: int) -> int:
    """Map pages with an inaccessible page before and one after them. Raises: Refused."""
    room = pages(nbytes)
    start = map_pages(room + 2 * PAGE)
    try:
        protect_pages(start, PAGE, _NO_ACCESS)
        protect_pages(start + PAGE + room, PAGE, _NO_ACCESS)
    except Refused:
        unmap_pages(start, room + 2 * PAGE)
        raise
    return start + PAGE


def retire_guarded(address: int, nbytes: int) -> None:
    """Give the memory back and keep its addresses reserved: every access there is a fault."""
    system.retire_pages(address, pages(nbytes))


def unmap_guarded(address: int, nbytes: int) -> None:
    unmap_pages(address - PAGE, pages(nbytes) + 2 * PAGE)


# From the C heap, which is cheaper than a mapping of its own. Raises: Refused.
allocate_small = system.allocate_small
free_small = system.free_small


_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype = ctypes.py_object
_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_PYBUF_WRITE = 0x200


def memory_at(address: int, nbytes: int) -> memoryview:
    """Return `nbytes` writable bytes at `address`. The view keeps nothing alive."""
    view: memoryview = _view(address, nbytes, _PYBUF_WRITE)
    return view


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.c_void_p,)
_release_buffer.restype = None
_PY_BUFFER_NBYTES = 80  # of struct Py_buffer, which begins with the address; part of the ABI


class _Held(ctypes.c_char * _PY_BUFFER_NBYTES):  # type: ignore[misc]  # made from a number
    """A `Py_buffer`, which holds memory in place; a new one, all zeros, holds none.

    ctypes does that for writable memory only.
    """

    # A default argument, as the module may be cleared at exit.
    def __del__(self, release: Callable[[Any], None] = _release_buffer) -> None:
        release(self)


def address_of(view: memoryview) -> tuple[int, object]:
    """Return the address of contiguous memory, and an object that holds the memory in place."""
    if view.readonly:
        held = _Held()
        _get_buffer(view, held, 0)
        return ctypes.c_void_p.from_buffer(held).value or 0, held
    byte = ctypes.c_char.from_buffer(view)
    return ctypes.addressof(byte), byte


# The C library's functions without a release of the GIL, so that no other thread can free the
# memory meanwhile. For short memory, up to LARGE_COPY.
_VOID, _SIZE = ctypes.c_void_p, ctypes.c_size_t
move_short = ctypes.PYFUNCTYPE(None, _VOID, _VOID, _SIZE)(  # to, from, nbytes
    ctypes.cast(ctypes.memmove, _VOID).value or 0
)
fill_short = ctypes.PYFUNCTYPE(None, _VOID, ctypes.c_int, _SIZE)(  # to, byte, nbytes
    ctypes.cast(ctypes.memset, _VOID).value or 0
)


# -- symbols


@cache
def _libraries() -> list[ctypes.CDLL]:
    """Open the libraries that kernels may call: math, compiler helpers, C. They stay open."""
    found = []
    for name in system.LIBRARIES:
        with suppress(OSError):  # musl has them all in one
            found.append(ctypes.CDLL(name))
    return found


def symbol_address(name: str) -> int | None:
    """Return the address of a function or object of the C run time; None if none has the name."""
    for library in _libraries():
        try:
            return ctypes.cast(library[name], ctypes.c_void_p).value
        except (AttributeError, ValueError):  # ValueError: a NUL in the name
            continue
    return None


def flush_instructions(address: int, nbytes: int) -> None:
    """Make fresh code visible to instruction fetch; x86-64 does it by itself.

    Source: Arm ARM (DDI 0487), B2.7.4.2; `__clear_cache` is in libgcc.
    """
    if processor.machine() != "x86-64":
        clear = symbol_address("__clear_cache")
        if clear is not None:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(clear)(
                address, address + nbytes
            )


# -- threads

stack_nbytes = system.stack_nbytes  # of the calling thread
usual_stack_nbytes = system.usual_stack_nbytes  # of new threads
