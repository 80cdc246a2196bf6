"""Memory, stacks, libraries and facts of the processor on Windows.

Source: memoryapi.h, processthreadsapi.h, sysinfoapi.h and winnt.h of Microsoft's documentation.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from hal_core.concurrency import suppress
from hal_cpu.system.refused import Refused

_RESERVE, _COMMIT, _DECOMMIT, _RELEASE = 0x2000, 0x1000, 0x4000, 0x8000
# PAGE_NOACCESS and so on, by the bits of READ, WRITE and EXECUTE.
_RIGHTS = {0: 0x01, 1: 0x02, 3: 0x04, 5: 0x20}
_STACK_NBYTES = 1 << 20  # the linker's default; python.exe has more

# The C library with the math functions; memcpy and the like; __chkstk, which code for
# Windows calls before it takes much of a stack.
LIBRARIES = ("ucrtbase", "vcruntime140", "ntdll")

# Features of winnt.h, as other systems call them. A processor with AVX2 has FMA and F16C.
_FEATURES = {39: ("avx",), 40: ("avx2", "fma", "f16c"), 41: ("avx512f",)}
_PROCESSOR = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"


_kernel32: Any = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined,unused-ignore]
_ucrt = ctypes.CDLL("ucrtbase")
_address, _size, _flags = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
_kernel32.VirtualAlloc.argtypes = (_address, _size, _flags, _flags)
_kernel32.VirtualAlloc.restype = _address
_kernel32.VirtualFree.argtypes = (_address, _size, _flags)
_kernel32.VirtualProtect.argtypes = (_address, _size, _flags, ctypes.POINTER(_flags))
_kernel32.GetCurrentProcess.restype = _address
_kernel32.GetProcessAffinityMask.argtypes = (_address, *[ctypes.POINTER(_size)] * 2)
_kernel32.GetCurrentThreadStackLimits.argtypes = [ctypes.POINTER(_size)] * 2
_kernel32.GetCurrentThreadStackLimits.restype = None
_ucrt._aligned_malloc.argtypes = (_size, _size)
_ucrt._aligned_malloc.restype = _address
_ucrt._aligned_free.argtypes = (_address,)
_ucrt._aligned_free.restype = None


# -- memory


def map_pages(nbytes: int, alignment: int) -> int:
    """Return the address of fresh, zeroed pages, a multiple of 64 KiB: more alignment is only a
    wish for large pages, which Windows gives to administrators. Raises: Refused."""
    address = _kernel32.VirtualAlloc(None, nbytes, _RESERVE | _COMMIT, _RIGHTS[3])
    if not address:
        raise _refused("VirtualAlloc", nbytes)
    return int(address)


def unmap_pages(address: int, nbytes: int) -> None:
    _kernel32.VirtualFree(address, 0, _RELEASE)  # all that was mapped at once


def protect_pages(address: int, nbytes: int, rights: int) -> None:
    """Set what the pages may be used for. Raises: Refused."""
    before = _flags()
    if not _kernel32.VirtualProtect(address, nbytes, _RIGHTS[rights], ctypes.byref(before)):
        raise _refused("VirtualProtect", nbytes)


def retire_pages(address: int, nbytes: int) -> None:
    """Give the memory back and keep its addresses reserved, without access. Raises: Refused."""
    if not _kernel32.VirtualFree(address, nbytes, _DECOMMIT):
        raise _refused("VirtualFree", nbytes)


def allocate_small(nbytes: int, alignment: int = 64) -> int:
    """Allocate from the C heap. Raises: Refused."""
    address = _ucrt._aligned_malloc(nbytes, alignment)
    if not address:
        raise Refused("_aligned_malloc", "not enough memory", nbytes)
    return int(address)


free_small = _ucrt._aligned_free


def _refused(call: str, nbytes: int) -> Refused:
    code = ctypes.get_last_error()  # type: ignore[attr-defined,unused-ignore]
    text = ctypes.FormatError(code)  # type: ignore[attr-defined,unused-ignore]
    return Refused(call, f"{text.strip()} (error {code})", nbytes)


# -- stacks


def stack_nbytes() -> int:
    """Return the size of the calling thread's stack."""
    low, high = _size(), _size()
    _kernel32.GetCurrentThreadStackLimits(ctypes.byref(low), ctypes.byref(high))
    return high.value - low.value


def usual_stack_nbytes() -> int | None:
    """Return the size of new threads' stacks, unless Python sets another."""
    return _STACK_NBYTES


# -- the processor, and the share of this process


def facts(machine: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the processor's title (empty: unknown), its model, and its features."""
    present = _kernel32.IsProcessorFeaturePresent
    features = [name for code, names in _FEATURES.items() if present(code) for name in names]
    return _title(), os.environ.get("PROCESSOR_IDENTIFIER", ""), tuple(features)


def _title() -> str:
    import winreg as registry

    with suppress(OSError):
        root = registry.HKEY_LOCAL_MACHINE  # type: ignore[attr-defined,unused-ignore]
        with registry.OpenKey(root, _PROCESSOR) as key:  # type: ignore[attr-defined,unused-ignore]
            title, _ = registry.QueryValueEx(key, "ProcessorNameString")  # type: ignore[attr-defined,unused-ignore]
            return str(title).strip()
    return ""


def affinity() -> int:
    """Count the processors that this process may use; 0: unknown."""
    own, all_of_them = _size(), _size()
    process = _kernel32.GetCurrentProcess()
    if not _kernel32.GetProcessAffinityMask(process, ctypes.byref(own), ctypes.byref(all_of_them)):
        return 0
    return own.value.bit_count()  # 0 in a process of several processor groups


class _Memory(ctypes.Structure):
    """MEMORYSTATUSEX."""

    _fields_ = (
        ("nbytes", ctypes.c_uint32), ("load", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in (
            "total", "free", "page_total", "page_free", "virtual_total", "virtual_free", "extended",
        )),
    )  # fmt: skip


def memory_nbytes() -> int:
    """Return the machine's bytes of memory."""
    status = _Memory(nbytes=ctypes.sizeof(_Memory))
    _kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return int(status.total)
