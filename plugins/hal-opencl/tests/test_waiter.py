"""The thread that waits in the driver: who waits for what it waits for, and for something else."""

import threading
import time

import pyopencl as cl
import pytest

from hal_core.concurrency import poll
from hal_opencl.driver import COMPLETE
from hal_opencl.waiter import Waiter


class Command:
    """A command that ends when `release` is called; it counts how often it is looked at."""

    def __init__(self, device):
        self.gate, self.looks = cl.UserEvent(device.context), 0
        queue = cl.CommandQueue(device.context)
        self.marker = cl.enqueue_barrier(queue, wait_for=[self.gate])
        queue.flush()

    def release(self):
        self.gate.set_status(COMPLETE)

    def is_over(self):
        self.looks += 1
        return self.marker.command_execution_status <= COMPLETE

    def wait(self, waiter, seconds=20.0):
        return waiter.wait(self.marker, self.is_over, seconds, 0)

    def begin_wait(self, waiter, found):
        thread = threading.Thread(target=lambda: found.append(self.wait(waiter)), daemon=True)
        thread.start()
        return thread


@pytest.fixture
def waiter():
    return Waiter()


def test_Q2_a_long_wait_looks_at_the_driver_a_few_times(hardware, waiter):
    command = Command(hardware)
    threading.Timer(0.2, command.release).start()
    assert command.wait(waiter)
    assert command.looks <= 4


def test_Q2_waits_for_one_command_and_for_two_end_each_at_its_own(hardware, waiter):
    held, early, found = Command(hardware), Command(hardware), []
    both = [held.begin_wait(waiter, found) for _ in range(2)]
    while not waiter._claims:
        time.sleep(1e-3)
    threading.Timer(0.05, early.release).start()
    assert early.wait(waiter) and found == []
    held.release()
    for thread in both:
        thread.join(20)
    assert found == [True, True]


def test_Q2_a_wait_that_ends_early_leaves_the_thread_to_others(hardware):
    for _ in range(5):  # PoCL 3.1 does not wake the thread from some waits, 3 of 1000
        waiter, left, other = Waiter(), Command(hardware), Command(hardware)
        assert not left.wait(waiter, 0.01)  # the thread waits on
        assert not other.wait(waiter, 0.01)
        left.release()
        assert left.wait(waiter)
        if poll(lambda waiter=waiter: not waiter._claims, 2):
            break
    other.looks = 0
    threading.Timer(0.2, other.release).start()
    assert other.wait(waiter) and other.looks <= 4


def test_Q2_without_a_new_thread_a_wait_polls(hardware, waiter, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    command = Command(hardware)
    timer = threading.Timer(0.05, command.release)
    timer.start()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert command.wait(waiter)
