"""The base of queues that ask a driver about their commands, one after the other."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from hal_core.concurrency import fork_safe_lock, poll, run_unless_busy
from hal_core.queue.base import Queue
from hal_core.queue.event import PolledEvent
from hal_core.queue.leases import KnownMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from hal_core.device.base import Compiled


class PolledCommand(Protocol):
    """An entry of such a queue; it has what the command needs until it is complete."""

    @property
    def is_over(self) -> bool:
        """Ask the driver whether it is complete, or failed."""

    @property
    def finish(self) -> Callable[[], None] | None:
        """Return what the host does once it is complete; None where that is nothing."""


class _Dropped(PolledEvent):
    """The end of the commands of a queue that nobody refers to any more."""

    def __init__(self, pending: deque[Any]) -> None:
        super().__init__()
        self._pending: deque[PolledCommand] = pending

    def _poll(self) -> bool:
        while self._pending and self._pending[0].is_over:
            finish = self._pending.popleft().finish
            if finish is not None:
                finish()
        return not self._pending


class PolledQueue(Queue):
    """A queue of a driver. Its commands are kept until a look at them sees that they are complete.

    A subclass adds `_look`. Work behind a failure is dropped.

    Order: the first work that uses memory comes after the work without `queue=` so far: that may
    fill the memory, or may still use it for a buffer that was freed.
    """

    def __init__(self, device: Compiled, name: str, is_borrowed: bool) -> None:
        super().__init__(device, name)
        self._sees_all_work = not is_borrowed
        self._lock = fork_safe_lock()
        # It must not refer to the queue: the collector finalizes all objects of a cycle, also the
        # memory that `__del__` keeps for running commands.
        self._pending: deque[Any] = deque()  # a subclass's commands
        self._drops = False  # what is added: the driver refused a command
        self._known = KnownMemory()

    def look(self) -> None:
        """Let the events of complete commands happen, and release what the commands needed.

        Does nothing while another thread works with the queue, or a caller of this method does.
        """
        run_unless_busy(self._lock, self._look)

    def _look(self) -> None:
        raise self.device._missing(self, "_look")

    def _is_in_call(self) -> bool:
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]

    def _has_work(self) -> bool:
        self.look()
        return bool(self._pending)

    def _wait_rest(self, seconds: float) -> bool:
        return poll(lambda: not self._has_work(), seconds)

    def __del__(self) -> None:
        # The driver finishes the commands. The device keeps what they need until it sees their end.
        pending = getattr(self, "_pending", None)
        if pending and not self.forked and not self.device.closed:
            rest = _Dropped(pending)
            if not rest._poll():
                self._leave(rest)
