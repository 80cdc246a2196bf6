"""Press Ctrl-C at the places of some work where Python may hear it, or at a moment by the clock.

A signal is heard at the start of a function, at the return of a call and at the end of a loop's
turn; to come at any other bytecode is to be heard at the next of these. So it is made to come
before each such bytecode, and at each return of a function.
"""

import _thread
import dis
import functools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from hal_core import concurrency
from hal_core.concurrency import fork

_AT_WORK_SECONDS = 10.0  # until a thread that goes on with the work has let go of a lock
_OURS = "hal_"  # modules; half made objects of asyncio and llvmlite raise in their finalizers
EVERY = os.environ.get("HAL_TEST_EVERY_PLACE") == "1"  # else a sample


class Scene(NamedTuple):
    """`work` is interrupted once; `check` then looks at what it left, and cleans up."""

    work: Callable[[], object]
    check: Callable[..., object]  # takes what was `Heard`


class Heard:
    """The files and functions in which the signal was heard, outermost first; none: not at all."""

    def __init__(self):
        self.frames = []
        self.where = "nowhere"  # the innermost of them, with its line

    def add(self, traceback):
        while traceback is not None:
            code = traceback.tb_frame.f_code
            self.frames.append((code.co_filename, code.co_name))
            self.where = _place(code, traceback.tb_lineno)
            traceback = traceback.tb_next

    def within(self, *files):
        """Tell whether one of the files, such as a backend's, was at work."""
        return any(name.endswith(files) for name, _ in self.frames)

    def in_finalizer(self):
        """Tell whether Python swallowed the signal, as it does in `__del__`."""
        return any(name == "__del__" for _, name in self.frames)


def press_everywhere(scene, most, seed=0, files=("",)):
    """Interrupt the work of a new scene at each place, or at a sample of `most`; return how many.

    `files`: as `Place` takes them.

    Fails when the work raises anything but KeyboardInterrupt, leaves a lock held or work noted as
    under way, or when the scene's check fails.
    """
    for _ in range(2):  # what is made at the first use is there from then on
        places = play(scene(), Place(-1, files)).seen
    chosen = range(places)
    if places > most and not EVERY:
        chosen = sorted(random.Random(seed).sample(chosen, most))
    return sum(play(scene(), Place(place, files)).struck for place in chosen)


class _Signal(int):
    # A call would hear the signal on its return, which is still here and not in the work.
    arrives = property(_thread.interrupt_main)


_CTRL_C = _Signal(2)


class Place:
    """The nth place, of those in files whose names begin so; below 0, all places are counted."""

    def __init__(self, number, files=("",)):
        self.number, self.files = number, files
        self.seen = self.bytecodes = 0
        self.struck, self.where = False, "nowhere"

    def arm(self):
        sys._getframe().f_trace_opcodes = True  # Python 3.12 asks before it traces, not later
        sys.settrace(self._trace)

    def disarm(self):
        sys.settrace(None)

    # The next functions call nothing behind `_CTRL_C.arrives`: they would hear it themselves.

    def _trace(self, frame, event, what):
        name = frame.f_code.co_filename
        if name == __file__ or not name.startswith(self.files):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if self._is_here(frame):
            _CTRL_C.arrives
        return self._step

    def _step(self, frame, event, what):
        if event == "opcode":
            self.bytecodes += 1
            if frame.f_lasti not in _hearing(frame.f_code):
                return self._step
        elif event != "return":
            return self._step
        if self._is_here(frame):
            _CTRL_C.arrives
        return self._step

    def _is_here(self, frame):
        self.seen += 1
        if self.seen != self.number + 1:
            return False
        self.struck = True
        sys.settrace(None)
        self.where = _place(frame.f_code, frame.f_lineno)
        return True


class Moment:
    """A moment, in seconds from the beginning of the work. Calls of the system end early, too."""

    def __init__(self, seconds):
        self.seconds, self.struck = max(seconds, 1e-6), False
        self.where = f"after {self.seconds:.6f} s"

    def arm(self):
        signal.signal(signal.SIGALRM, self._strike)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def disarm(self):
        """Stop the clock. If it has run out, wait for the signal, which another thread may get."""
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        # Less than a microsecond that is left is 0, too, and then no signal comes.
        latest = time.monotonic() + 1.0
        while not (left or self.struck) and time.monotonic() < latest:
            time.sleep(1e-4)

    def _strike(self, number, frame):
        self.struck = True
        if frame is not None:
            self.where = _place(frame.f_code, frame.f_lineno)
        signal.raise_signal(signal.SIGINT)


Press = TypeVar("Press", bound="Place | Moment")


def raise_in_handler(error):
    """Raise an error as the handler of a signal does: it is called with the interrupted frame."""

    def handler(number, frame):
        raise error

    handler(signal.SIGTERM, sys._getframe())


def expect(holds, why):
    """Fail unless it holds, under `python -O` too."""
    if not holds:
        raise AssertionError(why)


def play(scene, press):
    """Run a scene and press Ctrl-C once. Fails as `press_everywhere` does."""
    heard = Heard()

    raised = []

    def in_finalizer(unraisable):
        # Built-in classes have a `__module__` that their instances lack.
        kind = type(unraisable.object)
        module = str(getattr(unraisable.object, "__module__", None) or kind.__module__)
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            heard.add(unraisable.exc_value.__traceback__)
        elif module.startswith(_OURS):
            raised.append(f"{unraisable.object} raised {unraisable.exc_value!r}")

    hook, sys.unraisablehook = sys.unraisablehook, in_finalizer
    try:
        _run(scene.work, press, heard)
    finally:
        sys.unraisablehook = hook
    try:
        if raised:
            raise AssertionError(raised[0])
        if press.struck and not heard.frames:
            raise AssertionError("Ctrl-C was lost")
        _check_locks()
        scene.check(heard)
    except AssertionError as error:
        number = f" at place {press.number}" if isinstance(press, Place) else ""
        error.add_note(f"Ctrl-C{number} of the work, {press.where}")
        error.add_note("heard in " + " > ".join(name for _, name in heard.frames))
        raise
    return press


def _run(work, press, heard):
    try:
        press.arm()
        work()
        press.disarm()
        for _ in range(3):  # hears what comes at the very end
            pass
    except KeyboardInterrupt as error:
        press.disarm()
        heard.add(error.__traceback__)
    except BaseException as error:
        press.disarm()
        raise AssertionError(f"Ctrl-C {press.where} became {error!r}") from error


def _check_locks():
    held = []

    def look():
        for lock in fork._locks:
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


def _place(code, line):
    return f"{code.co_filename}:{line} in {code.co_name}"


@functools.cache
def _hearing(code):
    """Return the offsets of instructions at whose end Python looks for signals."""
    return frozenset(
        one.offset
        for one in dis.get_instructions(code)
        if one.opname.startswith("CALL") or "JUMP_BACKWARD" in one.opname
    )
