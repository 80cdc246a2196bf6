"""Events of the driver, which are used again when nobody refers to them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

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
    """The marks of one device.

    Owns: the driver's events, also those of marks that are in use, until `destroy`.
    Concurrency: any thread may record.
    """

    def __init__(self, device: StreamDevice) -> None:
        self._device = device
        self._made: list[Any] = []
        self._spare: list[Any] = []

    def record(self, stream: Any) -> Mark:
        """Return a mark behind all work that the stream has now."""
        device = self._device
        try:
            handle = self._spare.pop()
        except IndexError:
            with device.own("record"):
                handle = device.api.make_event()
            self._made.append(handle)
        mark = Mark(handle, self._spare)
        device.call("record", device.api.record, handle, stream)
        return mark

    def destroy(self) -> None:
        """Destroy the events. The caller has made the context current; no mark is used again."""
        with ExitStack() as steps:  # each is taken, whatever another raises
            while True:
                if not self._made:
                    break
                steps.callback(self._device.api.destroy_event, self._made.pop())
