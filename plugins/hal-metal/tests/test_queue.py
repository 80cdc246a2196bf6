"""Queues, events and graphs as Metal has them."""

import random
from pathlib import Path

import numpy as np
import pytest
from ctrl_c import Scene, press_everywhere
from interrupts import queues
from kernel_files import add

import hal_core as hal
import hal_metal


@pytest.mark.parametrize("where", ["device", "queue", "graph"])
def test_copies_and_fills_of_any_offset_size_and_overlap(device, where):
    """Metal's blits take multiples of 4; bytes between and overlapping ranges come out right."""
    made = hal.Buffer.from_numpy(np.arange(256, dtype=np.uint8), device)
    expected, choose = np.arange(256, dtype=np.uint8), random.Random(7)
    steps = []
    for _ in range(60):
        size, dest, src = choose.randrange(1, 60), choose.randrange(190), choose.randrange(190)
        if choose.random() < 0.3:
            size, dest, src = (n & ~3 or 4 for n in (size, dest, src))
        steps.append((choose.choice(("copy", "fill", "wide", "copyin")), size, dest, src))

    def work(queue):
        how = {"queue": queue} if queue else {}
        for number, (kind, size, dest, src) in enumerate(steps):
            part = made.view(size, hal.uint8, dest)
            if kind == "copy":
                part.copy_from(made.view(size, hal.uint8, src), **how)
            elif kind == "fill":
                part.fill(200 + number % 50, **how)
            elif kind == "wide":
                made.view(size, hal.uint16, dest & ~1).fill(number * 517, **how)
            else:
                part.copyin(bytes([number]) * size, **how)

    for number, (kind, size, dest, src) in enumerate(steps):
        if kind == "copy":
            expected[dest : dest + size] = expected[src : src + size].copy()
        elif kind == "fill":
            expected[dest : dest + size] = 200 + number % 50
        elif kind == "wide":
            start = dest & ~1
            expected[start : start + 2 * size] = np.full(size, number * 517, "u2").view("u1")
        else:
            expected[dest : dest + size] = number
    if where == "graph":
        with device.capture() as captured:
            work(None)
        captured.replay(wait=True)
    elif where == "device":
        work(None)
    else:
        queue, down = device.queue(), np.zeros(100, np.uint8)
        work(queue)
        made.view(100, hal.uint8, 33).copyout(down, queue=queue).wait()
        assert down.tolist() == expected[33:133].tolist()
    assert made.numpy().tolist() == expected.tolist()


def test_a_replay_is_one_command_buffer_and_one_encoder_for_launches_in_a_row(device, control):
    program, y = device.compile(add), hal.zeros(64, hal.int32, device)
    z = hal.zeros(64, hal.int32, device)
    with device.capture() as graph:
        for turn in range(5):
            program(y, vals=(turn, 64), threads=64)
        z.copy_from(y)
        program(z, vals=(1, 64), threads=64)
    graph.replay(wait=True)
    control.messages.clear()
    graph.replay()
    device.synchronize()
    sent = control.messages
    assert sent["commandBuffer"] == sent["commit"] == sent["blitCommandEncoder"] == 1
    assert sent["computeCommandEncoder"] == 2 and sent["endEncoding"] == 3
    assert sent["dispatchThreadgroups:threadsPerThreadgroup:"] == 6
    assert y.numpy()[0] == 20 and z.numpy()[0] == 21


def test_queues_of_two_devices_are_ordered_by_a_shared_event(device, control):
    other = hal.Device["METAL:1"]
    first, second = device.queue(), other.queue()
    y, z = hal.zeros(64, hal.int32, device), hal.zeros(64, hal.int32, other)
    device.synchronize()
    other.synchronize()
    control.messages.clear()
    control.seconds = 0.02
    device.compile(add)(y, vals=(3, 64), threads=64, queue=first)
    second.wait(first.record())
    assert control.messages["encodeWaitForEvent:value:"] == 1, "on the device, not through the host"
    other.compile(add)(z, vals=(4, 64), threads=64, queue=second)
    second.synchronize()
    assert y.numpy()[0] == 3 and z.numpy()[0] == 4
    other.close()


def test_Q6_a_command_queue_of_others_is_borrowed(device, control):
    theirs = device.hardware.newCommandQueue()
    queue = hal.Queue.wrap(theirs, device)
    y = hal.zeros(64, hal.int32, device)
    queue.wait(device.default_queue.record())  # which fills `y`
    device.compile(add)(y, vals=(3, 64), threads=64, queue=queue)
    queue.synchronize()
    assert y.numpy()[0] == 3
    with pytest.raises(hal.InvalidArgument, match="knows no such queue"):
        hal.Queue.wrap(object(), device)
    other = hal.Device["METAL:1"]
    with pytest.raises(hal.InvalidArgument, match="knows no such queue"):
        hal.Queue.wrap(theirs, other)
    other.close()


def test_ctrl_c_leaves_no_encoder_open(device, control):
    """Metal ends the process when an open one is released; `control` finds that."""
    program, x = device.compile(add), hal.zeros(64, hal.int32, device)
    options = hal.BufferSpec(image=hal.Image(4, 4))
    image = hal.Buffer.from_numpy(np.zeros((4, 4, 4), np.int32), device, options)
    here = tuple(str(Path(module.__file__ or "").parent) for module in (hal, hal_metal))

    def work():
        program(x, vals=(1, 64), threads=64)
        x[1:9].fill(0)
        x[8:16].copy_from(x[32:40])
        image.copy_from(x)
        device.synchronize()

    def check(heard):
        if heard.frames and heard.frames[-1][1] == "send":  # a message is C on a Mac, and ends
            control.aborts.clear()
        assert not control.aborts, heard.where

    assert press_everywhere(lambda: Scene(work, check), 1000, files=here) > 100


def test_Q2_ctrl_c_in_a_wait_loses_no_event(device, control):
    assert press_everywhere(lambda: queues.begins(device), 15) > 10
    control.aborts.clear()  # of messages that Ctrl-C came into, which are C on a Mac


def test_Q4_a_queue_knows_the_work_that_ctrl_c_came_into(device, control):
    here = (str(Path(hal_metal.__file__).parent),)
    assert press_everywhere(lambda: queues.drops(device), 1000, files=here) > 20
    control.aborts.clear()
