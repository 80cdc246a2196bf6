"""One thread that polls events for which a driver calls nobody back.

The process has one such thread while any events are awaited, however many, and else none.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from hal_core.concurrency import Servers, forkable, log_failure, start_server

_SHORTEST, _LONGEST = 50e-6, 2e-3  # seconds between two looks; short after something has happened


class Watcher:
    """Calls back when events have happened.

    Concurrency: no lock; each change of the table is one step under the GIL.
    """

    def __init__(self) -> None:
        self._after_fork()
        forkable.add(self)

    def _after_fork(self) -> None:
        self._watched: dict[Callable[[], object], Callable[[], bool]] = {}
        self._servers: Servers = {}

    def watch(self, is_done: Callable[[], bool], call: Callable[[], object]) -> None:
        """Call `call()` once `is_done()` is true, in the watcher's thread."""
        try:
            self._watched[call] = is_done
            if not self._servers:
                start_server(self._servers, "hal-events", self._serve, lambda: self._watched)
        except BaseException:
            self.forget(call)
            raise

    def forget(self, call: Callable[[], object]) -> None:
        """Do not call any more what nobody waits for."""
        self._watched.pop(call, None)

    def _serve(self) -> None:
        pause = _SHORTEST
        while self._watched:
            pause = min(2 * pause, _LONGEST)
            for call, is_done in list(self._watched.items()):
                if not _tried(is_done, "an event cannot be asked whether it has happened"):
                    continue
                pause = _SHORTEST
                if self._watched.pop(call, None) is not None:  # else forgotten meanwhile
                    _tried(call, "an event's callback failed")
            if self._watched:
                time.sleep(pause)


def _tried(call: Callable[[], object], failure: str) -> object:
    """Call a function; log an error of it, as the others are watched on."""
    try:
        return call()
    except BaseException as error:
        log_failure(failure, error)
        return None


_watcher = Watcher()
watch = _watcher.watch
forget = _watcher.forget
