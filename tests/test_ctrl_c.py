"""Ctrl-C in memory, queues and steps of their own: a part of what `nox -s interrupts` plays."""

from contextlib import suppress
from functools import partial
from types import TracebackType

import pytest
from ctrl_c import Scene, press_everywhere, raise_in_handler
from interrupts.scenes import SCENES, scene

import hal_core as hal
from hal_core import cache, concurrency, discovery, files

MOST = 120  # places of each scene, of some hundreds; all of them under HAL_TEST_EVERY_PLACE=1
# What happens to memory and programs in the backend's own functions is the backend's.
BACKEND = ("fake_backend.py", "fake/allocator.py", "fake/chip.py", "fake/device.py")


@pytest.mark.parametrize("name", ["begins", "waits", "closes"])
def test_Q4_ctrl_c_in_work_of_queues(name):
    assert press_everywhere(lambda: scene(SCENES[f"queues.{name}"], "PYTHON"), 40) > 20


def test_A6_ctrl_c_while_memory_is_allocated_and_freed(fake):
    """The device holds what the accounts say."""

    def on_fake():
        hal.Device["FAKE"].close()  # with what an earlier scene lost in a finalizer
        inner = scene(SCENES["memory.allocates"], "FAKE")
        allocator = hal.Device["FAKE"].allocator

        def check(heard):
            inner.check(heard)
            if not heard.in_finalizer() and not heard.within(*BACKEND):
                held = sum(map(len, allocator.memory.values()))
                assert held == allocator.statistics().cached

        return Scene(inner.work, check)

    assert press_everywhere(on_fake, 2 * MOST) > 50


def test_R14_ctrl_c_at_the_start_of_a_step_does_not_lose_it():
    """Every step is begun once: functions with cells, in C, and that fail or add a step."""

    def scene():
        begun = dict.fromkeys(["adds", "cells", "fails", "C", "lambda", "added"], 0)
        steps = []

        def adds():
            begun["adds"] += 1
            steps[9:] = [added]  # no call, which Ctrl-C could end

        def cells(name="cells"):
            begun[name] += 1
            return lambda: name

        def fails():
            begun["fails"] += 1
            raise ValueError

        def added():
            begun["added"] += 1

        in_c = partial(begun.__setitem__, "C", 1)
        steps += [adds, cells, fails, in_c, lambda: begun.__setitem__("lambda", 1)]

        def work():
            with suppress(ValueError):
                concurrency.run_each(steps)

        def check(heard):
            if any(begun.values()):  # else before the first step
                assert not steps and set(begun.values()) == {1}, begun
            else:
                assert heard.frames

        return Scene(work, check)

    assert press_everywhere(scene, 1000) > 20  # every place


def test_a_handler_is_known_without_the_frame_that_it_interrupts():
    """Python takes that frame out of the traceback where it is one of an import."""
    with pytest.raises(TimeoutError) as caught:
        raise_in_handler(TimeoutError)
    here = caught.value.__traceback__
    rest = TracebackType(here.tb_next.tb_next, here.tb_frame, here.tb_lasti, here.tb_lineno)
    assert concurrency.is_of_a_signal(caught.value.with_traceback(rest))


def test_ctrl_c_while_a_thread_is_started():
    """The thread then runs, or it does not: none waits for ever for its own start."""

    def scene():
        ran = []
        thread = concurrency.Thread("served", lambda: ran.append(1))

        def check(heard):
            assert concurrency.poll(lambda: bool(ran) or thread.ident is None, 10)

        return Scene(thread.start, check)

    assert press_everywhere(scene, MOST) > 10


@pytest.mark.parametrize("name", ["listdir", "read", "replace", "scandir"])
def test_an_alarm_in_a_call_of_the_system(name, own_cache, tmp_path, monkeypatch):
    monkeypatch.setattr(f"os.{name}", lambda *_: raise_in_handler(TimeoutError("the alarm")))
    with pytest.raises(TimeoutError, match="^the alarm$"):
        discovery.scan()
        files.save("save", tmp_path / "file", b"")
        cache.clear()


def test_an_alarm_behind_the_beginning_of_a_thread(monkeypatch):
    def start(thread):  # fails as Python's own, which takes the thread out of a table
        try:
            raise_in_handler(RuntimeError("the alarm"))
        finally:
            del {}[thread]

    monkeypatch.setattr("threading.Thread.start", start)
    with pytest.raises(RuntimeError, match="^the alarm$"):
        concurrency.start_server({}, "served", int)
