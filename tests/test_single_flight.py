"""Shared work: one run, one outcome, and no wait that cannot end."""

import threading

import pytest
from ctrl_c import raise_in_handler
from in_threads import results

import hal_core as hal
from hal_core.concurrency import SingleFlight, fresh_copy, is_importing


def is_idle(flights):
    """Tell whether no work is noted as under way, and no thread as waiting."""
    return not (flights._flights or flights._waiting)


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_R14_what_a_signal_raises_is_its_own_threads_and_the_work_is_taken_over(error):
    flights = SingleFlight()
    runs = []
    outcomes = []
    started = threading.Event()

    def work():
        runs.append(threading.get_ident())
        if len(runs) == 1:
            started.set()
            while len(flights._waiting) < 3:
                pass
            raise_in_handler(error)  # only the main thread hears a real signal
        return "done"

    def ask():
        try:
            outcomes.append(flights.run("key", work, operation="test"))
        except error:
            outcomes.append(error)

    first = threading.Thread(target=ask)
    first.start()
    started.wait(20)
    results(*[ask] * 3)
    first.join(20)
    assert outcomes.count(error) == 1
    assert outcomes.count("done") == 3
    assert is_idle(flights)


def test_R14_work_that_asks_for_itself():
    flights = SingleFlight()

    def work():
        return flights.run("key", work, operation="open X")

    with pytest.raises(hal.InvalidState, match="open X: it is already under way"):
        flights.run("key", work, operation="open X")
    assert flights.run("key", lambda: 1, operation="open X") == 1


def test_R14_the_owner_of_finished_work_asks_a_thread_that_waited_for_it():
    """The thread that waited is still waking up and waits for nothing now: there is no circle."""
    flights = SingleFlight()
    outcomes = []
    begun = threading.Event()

    def ask(key, work):
        try:
            outcomes.append(flights.run(key, work, operation="test"))
        except hal.InvalidState as error:
            outcomes.append(error)

    def inner():
        begun.set()
        while not flights._waiting:
            pass
        return "inner"

    def first():
        ask("inner", inner)
        ask("outer", lambda: "inner outer")

    def second():
        begun.wait(20)
        ask("outer", lambda: flights.run("inner", str, operation="test") + " outer")

    results(first, second)
    assert sorted(map(str, outcomes)) == ["inner", "inner outer", "inner outer"]


def test_R14_a_thread_that_asks_while_it_waits_still_counts_as_waiting():
    """A finalizer or a signal handler asks in the middle of a wait; a circle is seen afterwards."""
    flights, begun = SingleFlight(), threading.Event()
    told = []

    def first():
        begun.set()
        asked.wait(20)
        with pytest.raises(hal.InvalidState) as caught:  # else a dead-lock
            flights.run("second", str, operation="test")
        told.append(str(caught.value))

    def second():
        flight = flights._flights["first"]
        end_of_first = flight.end

        class Interrupted:
            """The end of the flight; a wait for it is interrupted."""

            release = end_of_first.release

            def __enter__(self):
                assert flights.run("other", lambda: 1, operation="test") == 1
                assert flights._waiting.keys() == {threading.get_ident()}
                busy = threading.Thread(target=flights.run, args=("busy", busily), kwargs=OPERATION)
                busy.start()
                working.wait(20)
                threading.Timer(0.05, end.set).start()
                flights.run("busy", str, operation="test")
                busy.join(20)
                asked.set()
                assert end_of_first.acquire(timeout=20)

            def __exit__(self, *_):
                end_of_first.release()

        flight.end = Interrupted()
        flights.run("first", str, operation="test")

    def busily():
        working.set()
        end.wait(20)

    asked, working, end = threading.Event(), threading.Event(), threading.Event()
    owner = threading.Thread(target=flights.run, args=("first", first), kwargs=OPERATION)
    owner.start()
    begun.wait(20)
    flights.run("second", second, operation="test")
    owner.join(20)
    assert not owner.is_alive(), "dead-lock"
    assert len(told) == 1 and is_idle(flights)


OPERATION = {"operation": "test"}


class InterruptedLock:
    """A lock whose first release is followed by Ctrl-C."""

    def __init__(self):
        self.lock, self.armed = threading.RLock(), True

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt


@pytest.mark.parametrize("busy", [False, True], ids=["before it works", "before it waits"])
def test_R14_ctrl_c_leaves_nothing_that_others_would_wait_for(busy):
    flights, begun, end = SingleFlight(), threading.Event(), threading.Event()

    def busily():
        begun.set()
        end.wait(20)

    owner = threading.Thread(target=flights.run, args=("key", busily), kwargs=OPERATION)
    if busy:
        owner.start()
        begun.wait(20)
    flights._lock = InterruptedLock()
    with pytest.raises(KeyboardInterrupt):
        flights.run("key", lambda: 1, operation="test")
    end.set()
    if busy:
        owner.join(20)
    assert is_idle(flights)
    assert flights.run("key", lambda: 2, operation="test") == 2


def test_a_repeated_error_keeps_its_facts_and_cause():
    cause = OSError("no file")
    error = hal.DeviceUnavailable("open", "refused", got=3, device="ACC")
    error.__cause__ = cause
    fresh = fresh_copy(error)
    assert fresh is not error and type(fresh) is type(error) and str(fresh) == str(error)
    assert fresh.__cause__ is cause and vars(fresh) == vars(error)


def test_whether_this_thread_is_importing(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("importing")
    text = "from hal_core.concurrency import is_importing\nhere = is_importing()\n"
    (folder / "fake_importing.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    import fake_importing

    assert fake_importing.here is True
    assert is_importing() is False
