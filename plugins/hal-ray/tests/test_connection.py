"""Tests of messages to an actor that is not there: a Ray of a few lines, and no cluster."""

import sys
import threading
from types import SimpleNamespace

import pytest

import hal_core as hal
from hal_ray.connection import Connection


class RayError(Exception):
    pass


class FakeRay:
    """Answers nothing, until the actor ends: then each wait for it fails, as Ray's do."""

    def __init__(self):
        kinds = ("ObjectStoreFullError", "OutOfDiskError", "GetTimeoutError")
        self.exceptions = SimpleNamespace(
            RayError=RayError, **{name: type(name, (RayError,), {}) for name in kinds}
        )
        self.asked, self.ended = threading.Event(), threading.Event()

    def is_initialized(self):
        return True

    def get_runtime_context(self):
        return SimpleNamespace(get_job_id=lambda: "1", get_node_id=lambda: "here")

    def get(self, ref, timeout=None):
        self.asked.set()
        assert self.ended.wait(20), "nobody has ended the actor"
        raise RayError("The actor died")

    def kill(self, actor):
        self.ended.set()


@pytest.fixture
def ray(monkeypatch):
    made = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", made)
    return made


@pytest.fixture
def connection(ray):
    run = SimpleNamespace(remote=lambda *message: "an answer")
    run.options = lambda **how: run
    return Connection(ray, SimpleNamespace(run=run), "RAY", "node-a (CPU)")


USES = {
    "wait": lambda connection: (connection.add("fill"), connection.wait(None)),
    "read": lambda connection: connection.ask("read"),
    "timed launch": lambda connection: connection.ask("timed"),
}


def told_to_one_who_waits(use, connection, ray, end):
    seen = []

    def wait():
        try:
            use(connection)
        except BaseException as error:
            seen.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert ray.asked.wait(20)
    end()
    thread.join(20)
    return seen[0]


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_who_waits_for_a_device_that_another_thread_closes_is_told_so(use, connection, ray):
    error = told_to_one_who_waits(use, connection, ray, connection.close)
    assert type(error) is hal.InvalidState
    assert str(error).startswith("wait: the device was closed meanwhile on RAY. ")
    for late in (lambda: connection.add("fill"), lambda: use(connection)):
        with pytest.raises(hal.InvalidState, match="closed meanwhile on RAY"):
            late()


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_death_stays_a_fault_when_the_device_is_closed_after_it(use, connection, ray):
    error = told_to_one_who_waits(use, connection, ray, ray.ended.set)
    assert type(error) is hal.DeviceFault and "node-a (CPU) is lost" in str(error)
    connection.close()
    with pytest.raises(hal.DeviceFault, match="is lost; RayError: The actor died on RAY"):
        connection.add("fill")
