"""Queues of streams on the third backend: Ctrl-C at every place, and calls that are kept."""

import threading

import pytest
import third_backend
from ctrl_c import Scene, press_everywhere

import hal_core as hal

MOST = 150  # places of the scene; all of them under HAL_TEST_EVERY_PLACE=1


@hal.kernel
def add_one(y: hal.Ptr[hal.int32]) -> None:
    y[0] = y[0] + 1


@pytest.fixture
def device():
    hal.Device.register_plugin("THIRD", third_backend.plugin)
    with hal.Device["THIRD"] as made:
        yield made


def test_Q1_ctrl_c_loses_and_repeats_no_call_that_was_kept(device):
    program = device.compile(add_one)

    def scene():
        x, queue, gate = hal.zeros(1, hal.int32, device), device.queue(), hal.Event()
        queue.wait(gate)
        for _ in range(3):
            program(x, threads=1, queue=queue)
        middle = queue.record()
        program(x, threads=1, queue=queue)

        def work():
            gate.set()
            queue.synchronize(20)

        def check(heard):
            gate.set()
            assert middle.wait(20) and queue.synchronize(20)
            assert x.numpy().tolist() == [4]
            queue.close()

        return Scene(work, check)

    assert press_everywhere(scene, MOST) > 50


def test_Q8_a_finalizer_in_the_thread_of_kept_calls_does_not_wait_for_them(device):
    queue, gate, found = device.queue(), hal.Event(), []

    def finalize():
        with pytest.raises(hal.InvalidState, match="a finalizer or a signal's handler waits"):
            end.wait(5)
        found.append(end)

    queue.wait(gate)._do(finalize)
    end = queue.record()
    gate.set()
    assert end.wait(20) and found == [end]


def test_Q8_a_handler_within_a_call_does_not_wait_for_kept_calls(device):
    queue, made = device.queue(), threading.Event()

    def call():
        with queue._lock:
            queue._later.append(made.set)
            assert not device.join_queues()

    threading.Thread(target=call, daemon=True).start()
    assert made.wait(20)


def test_P10_unloading_does_not_hurt_what_waits(device):
    program, x, gate = device.compile(add_one), hal.zeros(1, hal.int32, device), hal.Event()
    graph = hal.Graph(device)
    graph.add(program, x, threads=1)
    with device.queue() as queue:
        queue.wait(gate)
        program(x, threads=1, queue=queue)
        graph.replay(queue=queue)
        program.unload()
        gate.set()
    assert x.numpy().tolist() == [2] and device.unused
    device.compile(add_one)
    assert not device.unused, "the machine code goes with the last launch"


def test_Q1_whoever_sets_an_event_does_not_make_the_calls_that_wait_for_it(device, monkeypatch):
    """It may be the one thread that watches the events of all queues, and copies take long."""
    held, leave, gate = device.queue(), threading.Event(), hal.Event()
    held.most_staged = 1
    x = hal.empty(16 << 20, hal.uint8, device)
    held.wait(gate)
    done = x.copyin(bytes([3]) * (16 << 20), queue=held)
    monkeypatch.setattr(device.api, "wait_event", lambda handle: leave.wait(20))  # for memory
    gate.set()
    other = hal.zeros(4, hal.int32, device)
    assert other.fill(2, queue=device.queue()).wait(20) and not done.done
    leave.set()
    assert done.wait(20) and x.numpy()[-1] == 3


def test_Q1_kept_calls_are_made_where_no_thread_can_be_started(device, monkeypatch):
    """Refuse a new thread, as the interpreter does at its end."""
    queue, gate, x = device.queue(), hal.Event(), hal.zeros(1, hal.int32, device)
    queue.wait(gate)
    done = x.fill(7, queue=queue)

    def refuse(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    gate.set()
    assert done.done and x.numpy().tolist() == [7]
    assert queue.__cuda_stream__()[0] == 0  # for which all calls have to be made
