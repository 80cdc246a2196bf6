"""Memory of the interpreter: numpy arrays, each with a record of the bytes that were written."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hal_core.allocator import LRUAllocator

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec
    from hal_core.device.base import Compiled
    from hal_kernel.python.device import PythonDevice

Bytes = npt.NDArray[np.uint8]

_POISON = 0xCB


class Part:
    """A block or a part of one. The first `nbytes` bytes of the block are in use.

    `record` has a 1 for each byte that was written; None stands for memory of the caller's own,
    of which nothing is known.
    """

    __slots__ = ("_block", "_record", "nbytes")

    def __init__(self, block: Bytes, record: Bytes | None) -> None:
        self._block, self._record, self.nbytes = block, record, len(block)

    @property
    def data(self) -> Bytes:
        return self._block[: self.nbytes]

    @property
    def record(self) -> Bytes | None:
        return None if self._record is None else self._record[: self.nbytes]

    def part(self, offset: int, nbytes: int) -> Part:
        """Return a part, which shares bytes and record."""
        inside = slice(offset, offset + nbytes)
        return Part(self._block[inside], None if self._record is None else self._record[inside])

    def put(self, data: Any, written: Any = 1) -> None:
        """Replace the bytes; `written` says of each whether it counts as written."""
        self.data[:] = data
        if self._record is not None:
            self._record[: self.nbytes] = written


class PythonAllocator(LRUAllocator[Part]):
    """Arrays in the memory of this process. Fresh memory holds 0xCB, and kernels may not read it.

    Whatever reads or writes memory takes the device's turn: a block that was freed during a launch
    of another thread is handed out after that launch.
    """

    honours = frozenset({"nolru", "zero", "external_ptr", "cpu_access", "host"})
    device: PythonDevice
    null = Part(np.empty(0, np.uint8), None)
    wraps_addresses = True

    def __init__(self, device: Compiled) -> None:
        super().__init__(device)
        self.poison = True

    # -- blocks are rounded up; what is beyond the bytes that were asked for is out of bounds

    def _fresh(self, nbytes: int, size: int, options: BufferSpec) -> Part:
        opaque = super()._fresh(nbytes, size, options)
        opaque.nbytes = nbytes
        return opaque

    def _take_cached(self, nbytes: int, size: int, options: BufferSpec) -> Part | None:
        opaque = super()._take_cached(nbytes, size, options)
        if opaque is not None:
            opaque.nbytes = nbytes
        return opaque

    def _alloc(self, nbytes: int, options: BufferSpec) -> Part:
        return Part(np.empty(nbytes, np.uint8), np.zeros(nbytes, np.uint8))

    def _free(self, opaque: Part, nbytes: int, options: BufferSpec) -> None:
        """Do nothing: the arrays go with the opaque."""

    def _initialise(self, opaque: Part, nbytes: int, options: BufferSpec) -> None:
        if options.zero or self.poison:
            with self.device.turn:
                opaque.put(0 if options.zero else _POISON, options.zero)

    def _wrap(self, pointer: int, nbytes: int) -> Part:
        memory = (ctypes.c_uint8 * nbytes).from_address(pointer)
        return Part(np.frombuffer(memoryview(memory), np.uint8), None)

    def _offset(self, opaque: Part, nbytes: int, offset: int) -> Part:
        return opaque.part(offset, nbytes)

    def _copyin(self, dest: Part, src: memoryview) -> None:
        with self.device.turn:
            dest.put(np.frombuffer(src, np.uint8))

    def _copyout(self, dest: memoryview, src: Part) -> None:
        with self.device.turn:
            dest[:] = src.data.data

    def _transfer(self, dest: Part, src: Any, nbytes: int, src_device: Compiled) -> bool:
        if src_device is not self.device:
            return False
        with self.device.turn:
            dest.put(src.data, 1 if src.record is None else src.record)
        return True

    def _fill(self, dest: Part, nbytes: int, pattern: bytes) -> None:
        with self.device.turn:
            dest.put(np.resize(np.frombuffer(pattern, np.uint8), nbytes))

    def _as_buffer(self, opaque: Part, nbytes: int) -> memoryview:
        # The view's holder may write unseen at any time, so all bytes count as written.
        record = opaque.record
        if record is not None:
            record[:] = 1
        return opaque.data.data
