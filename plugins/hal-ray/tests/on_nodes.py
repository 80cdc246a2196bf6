"""Work of tests on the devices of a cluster: their names, their processes, failures on request."""

import time
from pathlib import Path

import hal_core as hal

IN_TIME = 30.0  # seconds; a process that ends is noticed at once, a machine after some


def named(device, node):
    """Return the name that a device of a node has here."""
    infos = hal.Device.devices("RAY")
    wanted = {"device": device, "node": node}
    (name,) = [one.name for one in infos if wanted.items() <= one.vendor.items()]
    return name


def until(holds, what):
    deadline = time.monotonic() + IN_TIME
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.001)


def lives(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def fail_there(device):
    """Let the next launch on a simulated accelerator fail late, on the chip of its node."""

    def fail(host):  # in here, or the actor would import this file
        host._device.chip.fail("run")

    device.connection.ray.get(device.connection.actor.__ray_call__.remote(fail))
