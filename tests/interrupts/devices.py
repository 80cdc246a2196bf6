"""Devices: found, opened, used for the first time and closed."""

from ctrl_c import Scene, expect
from interrupts.kernels import assert_adds, made

import hal_core as hal


def opened(device):
    name, found = device.name, list[hal.Compiled]()
    device.close()

    def work():
        found.append(hal.Device[name])
        hal.zeros(4, hal.int32, found[0]).fill(1)
        found[0].close()

    def check(heard):
        assert_opens(name)
        if found and found[0].closed:
            expect(found[0] is not hal.Device[name], "a closed device is found")

    return Scene(work, check)


def closed(device):
    """A device is closed that has memory, a program, a graph, and queues with and without work."""
    program, x = device.compile(made()), hal.zeros(1 << 16, hal.int32, device)
    queues = [device.queue(), device.queue()]
    with device.capture() as graph:
        x.fill(1)

    def work():
        x.fill(1, queue=queues[0])
        program(x, x, vals=(64,), threads=64)
        graph.replay()
        device.close()

    def check(heard):
        device.close()
        expect(all(queue.closed for queue in queues), "a queue of a closed device is open")
        assert_opens(device.name)

    return Scene(work, check)


def listed(device):
    def work():
        hal.Device.refresh()
        hal.Device.get_available_devices(interpreters=True)
        hal.Device.states()

    def check(heard):
        expect(device.name in hal.Device.get_available_devices(interpreters=True), "it is gone")
        expect(hal.Device[device.name] is device, "it was opened twice")

    return Scene(work, check)


def assert_opens(name):
    """The device opens, once, and works."""
    device = hal.Device[name]
    expect(device is hal.Device[name.lower()] and not device.closed, "it was opened twice")
    known = [one for one in hal.Device._devices.values() if one.family == device.family]
    expect(set(map(id, known)) == {id(device)}, "another one is known")
    assert_adds(device.compile(made()))


SCENES = (opened, closed, listed)
