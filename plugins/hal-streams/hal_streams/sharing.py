"""Memory that is shared with other libraries, whose work runs on streams of their own.

    an export is dropped    default stream: kernel ------ | mark
                            our stream:                     wait(mark), then the block's next owner

    an import is dropped    our stream:   kernel ------ | mark
                            its owner:                    gets the memory back at the mark

Both happen in finalizers, so in any thread and in the middle of anything: nothing here waits but
`reclaim`, nothing raises, and no driver call is made that a capture of another library forbids.
What cannot be done at once is done by a later call of the device. A consumer's own stream is never
touched: it may be gone, and a driver that is given its handle then ends the process.
docs/design/sharing.md says why.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hal_core.errors import DeviceFault, HalError

if TYPE_CHECKING:
    from hal_streams.device import StreamDevice
    from hal_streams.marks import Mark


STRAYS_KEPT = 8  # exports that nothing tells the end of, before one more waits for all work


class Export:
    """Memory that a consumer has, and the default stream that its work is ordered with."""

    __slots__ = ("lease", "stream")

    def __init__(self, lease: object, stream: Any) -> None:
        self.lease = lease
        self.stream = stream  # None: its work is ordered with nothing that outlives it


class Loan:
    """The object that the consumer keeps: its end is that of the export."""

    __slots__ = ("_export", "_sharing")

    def __init__(self, sharing: Sharing, export: Export) -> None:
        self._sharing, self._export = sharing, export

    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        # At the interpreter's exit no block is used again; names may be None by then.
        if not is_exiting():
            self._sharing.take_back(self._export)


class Borrowed:
    """The owner of memory that a dropped buffer had borrowed."""

    __slots__ = ("mark", "owner")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.mark: Mark | None = None  # behind the work that may use the memory


class Sharing:
    """Memory that other libraries and one device give back to each other.

    Order: our stream comes after what the default stream has when a consumer drops the memory.
    Owns: memory whose order is not settled yet, and owners of memory that our work may still use.
    Concurrency: every method may be called from any thread, and from finalizers.
    """

    def __init__(self, device: StreamDevice) -> None:
        self.device = device
        self._ended: deque[Export] = deque()  # which consumers have dropped
        self._stray: deque[Export] = deque()  # the same, where our stream could not follow
        self._borrowed: deque[Borrowed] = deque()  # in the order of their marks

    def is_pending(self) -> bool:
        """Return whether anything is still to be given back, to us or by us."""
        return bool(self._borrowed or self._ended or self._stray)

    # -- exports

    def lend(self, stream: Any, lease: object) -> Loan:
        """Return what a consumer is to keep. `stream` is a default one that comes after its work;
        None: there is none."""
        return Loan(self, Export(lease, stream))

    def take_back(self, export: Export) -> None:
        """Take memory back from a consumer."""
        if self.device.closed:  # then memory is freed behind all work of the context
            return
        self._ended.append(export)
        self.settle()

    def settle(self) -> None:
        """Let our later work come after that of consumers which gave memory back."""
        for ended in list(self._ended):
            # Taken out at the end, as Ctrl-C may come; to follow a stream twice does no harm.
            if self._follow(ended):
                with suppress(ValueError):  # another thread was faster
                    self._ended.remove(ended)

    def _follow(self, export: Export) -> bool:
        device, api, stream = self.device, self.device.api, export.stream
        if device.closed:  # since the caller looked
            return True
        try:
            if stream is not None:
                with device.visit("__dlpack__"):
                    # A mark in a stream that is captured would be part of that graph, and so would
                    # every stream that waits for it.
                    if api.is_capturing(stream) or api.is_capturing(device.stream):
                        return False
                    mark = device.marks.record(stream)
                    device.call("__dlpack__", api.wait_for, device.stream, mark.handle)
                    return True
        except DeviceFault:  # the context is lost, and the memory with it
            return True
        except HalError:  # there is no event
            pass
        self._stray.append(export)
        return True

    def reclaim(self, kept: int = 0) -> None:
        """Take back what can be had: where nothing tells the end of a consumer's work, by a wait
        for all work, unless that would give back no more than `kept`."""
        self.settle()
        self.release()
        strays = list(self._stray)
        if len(strays) <= kept:
            return
        device, api = self.device, self.device.api
        # Refused while a stream of the context is captured, and in a lost context.
        with suppress(HalError), device.own("wait"), api.relaxed():
            api.wait_context()
            for stray in strays:
                with suppress(ValueError):  # another thread was faster
                    self._stray.remove(stray)

    # -- imports

    def hold(self, owner: object) -> None:
        """Keep the owner of borrowed memory until our work that may use the memory is over."""
        if self.device.closed:  # which has waited for all work
            return
        borrowed = Borrowed(owner)
        self._borrowed.append(borrowed)  # first, as Ctrl-C may come
        if self._is_over(borrowed):
            with suppress(ValueError):  # another thread was faster
                self._borrowed.remove(borrowed)
            self.release()

    def release(self) -> None:
        """Let go of the owners whose memory no work of ours uses any more. Never waits."""
        while self._borrowed:
            try:
                first = self._borrowed[0]
                if not self._is_over(first):
                    return
                self._borrowed.remove(first)
            except (IndexError, ValueError):  # another thread was faster
                return

    def _is_over(self, borrowed: Borrowed) -> bool:
        device, api = self.device, self.device.api
        if device.closed:  # since the caller looked
            return True
        try:
            with device.visit("free"):
                mark = borrowed.mark
                if mark is not None:
                    return api.is_reached(mark.handle)
                if api.is_capturing(device.stream):  # another library has our handle
                    return False
                if api.is_done(device.stream):
                    return True
                mark = device.marks.record(device.stream)
                if borrowed.mark is None:  # else another thread was faster
                    borrowed.mark = mark
                return False
        except DeviceFault:  # the context is lost: none of its work goes on
            return True
        except HalError:  # a later call asks again
            return False

    # -- end

    def close(self) -> None:
        """Let go of everything. The device is closed, and its work is over."""
        self._ended.clear()
        self._stray.clear()
        self._borrowed.clear()
