"""Events of the driver, which are used again when nobody refers to them."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from hal_core.errors import HalError

if TYPE_CHECKING:
    from hal_streams.device import StreamDevice


class Mark:
    """A place in a stream: an event of the driver that is recorded there."""

    __slots__ = ("handle", "spare")

    def __init__(self, handle: Any, spare: list[Any]) -> None:
        self.handle, self.spare = handle, spare

    def __del__(self) -> None:
        if hasattr(self, "spare"):  # else Ctrl-C came ahead of it
            self.spare.append(self.handle)


class Marks:
    """Marks of one device, which `operation` records.

    Owns: the driver's events, also those of marks that are in use, until `destroy`.
    Concurrency: any thread may record.
    """

    def __init__(self, device: StreamDevice, operation: str = "record") -> None:
        self._device, self._operation = device, operation
        self._made: list[Any] = []
        self._spare: list[Any] = []

    def record(self, stream: Any) -> Mark:
        """Return a mark behind all work that the stream has now."""
        device = self._device
        try:
            handle = self._spare.pop()
        except IndexError:
            with device.own(self._operation):
                handle = device.api.make_event()
            self._made.append(handle)
        mark = Mark(handle, self._spare)
        device.call(self._operation, device.api.record, handle, stream)
        return mark

    def destroy_spare(self) -> None:
        """Destroy the events that no mark has. One that the driver refuses to destroy stays."""
        for handle in list(self._spare):
            with suppress(HalError), self._device.own(self._operation):
                self._device.api.destroy_event(handle)
                self._spare.remove(handle)
                self._made.remove(handle)

    def destroy(self) -> None:
        """Destroy the events. The caller has made the context current; no mark is used again."""
        with ExitStack() as steps:  # each is taken, whatever another raises
            while True:
                if not self._made:
                    break
                steps.callback(self._device.api.destroy_event, self._made.pop())
