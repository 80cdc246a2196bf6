"""One thread that polls events for which a driver calls nobody back.

The process has one such thread while any events are awaited, however many, and else none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from hal_core.concurrency import fork_safe_lock, forkable

log = logging.getLogger("hal_core")

_SHORTEST, _LONGEST = 50e-6, 2e-3  # seconds between two looks; short after something has happened

Watched = tuple[Callable[[], bool], Callable[[], object]]


class Watcher:
    """Calls back when events have happened."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._after_fork()
        forkable.add(self)

    def _after_fork(self) -> None:
        self._watched: list[Watched] = []
        self._runs = False

    def watch(self, is_done: Callable[[], bool], call: Callable[[], object]) -> None:
        """Call `call()` once `is_done()` is true, in the watcher's thread."""
        with self._lock:
            self._watched.append((is_done, call))
            if not self._runs:
                threading.Thread(target=self._serve, name="hal-events", daemon=True).start()
                self._runs = True  # last, as Ctrl-C may come, or there may be no new thread

    def _serve(self) -> None:
        pause = _SHORTEST
        while True:
            with self._lock:
                watched = list(self._watched)
                if not watched:
                    self._runs = False
                    return
            ready = [entry for entry in watched if _has_happened(entry[0])]
            if ready:
                with self._lock:
                    self._watched = [entry for entry in self._watched if entry not in ready]
            for _, call in ready:
                try:
                    call()
                except Exception as error:
                    log.warning("an event's callback failed: %s", error)
            pause = _SHORTEST if ready else min(2 * pause, _LONGEST)
            time.sleep(pause)


def _has_happened(is_done: Callable[[], bool]) -> bool:
    try:
        return is_done()
    except Exception as error:  # the others are watched on
        log.warning("an event cannot be asked whether it has happened: %s", error)
        return False


_watcher = Watcher()
watch = _watcher.watch
