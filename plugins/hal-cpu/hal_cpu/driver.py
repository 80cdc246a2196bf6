"""Call the host's C library, and turn its failures into exceptions of hal-core.

Source: mmap(2), posix_memalign(3), dlsym(3), pthread_getattr_np(3).
"""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import cache
from typing import Any

from hal_core.errors import OutOfMemory
from hal_cpu import processor

PAGE = mmap.PAGESIZE
HUGE = 2 << 20  # bytes of a huge page on x86-64, and on aarch64 with 4 KiB pages
READ, WRITE, EXECUTE = mmap.PROT_READ, mmap.PROT_WRITE, mmap.PROT_EXEC

LARGE_COPY = 1 << 20  # bytes; a longer copy releases the GIL

_NO_ACCESS = 0  # PROT_NONE
_MADV_DONTNEED = 4  # the pages are zero when they are touched again
_MADV_HUGEPAGE = 14  # Linux; `mmap` lacks the name where Python was built without it
_MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_mmap, _munmap, _mprotect, _madvise = _libc.mmap, _libc.munmap, _libc.mprotect, _libc.madvise
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_mprotect.argtypes = _madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_posix_memalign, _libc_free = _libc.posix_memalign, _libc.free
_posix_memalign.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t)
_libc_free.argtypes = (ctypes.c_void_p,)
_libc_free.restype = None
_libc.pthread_self.restype = ctypes.c_void_p


# -- failures


class Refused(Exception):
    """The host refused a call. `explain` turns it into an exception of hal-core."""

    def __init__(self, call: str, code: int, nbytes: int) -> None:
        super().__init__(f"{call} failed: {os.strerror(code)} (errno {code})")
        self.nbytes = nbytes


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

    With `huge` the kernel is asked for huge pages: 64 MiB costs 32 page faults, not 16384.
    Owns: the caller, until `unmap_pages`. Raises: Refused.
    """
    nbytes = pages(nbytes)
    spare = HUGE if huge else 0  # so that a multiple of HUGE lies in the first part
    address = _mmap(
        None, nbytes + spare, READ | WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
    )
    if address is None or address == _MAP_FAILED:
        raise Refused("mmap", ctypes.get_errno(), nbytes)
    if not huge:
        return int(address)
    start = (address + HUGE - 1) // HUGE * HUGE
    # Give back the addresses before and after the aligned part.
    for low, high in ((address, start), (start + nbytes, address + nbytes + spare)):
        if high > low:
            _munmap(low, high - low)
    _madvise(start, nbytes, _MADV_HUGEPAGE)  # a hint: Linux without huge pages answers EINVAL
    return int(start)


def unmap_pages(address: int, nbytes: int) -> None:
    _munmap(address, pages(nbytes))


def protect_pages(address: int, nbytes: int, rights: int) -> None:
    """Set what the pages may be used for. Raises: Refused, when there are too many mappings."""
    if nbytes and _mprotect(address, pages(nbytes), rights):
        raise Refused("mprotect", ctypes.get_errno(), nbytes)


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
    _madvise(address, pages(nbytes), _MADV_DONTNEED)
    protect_pages(address, nbytes, _NO_ACCESS)


def unmap_guarded(address: int, nbytes: int) -> None:
    unmap_pages(address - PAGE, pages(nbytes) + 2 * PAGE)


def allocate_small(nbytes: int, alignment: int = 64) -> int:
    """Allocate from the C heap, which is cheaper than a mapping of its own. Raises: Refused."""
    place = ctypes.c_void_p()
    code = _posix_memalign(ctypes.byref(place), alignment, nbytes)
    if code or not place.value:
        raise Refused("posix_memalign", code, nbytes)
    return place.value


def free_small(address: int) -> None:
    _libc_free(address)


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


class _ReadOnly:
    """The address of read-only memory, held in place; ctypes does that for writable memory only."""

    __slots__ = ("_buffer", "_release", "address")

    def __init__(self, view: memoryview) -> None:
        self._buffer = ctypes.create_string_buffer(_PY_BUFFER_NBYTES)
        _get_buffer(view, self._buffer, 0)
        self._release = _release_buffer  # at exit the module may be cleared already
        self.address = ctypes.c_void_p.from_buffer(self._buffer).value or 0

    def __del__(self) -> None:
        self._release(self._buffer)


def address_of(view: memoryview) -> tuple[int, object]:
    """Return the address of contiguous memory, and an object that holds the memory in place."""
    if view.readonly:
        holder = _ReadOnly(view)
        return holder.address, holder
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
    for name in ("libm.so.6", "libgcc_s.so.1", None):
        try:
            found.append(ctypes.CDLL(name))
        except OSError:  # musl has them all in one
            continue
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


def stack_nbytes() -> int:
    """Return the size of the calling thread's stack; for the main thread, what it may grow to.

    Return 0 where the C library cannot say. Source: pthread_getattr_np(3); glibc and musl.
    """
    attributes = ctypes.create_string_buffer(128)  # pthread_attr_t is 56 or 64 bytes
    nbytes = ctypes.c_size_t()
    if _libc.pthread_getattr_np(ctypes.c_void_p(_libc.pthread_self()), attributes):
        return 0
    _libc.pthread_attr_getstacksize(attributes, ctypes.byref(nbytes))
    _libc.pthread_attr_destroy(attributes)
    return nbytes.value
