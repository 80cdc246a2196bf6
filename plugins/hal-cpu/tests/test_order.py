"""Checked mode finds accesses of two queues that nothing orders: promise Q7."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import hal_core as hal
from hal_core.queue import order
from hal_core.queue.order import Access, Order

N = 64


@hal.kernel
def add_one(y: hal.Ptr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] + 1


@hal.kernel
def doubled(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = 2 * x[i]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> hal.Compiled:
    monkeypatch.setenv("HAL_CHECK", "1")
    hal.Device["CPU"].close()
    return hal.Device["CPU"]


@pytest.fixture(autouse=True)
def closed_afterwards():
    yield
    hal.Device["CPU"].close()


def test_Q7_a_missing_wait_is_found_and_named(device: hal.Compiled) -> None:
    one, two = device.queue(), device.queue()
    x, y = hal.zeros(N, hal.int32, device), hal.zeros(N, hal.int32, device)
    device.compile(add_one)(x, vals=(N,), threads=N, queue=one)
    with pytest.raises(hal.KernelFault) as caught:
        device.compile(doubled)(y, x, vals=(N,), threads=N, queue=two)
    text = str(caught.value)
    for part in (
        "launch of doubled",
        "launch of add_one",
        one.name,
        two.name,
        "256 bytes",
        "reads",
    ):
        assert part in text
    assert f"{two.name}.wait(event of {one.name})" in text
    two.wait(one.record())
    device.compile(doubled)(y, x, vals=(N,), threads=N, queue=two)  # nothing was done before
    assert two.synchronize(20) and y.numpy().tolist() == [2] * N


def test_Q7_the_host_is_a_queue_like_any_other(device: hal.Compiled) -> None:
    queue, x = device.queue(), hal.zeros(N, hal.int32, device)
    program = device.compile(add_one)
    program(x, vals=(N,), threads=N, queue=queue)
    for early in (
        x.numpy, lambda: x.fill(1), lambda: program(x, vals=(N,), threads=N),
        lambda: x[3:4].copyin(bytes(4)),
    ):  # fmt: skip
        with pytest.raises(hal.KernelFault, match=r"in queue \d of CPU writes, and nothing orders"):
            early()
    queue.synchronize(20)
    assert x.numpy().tolist() == [1] * N


def _polled(event: hal.Event) -> None:
    while not event.done:
        pass


@pytest.mark.parametrize(
    "wait",
    [
        lambda device, queue, event: event.wait(20),
        lambda device, queue, event: _polled(event),
        lambda device, queue, event: asyncio.run(_awaited(event)),
        lambda device, queue, event: queue.synchronize(20),
        lambda device, queue, event: device.synchronize(20),
        lambda device, queue, event: queue.close(),
        lambda device, queue, event: device.queue().wait(event).record().wait(20),
        lambda device, queue, event: device.default_queue.wait(event),
    ],
    ids=["wait", "done", "await", "queue", "device", "close", "by another queue", "default queue"],
)
def test_Q7_each_way_to_wait_orders_the_host(wait: Callable[..., object], device: hal.Compiled):
    queue, x = device.queue(), hal.zeros(N, hal.int32, device)
    event = x.fill(3, queue=queue)
    wait(device, queue, event)
    assert x.numpy().tolist() == [3] * N
    x.fill(4)
    x.fill(5, queue=device.queue())  # after what the host has done


def test_Q7_byte_ranges_count_not_buffers(device: hal.Compiled) -> None:
    one, two, x = device.queue(), device.queue(), hal.zeros(N, hal.int32, device)
    x[: N // 2].fill(1, queue=one)
    x[N // 2 :].fill(2, queue=two)
    with pytest.raises(hal.KernelFault, match="writes 4 bytes that fill in"):
        x[N // 2 : N // 2 + 1].fill(3, queue=one)
    assert device.synchronize(20) and x.numpy().tolist() == [1] * (N // 2) + [2] * (N // 2)


def test_Q7_reads_need_no_order(device: hal.Compiled) -> None:
    x = hal.zeros(N, hal.int32, device).fill(7)
    outs = [hal.zeros(N, hal.int32, device) for _ in range(3)]
    program = device.compile(doubled)
    for out in outs:
        program(out, x, vals=(N,), threads=N, queue=device.queue())
    x.numpy()
    device.synchronize(20)
    assert all(out.numpy().tolist() == [14] * N for out in outs)


def test_Q7_freed_memory_is_forgotten(device: hal.Compiled) -> None:
    queue = device.queue()
    hal.zeros(N, hal.int32, device).fill(1, queue=queue).wait(20)
    device.synchronize(20)
    order = device._order
    assert order is not None and not order._accesses


def test_Q7_events_recorded_later_order_too(device: hal.Compiled) -> None:
    one, two, x = device.queue(), device.queue(), hal.zeros(N, hal.int32, device)
    event = hal.Event()
    two.wait(event)  # nobody knows yet what it comes after
    x.fill(1, queue=one)
    one.record(event)
    x.fill(2, queue=two)
    assert two.synchronize(20) and x.numpy().tolist() == [2] * N


def test_Q7_random_programs_are_judged_as_their_order_says(device: hal.Compiled) -> None:
    """Each access is compared with a search of all paths from call to call."""
    chance = random.Random(7)
    for _ in range(60):
        x = hal.empty(8, hal.int32, device)
        x.fill(0)
        queues = [device.queue() for _ in range(3)]
        events: list[tuple[hal.Event, int]] = []  # and the call after which it comes
        calls: list[tuple[int, int, int, bool]] = []  # queue, first, last, writes
        before: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}  # calls that a queue knows of
        known: list[set[int]] = []
        for _ in range(14):
            queue, step = chance.randrange(3), chance.random()
            if step < 0.25:
                events.append((queues[queue].record(), len(known)))
                known.append(set(before[queue]))
            elif step < 0.5 and events:
                event, place = chance.choice(events)
                queues[queue].wait(event)
                before[queue] |= known[place]
            else:
                first, last = sorted(chance.sample(range(9), 2))
                writes = chance.random() < 0.5
                clash = [
                    number
                    for number, (other, low, high, wrote) in enumerate(calls)
                    if other != queue and low < last and first < high and (wrote or writes)
                    and number not in before[queue]
                ]  # fmt: skip
                part, error = x[first:last], None
                try:
                    if writes:
                        part.fill(1, queue=queues[queue])
                    else:
                        part.copyout(np.empty(last - first, "i4"), queue=queues[queue])
                except hal.KernelFault as fault:
                    error = fault
                assert bool(clash) == (error is not None), (calls, clash, error)
                if not clash:
                    before[queue].add(len(calls))
                    calls.append((queue, first, last, writes))
        device.synchronize(20)


# -- the tests above are tested: each of these is a wrong `Order`, of which one must tell


def _nothing(*_: object) -> None:
    pass


def _check_as(change: Callable[[Access], Access | None]) -> Callable[..., None]:
    """Compare other accesses than those that were made."""
    inner = Order._check

    def _check(self: Order, access: Access, clock: dict[str, int]) -> None:
        changed = change(access)
        if changed is not None:
            inner(self, changed, clock)

    return _check


def _knows_itself_alone(self: Order, queue: str, event: hal.Event) -> None:
    own = self._clocks.get(queue, {}).get(queue, 0)
    event._clock, event._after, event._seen = {queue: own}, [], self.seen


def _waits_for_what_is_recorded(self: Order, queue: str, event: hal.Event) -> None:
    if event._clock is not None:
        WAITED(self, queue, event)


WAITED = Order.waited
WRONG: dict[str, tuple[object, str, object]] = {
    "nothing is compared": (Order, "_check", _nothing),
    "reads are not": (Order, "_check", _check_as(lambda one: one if one.writes else None)),
    "reads are writes": (Order, "_check", _check_as(lambda one: one._replace(writes=True))),
    "the host is not": (
        Order, "_check", _check_as(lambda one: None if "default" in one.queue else one)),
    "the neighbour is": (Order, "_check", _check_as(lambda one: one._replace(end=one.end + 4))),
    "the last element is not": (
        Order, "_check", _check_as(lambda one: one._replace(end=one.end - 4))),
    "waits are forgotten": (Order, "waited", _nothing),
    "events to come are": (Order, "waited", _waits_for_what_is_recorded),
    "events know their queue alone": (Order, "recorded", _knows_itself_alone),
    "the host sees nothing": (Order, "seen", _nothing),
    "the host sees no device": (Order, "seen_all", _nothing),
    "freed memory stays": (Order, "forget", _nothing),
    "the last access replaces all": (order, "_replaces", lambda new, old, clock: True),
    "a read replaces a write": (
        order, "_replaces",
        lambda new, old, clock: new.start <= old.start and old.end <= new.end
        and (old.queue == new.queue or clock.get(old.queue, 0) >= old.number),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_Q7_a_wrong_order_is_caught(
    name: str, device: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, method, wrong = WRONG[name]
    monkeypatch.setattr(owner, method, wrong)
    with pytest.raises((AssertionError, hal.KernelFault, pytest.fail.Exception)):
        for test in (
            test_Q7_a_missing_wait_is_found_and_named, test_Q7_the_host_is_a_queue_like_any_other,
            test_Q7_byte_ranges_count_not_buffers, test_Q7_reads_need_no_order,
            test_Q7_freed_memory_is_forgotten, test_Q7_events_recorded_later_order_too,
            partial(test_Q7_each_way_to_wait_orders_the_host, _wait),
            partial(test_Q7_each_way_to_wait_orders_the_host, _synchronize),
            test_Q7_random_programs_are_judged_as_their_order_says,
        ):  # fmt: skip
            test(device)


def _wait(device: hal.Compiled, queue: hal.Queue, event: hal.Event) -> None:
    event.wait(20)


def _synchronize(device: hal.Compiled, queue: hal.Queue, event: hal.Event) -> None:
    device.synchronize(20)


async def _awaited(event: hal.Event) -> None:
    await event
