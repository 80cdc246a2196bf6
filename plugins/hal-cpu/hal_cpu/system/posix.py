"""Memory, stacks and libraries on Linux and macOS.

Source: mmap(2), posix_memalign(3), pthread_getattr_np(3); pthread_get_stacksize_np in <pthread.h>
of Apple's SDK.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import sys

from hal_cpu.system.refused import Refused

_LINUX = sys.platform == "linux"
_FIXED = 0x10  # MAP_FIXED: replace what is mapped there
_MADV_HUGEPAGE = 14  # Linux; `mmap` lacks the name where Python was built without it
_MAP_FAILED = ctypes.c_void_p(-1).value
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_NO_ACCESS = 0  # PROT_NONE

# Math, compiler helpers, C. None is the process itself, with the C library.
LIBRARIES = ("libm.so.6", "libgcc_s.so.1", None) if _LINUX else (None,)

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


def map_pages(nbytes: int, alignment: int) -> int:
    """Return the address of fresh, zeroed pages. From 2 MiB of alignment on huge ones are asked
    for, where the system is asked for them. Raises: Refused."""
    # With so many bytes to spare, a multiple of the alignment lies in the first part.
    spare = alignment if alignment > mmap.PAGESIZE else 0
    address = _mmap(None, nbytes + spare, mmap.PROT_READ | mmap.PROT_WRITE, _PRIVATE, -1, 0)
    if address is None or address == _MAP_FAILED:
        raise _refused("mmap", nbytes)
    if not spare:
        return int(address)
    start = (address + alignment - 1) // alignment * alignment
    # Give back the addresses before and after the aligned part.
    for low, high in ((address, start), (start + nbytes, address + nbytes + spare)):
        if high > low:
            _munmap(low, high - low)
    if _LINUX:  # macOS has no such hint
        _madvise(start, nbytes, _MADV_HUGEPAGE)  # Linux without huge pages answers EINVAL
    return int(start)


def unmap_pages(address: int, nbytes: int) -> None:
    _munmap(address, nbytes)


def protect_pages(address: int, nbytes: int, rights: int) -> None:
    """Set what the pages may be used for. Raises: Refused, when there are too many mappings."""
    if _mprotect(address, nbytes, rights):
        raise _refused("mprotect", nbytes)


def retire_pages(address: int, nbytes: int) -> None:
    """Give the memory back and keep its addresses reserved, without access. Raises: Refused."""
    # New pages in the place of the old ones, which no system fills before they are touched.
    if _mmap(address, nbytes, _NO_ACCESS, _PRIVATE | _FIXED, -1, 0) != address:
        raise _refused("mmap", nbytes)


def allocate_small(nbytes: int, alignment: int = 64) -> int:
    """Allocate from the C heap. Raises: Refused."""
    place = ctypes.c_void_p()
    code = _posix_memalign(ctypes.byref(place), alignment, nbytes)
    if code or not place.value:
        raise Refused("posix_memalign", os.strerror(code), nbytes)
    return place.value


free_small = _libc_free


def stack_nbytes() -> int:
    """Return the size of the calling thread's stack; 0 where the C library cannot say."""
    thread = ctypes.c_void_p(_libc.pthread_self())
    nbytes = ctypes.c_size_t()
    if hasattr(_libc, "pthread_get_stacksize_np"):  # macOS
        _libc.pthread_get_stacksize_np.restype = ctypes.c_size_t
        return int(_libc.pthread_get_stacksize_np(thread))
    attributes = ctypes.create_string_buffer(128)  # pthread_attr_t is 56 or 64 bytes
    if _libc.pthread_getattr_np(thread, attributes):
        return 0
    _libc.pthread_attr_getstacksize(attributes, ctypes.byref(nbytes))
    _libc.pthread_attr_destroy(attributes)
    return nbytes.value


def usual_stack_nbytes() -> int | None:
    """Return the size of new threads' stacks, unless Python sets another; None: no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return None if limit == resource.RLIM_INFINITY else limit


def _refused(call: str, nbytes: int) -> Refused:
    code = ctypes.get_errno()
    return Refused(call, f"{os.strerror(code)} (errno {code})", nbytes)
