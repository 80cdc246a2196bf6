"""The facts of AMD GPUs, and the class of an open one."""

from __future__ import annotations

from hal_core.device.base import DeviceInfo
from hal_hip import driver
from hal_streams import device as streams
from hal_streams.device import describe


def enumerate_devices(family: str) -> list[DeviceInfo]:
    """Return the facts of every device, without opening it. Raises: DeviceUnavailable."""
    return streams.enumerate_devices(family, driver.api(), describe)


class HIPDevice(streams.StreamDevice):
    """One GPU, and one stream. Closing it resets the GPU if a fault has come back from it."""

    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info, driver.api())
