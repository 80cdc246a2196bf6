"""Work of tests on the devices of a cluster: their names, their processes, failures on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hal_core as hal


def named(device: str, node: str) -> str:
    """Return the name that a device of a node has here."""
    infos = hal.Device.devices("RAY")
    wanted = {"device": device, "node": node}
    (name,) = [one.name for one in infos if wanted.items() <= one.vendor.items()]
    return name


def lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def fail_there(device: Any) -> None:
    """Let the next launch on a simulated accelerator fail late, on the chip of its node."""

    def fail(host: Any) -> None:  # in here, or the actor would import this file
        host._device.chip.fail("run")

    device.connection.ray.get(device.connection.actor.__ray_call__.remote(fail))
