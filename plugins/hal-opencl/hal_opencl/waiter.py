"""One thread that waits in the driver for the others, which Ctrl-C would not reach there."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock
from time import monotonic

from hal_core.concurrency import Servers, forkable, poll, start_server
from hal_core.errors import InvalidState
from hal_opencl.driver import cl, inner

_LOOK_SECONDS = 0.5  # between two looks of a long wait


class Waiter:
    """Waits for one command at a time; who finds it waiting for another command polls.

    Concurrency: no lock; each change of the table is one step under the GIL.
    """

    def __init__(self) -> None:
        self._after_fork()
        forkable.add(self)

    def _after_fork(self) -> None:
        self._servers: Servers = {}
        self._claims: dict[int, tuple[cl.Event, Lock]] = {}  # 0: the command it waits for
        self._wake: SimpleQueue[None] = SimpleQueue()

    def wait(
        self, marker: cl.Event, is_over: Callable[[], bool], timeout: float, awake: float
    ) -> bool:
        """Wait until `is_over()`, which the end of `marker` brings about, as `poll` does.

        The thread polls for `awake` seconds first.
        """
        start = monotonic()
        if poll(is_over, min(timeout, awake), awake):
            return True
        if not self._has_thread():
            return poll(is_over, timeout - awake, 0)
        while (rest := timeout - (monotonic() - start)) > 0:
            end = Lock()
            end.acquire()
            claimed, end = self._claims.setdefault(0, (marker, end))
            self._wake.put(None)  # also if another thread made the claim: Ctrl-C may have ended it
            if claimed is not marker:
                return poll(is_over, rest, 0)
            if end.acquire(timeout=min(rest, _LOOK_SECONDS)):
                end.release()  # for others who wait for the same command
            if is_over():
                return True
        return False

    def _has_thread(self) -> bool:
        if not self._servers:
            with suppress(InvalidState):  # no new thread can be started
                start_server(self._servers, "hal-opencl-wait", self._serve)
        return bool(self._servers)

    def _serve(self) -> None:
        # Not PyOpenCL's wait: its C++ ends the process if Python ends this thread behind the call.
        wait = ctypes.CDLL(inner.__file__).clWaitForEvents
        while True:
            self._wake.get()
            claim = self._claims.get(0)
            if claim is not None:
                wait(1, ctypes.byref(ctypes.c_void_p(claim[0].int_ptr)))
                del self._claims[0]
                claim[1].release()
                del claim


waiter = Waiter()
