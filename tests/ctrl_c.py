"""Press Ctrl-C at the places of some work where Python may hear it, one place at a time.

A signal is heard at the start of a function, at the return of a call and at the end of a loop's
turn; to come at any other bytecode is to be heard at the next of these. So it is made to come
before each such bytecode, and at each return of a function.
"""

from __future__ import annotations

import _thread
import dis
import functools
import os
import random
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

from hal_core import concurrency

_AT_WORK_SECONDS = 10.0  # until a thread that goes on with the work has let go of a lock
EVERY = os.environ.get("HAL_TEST_EVERY_PLACE") == "1"  # else a sample


class Scene(NamedTuple):
    """`work` is interrupted once; `check` then looks at what it left, and cleans up."""

    work: Callable[[], object]
    check: Callable[[Heard], object]


class Heard:
    """The files and functions in which the signal was heard, outermost first; none: not at all."""

    def __init__(self) -> None:
        self.frames: list[tuple[str, str]] = []

    def add(self, traceback: TracebackType | None) -> None:
        while traceback is not None:
            code = traceback.tb_frame.f_code
            self.frames.append((code.co_filename, code.co_name))
            traceback = traceback.tb_next

    def within(self, *files: str) -> bool:
        """Tell whether one of the files, such as a backend's, was at work."""
        return any(name.endswith(files) for name, _ in self.frames)

    def in_finalizer(self) -> bool:
        """Tell whether Python swallowed the signal, as it does in `__del__`."""
        return any(name == "__del__" for _, name in self.frames)


def press_everywhere(scene: Callable[[], Scene], most: int, seed: int = 0) -> int:
    """Interrupt the work of a new scene at each place, or at a sample of `most`; return how many.

    Fails when the work raises anything but KeyboardInterrupt, leaves a lock held or work noted as
    under way, or when the scene's check fails.
    """
    for _ in range(2):  # what is made at the first use is there from then on
        places = _Play(scene(), -1).seen
    chosen: Any = range(places)
    if places > most and not EVERY:
        chosen = sorted(random.Random(seed).sample(chosen, most))
    return sum(_Play(scene(), place).struck for place in chosen)


class _Signal(int):
    # A call would hear the signal on its return, which is still here and not in the work.
    arrives = property(_thread.interrupt_main)


_CTRL_C = _Signal(2)


class _Play:
    def __init__(self, scene: Scene, place: int) -> None:
        self.place, self.seen, self.struck, self.where = place, 0, False, "nowhere"
        self.heard = Heard()
        hook, sys.unraisablehook = sys.unraisablehook, self._in_finalizer
        try:
            self._run(scene.work)
        finally:
            sys.unraisablehook = hook
        try:
            self._check_locks()
            scene.check(self.heard)
        except AssertionError as error:
            error.add_note(f"Ctrl-C at place {place} of the work, {self.where}")
            error.add_note("heard in " + " > ".join(name for _, name in self.heard.frames))
            raise

    def _run(self, work: Callable[[], object]) -> None:
        sys.settrace(self._trace)
        try:
            work()
            sys.settrace(None)
            for _ in range(3):  # hears what comes at the very end
                pass
        except KeyboardInterrupt as error:
            sys.settrace(None)
            self.heard.add(error.__traceback__)
        except BaseException as error:
            sys.settrace(None)
            raise AssertionError(f"Ctrl-C {self.where} became {error!r}") from error

    def _in_finalizer(self, unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            raise AssertionError(f"{unraisable.object} raised {unraisable.exc_value!r}")
        self.heard.add(unraisable.exc_value.__traceback__)

    def _check_locks(self) -> None:
        held: list[object] = []

        def look() -> None:
            for lock in concurrency._locks:
                if lock.acquire(timeout=_AT_WORK_SECONDS):
                    lock.release()
                else:
                    held.append(lock)

        other = threading.Thread(target=look)
        other.start()
        other.join()
        if held:
            raise AssertionError(f"a lock is held: {held}")
        if concurrency.flights._flights or concurrency.flights._waiting:
            raise AssertionError("work is noted as under way, or a thread as waiting")

    # The next functions call nothing behind `_CTRL_C.arrives`: they would hear it themselves.

    def _trace(self, frame: FrameType, event: str, what: object) -> Any:
        if frame.f_code.co_filename == __file__:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if self._is_here(frame):
            _CTRL_C.arrives
        return self._step

    def _step(self, frame: FrameType, event: str, what: object) -> Any:
        if event == "opcode":
            if frame.f_lasti not in _hearing(frame.f_code):
                return self._step
        elif event != "return":
            return self._step
        if self._is_here(frame):
            _CTRL_C.arrives
        return self._step

    def _is_here(self, frame: FrameType) -> bool:
        self.seen += 1
        if self.seen != self.place + 1:
            return False
        self.struck = True
        sys.settrace(None)
        self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        return True


@functools.cache
def _hearing(code: CodeType) -> frozenset[int]:
    """Return the offsets of instructions at whose end Python looks for signals."""
    return frozenset(
        one.offset
        for one in dis.get_instructions(code)
        if one.opname.startswith("CALL") or "JUMP_BACKWARD" in one.opname
    )
