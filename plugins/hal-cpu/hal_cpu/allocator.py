"""Memory of the CPU: ordinary memory of this process."""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, Any

from hal_core.allocator import LRUAllocator
from hal_cpu import driver

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec
    from hal_core.device.base import Compiled
    from hal_cpu.device import CPUDevice

_SMALL_NBYTES = 64 << 10  # smaller blocks come from the C heap, which costs less than a mapping

# Bytes of the first page before each mapped block, in turn. A load waits for an earlier store whose
# address has the same low 12 bits: a filter of rows of 4096 bytes takes 1.07 times as long where
# input and output begin at the same place of their pages.
_starts = itertools.cycle((0, 2048, 1024, 3072, 512, 2560, 1536, 3584))


class CPUAllocator(LRUAllocator[int]):
    """Ordinary memory of this process. An opaque is an address.

    Addresses are multiples of 64. All memory is host memory, so every block honours `host` and
    `cpu_access`.
    """

    honours = frozenset({"nolru", "zero", "external_ptr", "cpu_access", "host"})
    device: CPUDevice
    null = 0
    wraps_addresses = True
    fresh_is_zero = True
    host_ordered = True

    def _alloc(self, nbytes: int, options: BufferSpec) -> int:
        try:
            if nbytes >= _SMALL_NBYTES:
                start = next(_starts)
                return driver.map_pages(nbytes + start, huge=nbytes >= driver.HUGE) + start
            address = driver.allocate_small(nbytes)
        except driver.Refused as error:  # faster than `driver.check`
            error.nbytes = nbytes  # without what lies before it in its page
            raise driver.explain(error, "allocate", self.device.name) from None
        if options.zero:  # the heap hands out used memory; fresh pages are zero
            ctypes.memset(address, 0, nbytes)
        return address

    def _free(self, opaque: int, nbytes: int, options: BufferSpec) -> None:
        if nbytes >= _SMALL_NBYTES:
            start = opaque % driver.PAGE
            driver.unmap_pages(opaque - start, nbytes + start)
        else:
            driver.free_small(opaque)

    def _wrap(self, pointer: int, nbytes: int) -> int:
        return pointer

    def _offset(self, opaque: int, nbytes: int, offset: int) -> int:
        return opaque + offset

    # A long copy releases the GIL, and another thread may free its memory meanwhile, so the copy
    # is registered as work in flight. Registering a short copy would take longer than the copy; it
    # keeps the GIL, in one call.

    def _copyin(self, dest: int, src: memoryview) -> None:
        if src.nbytes <= driver.LARGE_COPY:
            driver.memory_at(dest, src.nbytes)[:] = src
        else:
            address, _holder = driver.address_of(src)
            with self.device.in_flight.using(dest):
                ctypes.memmove(dest, address, src.nbytes)

    def _copyout(self, dest: memoryview, src: int) -> None:
        if dest.nbytes <= driver.LARGE_COPY:
            dest[:] = driver.memory_at(src, dest.nbytes)
        else:
            address, _holder = driver.address_of(dest)
            with self.device.in_flight.using(src):
                ctypes.memmove(address, src, dest.nbytes)

    def _transfer(self, dest: int, src: Any, nbytes: int, src_device: Compiled) -> bool:
        if type(src_device) is not type(self.device):  # else it is memory of this process, too
            return False
        if nbytes <= driver.LARGE_COPY:
            driver.move_short(dest, src, nbytes)
            return True
        other: CPUDevice = src_device
        # Both in one step: once one is in flight, another thread may free the other.
        with self.device.in_flight.using(dest, src), other.in_flight.using(src):
            ctypes.memmove(dest, src, nbytes)
        return True

    def _fill(self, dest: int, nbytes: int, pattern: bytes) -> None:
        same = len(set(pattern)) == 1
        if same and nbytes <= driver.LARGE_COPY:
            driver.fill_short(dest, pattern[0], nbytes)
        elif nbytes <= _SMALL_NBYTES:
            driver.memory_at(dest, nbytes)[:] = pattern * (nbytes // len(pattern))
        else:
            with self.device.in_flight.using(dest):
                if same:
                    ctypes.memset(dest, pattern[0], nbytes)
                else:
                    _repeat(dest, nbytes, pattern)

    def _as_buffer(self, opaque: int, nbytes: int) -> memoryview:
        return driver.memory_at(opaque, nbytes)

    def _take_back(self, opaque: int, nbytes: int, options: BufferSpec) -> None:
        in_flight = self.device.in_flight
        if not (in_flight.work and in_flight.defer(self, opaque, nbytes, options)):
            super()._take_back(opaque, nbytes, options)

    def _drain(self) -> None:
        in_flight = self.device.in_flight
        if in_flight.freed:  # perhaps left by Ctrl-C at the end of the work that used it
            in_flight.return_unused()
        super()._drain()


def _repeat(address: int, nbytes: int, pattern: bytes) -> None:
    """Fill memory with copies of the pattern; each step doubles the part that is filled.

    pattern ab, nbytes 10:   ab........ -> abab...... -> abababab.. -> ababababab
    """
    ctypes.memmove(address, pattern, len(pattern))
    done = len(pattern)
    while done < nbytes:
        step = min(done, nbytes - done)
        ctypes.memmove(address + done, address, step)
        done += step
