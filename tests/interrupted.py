"""Interrupt work at every place where Python may switch threads, one place at a time.

Such places are the start of a function, the return of a call and the end of a loop's turn. Of code
that has run often, Python 3.13.0 shows only the first of them.
"""

import dis
import functools
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple

_MAX_PLACES = 5000
_SECONDS = 60.0
_BLOCKED = 0.02  # seconds to wait for an interruption, which may have to wait for the work itself


class Scene(NamedTuple):
    """`work` is interrupted once by `other`; `check` then looks at the result.

    If there was no interruption, `other` runs after `work`.
    """

    work: Callable[[], object]
    other: Callable[[], object]
    check: Callable[[], object]


def everywhere(folders, scene, *, on_another_thread=False):
    """Interrupt the work of a new scene at each place in files of the folders; return their number.

    Fails if anything raises or hangs.
    """
    within = tuple(folders)
    for _ in range(2):  # some Pythons trace the steps of a function from its second run on
        _Play(within, scene(), -1, on_another_thread)
    nth = 0
    while _Play(within, scene(), nth, on_another_thread).interrupted:
        nth += 1
        if nth > _MAX_PLACES:
            raise AssertionError("the work grows from one scene to the next")
    return nth


class _Play:
    def __init__(self, folders, scene, nth, thread):
        self.folders, self.scene, self.nth, self.on_another_thread = folders, scene, nth, thread
        self.seen, self.where = 0, "nowhere"
        self.interrupted = False
        self.raised = []
        self.others = []
        first = _started(lambda: self._do("the work", self._traced))
        first.join(_SECONDS)
        if not self.interrupted and not first.is_alive():
            self._do("the other", scene.other)
        for thread_ in self.others:
            thread_.join(_SECONDS)
        self._judge(any(thread.is_alive() for thread in (first, *self.others)))

    def _judge(self, hangs):
        place = f"interrupted at place {self.nth}, {self.where}"
        if hangs:
            raise AssertionError(f"dead-lock, {place}")
        for who, error in self.raised:
            raise AssertionError(f"{who} raised, {place}: {error!r}") from error
        try:
            self.scene.check()
        except AssertionError as error:
            raise AssertionError(f"wrong, {place}: {error}") from error

    def _do(self, who, work):
        try:
            work()
        except BaseException as error:
            self.raised.append((who, error))

    def _traced(self):
        sys.settrace(self._trace)
        try:
            self.scene.work()
        finally:
            sys.settrace(None)

    def _trace(self, frame, event, what):
        if not frame.f_code.co_filename.startswith(self.folders):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        openings, last = _openings(frame.f_code), -1
        self._place(frame)

        def step(frame, event, what):
            nonlocal last
            if event == "opcode":
                if last in openings:
                    self._place(frame)
                last = frame.f_lasti
            return step

        return step

    def _place(self, frame):
        self.seen += 1
        if self.seen <= self.nth or self.nth < 0 or self.interrupted:
            return
        self.interrupted = True
        self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        if self.on_another_thread:
            self.others.append(_started(lambda: self._do("the other", self.scene.other)))
            self.others[0].join(_BLOCKED)
        else:
            self._do("the other", self.scene.other)


@functools.cache
def _openings(code):
    """Return the offsets of instructions after which Python may switch threads.

    Not those of Python 3.11 that jump back on a condition: where it does not hold, none switch.
    """
    return frozenset(
        one.offset
        for one in dis.get_instructions(code)
        if one.opname.startswith("CALL") or one.opname == "JUMP_BACKWARD"
    )


def _started(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
