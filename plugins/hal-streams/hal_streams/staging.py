"""Large copies from pageable host memory to a busy device, through pinned memory in two halves.

The host fills a half and goes on: it does not wait for the work before.

    copy_in    processor  | fill A | fill B | fill A | ...
               device              | copy A | copy B | ...

To an idle device the driver copies faster: on an H200 1 MiB in 88 us, through halves in 135.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from hal_core.concurrency import run_unless_busy
from hal_streams import driver

if TYPE_CHECKING:
    from hal_streams.device import StreamDevice

LARGE_NBYTES = 64 << 10
BLOCK_NBYTES = _HALF_NBYTES = 4 << 20
HELD_COPIES = 64

Half = tuple[int, Any]  # address, and the event recorded after its last use


class Staging:
    """Host memory that copies of one device use; pinned memory is made at the first large copy.

    Concurrency: one copy at a time. A copy in a finalizer, in the middle of another, has halves of
    its own. The context of the device is current in every method.
    """

    def __init__(self, device: StreamDevice) -> None:
        self._device = device
        self._lock = threading.RLock()
        self._spare: list[Half] = []
        self._sent: list[bytes] = []
        self._sent_before: list[bytes] = []
        self._all_read: Any = None  # the event behind the copies of `_sent_before`

    @contextmanager
    def _two_halves(self) -> Iterator[list[Half]]:
        device = self._device
        with self._lock:
            device._check_open("copyin")  # another thread may have closed it
            halves: list[Half] = []
            try:
                halves.append(self._take_half())
                halves.append(self._take_half())  # apart: the first is known if this one fails
                yield halves
            except BaseException:  # a copy may be queued without an event after it
                with suppress(driver.Refused), device.api.relaxed():
                    device.api.wait(device.stream)
                raise
            finally:
                self._spare += halves

    def _take_half(self) -> Half:
        with suppress(IndexError):
            return self._spare.pop()
        api = self._device.api
        with ExitStack() as undo:
            with api.relaxed():
                address = api.allocate_host(_HALF_NBYTES)
            undo.callback(api.free_host, address)
            event = api.make_event()
            undo.callback(api.destroy_event, event)
            api.record(event, self._device.stream)
            undo.pop_all()
        return address, event

    def hold(self, sent: bytes) -> None:
        """Keep the bytes of a small copy, which is queued, until the device has them.

        Of an asynchronous copy of pageable memory CUDA says that it "might be synchronous", so the
        driver may read the bytes late. Source: "API synchronization behavior", CUDA driver API.
        """
        self._sent.append(sent)
        if len(self._sent) < HELD_COPIES:
            return
        api, device = self._device.api, self._device
        with self._lock, device.own("copyin"), api.relaxed():
            device._check_open("copyin")
            if self._all_read is None:
                self._all_read = api.make_event()
            api.wait_event(self._all_read)  # long over, as a rule
            self._sent_before, self._sent = self._sent, []
            api.record(self._all_read, device.stream)

    def copy_in(self, dest: int, src: memoryview) -> None:
        """Copy to the device; `src` may change on return."""
        api, stream = self._device.api, self._device.stream
        # The waits are for halves of ours, and no business of a capture by another library.
        with self._two_halves() as halves, api.relaxed():
            for turn, start in enumerate(range(0, src.nbytes, _HALF_NBYTES)):
                address, event = halves[turn % 2]
                part = src[start : start + _HALF_NBYTES]
                api.wait_event(event)
                _pinned(address, part.nbytes)[:] = part
                api.copy_in(dest + start, address, part.nbytes, stream)
                api.record(event, stream)

    def free_idle(self) -> None:
        """Free the pinned memory that no copy uses, unless a copy is under way."""
        run_unless_busy(self._lock, self._free_idle)

    def _free_idle(self) -> None:
        api = self._device.api
        idle = [half for half in self._spare if api.is_reached(half[1])]
        for half in idle:
            self._spare.remove(half)
            with ExitStack() as steps:
                steps.callback(api.destroy_event, half[1])
                api.free_host(half[0])

    def close(self) -> None:
        """Free the pinned memory; the device is idle."""
        with self._lock, ExitStack() as steps:  # each is taken, whatever another raises
            if self._spare or self._all_read is not None:
                steps.enter_context(self._device.own("close"))
            if self._all_read is not None:
                steps.callback(self._device.api.destroy_event, self._all_read)
                self._all_read = None
            while True:
                if not self._spare:
                    break
                address, event = self._spare.pop()
                steps.callback(self._device.api.destroy_event, event)
                steps.callback(self._device.api.free_host, address)


class PinnedBlock:
    """Pinned memory of a queue's copy, which is used again when nobody refers to it."""

    __slots__ = ("address", "nbytes", "spare")

    def __init__(self, address: int, nbytes: int, spare: list[int]) -> None:
        self.address, self.nbytes, self.spare = address, nbytes, spare

    def __del__(self) -> None:
        self.spare.append(self.address)

    def part(self, nbytes: int) -> memoryview:
        """Return the first bytes."""
        return _pinned(self.address, nbytes)


class PinnedBlocks:
    """Pinned memory of one device's queues: small and large blocks.

    Owns: all blocks, also those in use, until `destroy`.
    """

    def __init__(self, device: StreamDevice) -> None:
        self._device = device
        self._made: list[int] = []
        self._spare: dict[int, list[int]] = {LARGE_NBYTES: [], BLOCK_NBYTES: []}

    def take(self, nbytes: int) -> PinnedBlock:
        """Return a block of at least that size, which is at most `BLOCK_NBYTES`."""
        size = LARGE_NBYTES if nbytes <= LARGE_NBYTES else BLOCK_NBYTES
        spare = self._spare[size]
        try:
            address = spare.pop()
        except IndexError:
            with self._device.own("allocate"), self._device.api.relaxed():
                address = self._device.api.allocate_host(size)
            self._made.append(address)
        return PinnedBlock(address, size, spare)

    def free_idle(self) -> None:
        """Free the blocks that no queue uses. The caller has made the context current."""
        for spare in self._spare.values():
            with suppress(IndexError):  # there is none left
                while True:
                    self._free(spare.pop())

    def _free(self, address: int) -> None:
        with suppress(ValueError):  # another thread was faster, as it destroys all of them
            self._made.remove(address)  # first: another thread may get the same address
            self._device.api.free_host(address)

    def destroy(self) -> None:
        """Free the memory; the device is idle. The caller has made the context current."""
        with ExitStack() as steps:  # each is taken, whatever another raises
            while True:
                if not self._made:
                    break
                steps.callback(self._device.api.free_host, self._made.pop())


def _pinned(address: int, nbytes: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")
