"""Large copies between pageable host memory and a GPU: through pinned memory, in two halves.

While the GPU takes one half the processor fills the other. The driver's own way for pageable memory
does one after the other.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from hal_cuda import driver

if TYPE_CHECKING:
    from hal_cuda.device import CUDADevice

LARGE_IN_NBYTES, LARGE_OUT_NBYTES = 64 << 10, 1 << 20
_HALF_NBYTES = 4 << 20


Half = tuple[int, Any]  # address, the event behind its last use


class Staging:
    """Pinned memory of one device, made at the first large copy.

    Concurrency: one copy at a time. In the middle of one a finalizer may copy, or close the device.
    """

    def __init__(self, device: CUDADevice) -> None:
        self._device = device
        self._lock = threading.RLock()
        self._halves: list[Half] | None = []  # None while a copy has them

    @contextmanager
    def _turn(self, operation: str) -> Iterator[list[Half] | None]:
        """The halves, for one copy; None in the middle of another."""
        device = self._device
        with self._lock:
            device._check_open(operation)  # another thread may have closed it meanwhile
            halves, self._halves = self._halves, None
            try:
                yield halves if halves is None else self._ready(halves)
            except BaseException:  # an event may be missing behind a copy
                with suppress(driver.Refused):
                    device.api.wait(device.stream)
                raise
            finally:
                self._halves = halves
                if device.closed:
                    self.close()

    def _ready(self, halves: list[Half]) -> list[Half]:
        api = self._device.api
        while len(halves) < 2:
            with ExitStack() as undo:
                address = api.allocate_host(_HALF_NBYTES)
                undo.callback(api.free_host, address)
                event = api.make_event()
                undo.callback(api.destroy_event, event)
                api.record(event, self._device.stream)
                undo.pop_all()
            halves.append((address, event))
        return halves

    def copy_in(self, dest: int, src: memoryview) -> bool:
        """The context is current. `src` may change on return. False: nothing was done."""
        api, stream = self._device.api, self._device.stream
        with self._turn("copyin") as halves:
            if halves is None:
                return False
            for turn, start in enumerate(range(0, src.nbytes, _HALF_NBYTES)):
                address, event = halves[turn % 2]
                part = src[start : start + _HALF_NBYTES]
                api.wait_event(event)
                _pinned(address, part.nbytes)[:] = part
                api.copy_in(dest + start, address, part.nbytes, stream)
                api.record(event, stream)
        return True

    def copy_out(self, dest: memoryview, src: int) -> bool:
        """The context is current. The data is there on return. False: nothing was done."""
        api, stream = self._device.api, self._device.stream
        starts = range(0, dest.nbytes, _HALF_NBYTES)
        with self._turn("copyout") as halves:
            if halves is None:
                return False
            for turn in range(len(starts) + 1):
                if turn < len(starts):
                    address, event = halves[turn % 2]
                    nbytes = min(_HALF_NBYTES, dest.nbytes - starts[turn])
                    api.wait_event(event)
                    api.copy_out(address, src + starts[turn], nbytes, stream)
                    api.record(event, stream)
                if turn:
                    address, event = halves[(turn - 1) % 2]
                    part = dest[starts[turn - 1] : starts[turn - 1] + _HALF_NBYTES]
                    api.wait_event(event)
                    part[:] = _pinned(address, part.nbytes)
        return True

    def close(self) -> None:
        """Order: the device is idle."""
        with self._lock:
            if not self._halves:
                return  # None: the copy that has them gives them back
            halves, self._halves = self._halves, []
            with self._device.own("close"), ExitStack() as steps:
                for address, event in halves:
                    steps.callback(self._device.api.destroy_event, event)
                    steps.callback(self._device.api.free_host, address)


def _pinned(address: int, nbytes: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")
