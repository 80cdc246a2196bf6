"""X1: threads that use one object at once get right results, or an error."""

import time
from functools import partial

import pytest
from fake_backend import FakeAllocator, FakePlugin
from in_threads import outcomes, results

import hal_core as hal

pytestmark = pytest.mark.usefixtures("busy_threads")
THREADS = 12
TURNS = 60


def hammer(work):
    """Call `work(thread, turn)` many times in each thread; return everything that was raised."""
    raised = []

    def run(number):
        for turn in range(TURNS):
            try:
                work(number, turn)
            except BaseException as error:
                raised.append(error)

    results(*(partial(run, number) for number in range(THREADS)))
    return raised


KERNEL = hal.Source(
    "set", "def set(t, x, n): x[t[0]] = n", "x: int32*, n: int32", language="python"
)


class SlowAllocator(FakeAllocator):
    """Lets other threads run in the middle of an allocation."""

    def _alloc(self, nbytes, options):
        time.sleep(0.002)
        return super()._alloc(nbytes, options)


@pytest.fixture
def slow(plugin):
    device = hal.Device["FAKE:1"]
    device.allocator = SlowAllocator(device)
    device.allocator.cache_limit = 0
    return device


def test_X1_one_of_many_threads_allocates_a_buffer_and_the_others_get_an_error(slow):
    for _ in range(10):
        buffer = hal.Buffer(slow, 100, hal.int8)
        found = outcomes(*[buffer.allocate] * 8)
        assert sum(one is buffer for one in found) == 1
        assert sum(isinstance(one, hal.InvalidState) for one in found) == 7
        assert len(slow.allocator.memory) == 1
        del buffer, found
    assert slow.allocator.statistics().live == 0 and not slow.allocator.memory


def test_X1_one_buffer_freed_by_many(fake):
    """A use after the free raises InvalidState; nothing is freed twice."""

    def work(number, turn):
        try:
            if number % 3 == 0:
                shared[turn].deallocate()
            elif number % 3 == 1:
                shared[turn].copyin(bytes(64))
            else:
                program(shared[turn], vals=(3,), threads=16)
        except hal.InvalidState:
            return

    program = fake.compile(KERNEL)
    shared = [hal.empty(16, hal.int32, fake) for _ in range(TURNS)]
    assert hammer(work) == []
    shared.clear()
    facts = fake.allocator.statistics()
    assert (facts.current, facts.live) == (0, 0)


def test_X1_a_device_closed_while_others_use_it(plugin):
    device = hal.Device["FAKE"]
    program = device.compile(KERNEL)
    buffer = hal.zeros(16, hal.int32, device)
    late = []

    def work(number, turn):
        try:
            if number == 0 and turn == TURNS // 2:
                device.close()
            elif number % 2:
                program(buffer, vals=(1,), threads=16)
            else:
                buffer.copyin(bytes(64))
        except hal.InvalidState as error:
            late.append(error)

    assert hammer(work) == []
    assert late and device.closed
    with pytest.raises(hal.InvalidState, match="closed"):
        program(buffer, vals=(1,), threads=16)


def test_X1_a_device_that_is_closed_while_it_is_asked_for_is_opened_anew(fake, monkeypatch):
    backend = hal.Device.backend("FAKE")
    known = backend.on_opened

    def closed_before(device):
        if device is fake:
            device.close()
        known(device)

    monkeypatch.setattr(backend, "on_opened", closed_before)
    again = backend.open(0, backend.info(0))
    assert again is not fake and not again.closed
    assert hal.Device["FAKE"] is again


def test_X1_registry_used_while_it_is_refreshed(plugin):
    registry = hal.DeviceRegistry([])
    registry.register_plugin("FAKE", plugin)

    def work(number, turn):
        if number == 0:
            registry.refresh()
        elif number == 1:
            registry.register_plugin(f"EXTRA{turn}", FakePlugin())
        else:
            assert "FAKE" in registry and "FAKE" in registry.states()
            assert registry["FAKE"].name == "FAKE"

    assert hammer(work) == []
    registry["FAKE"].close()
