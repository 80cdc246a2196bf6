"""The facts of NVIDIA GPUs, and the class of an open one."""

from __future__ import annotations

from hal_core.device.base import DeviceInfo
from hal_cuda import driver
from hal_cuda.calls import Calls
from hal_streams import device as streams
from hal_streams.driver import Facts


def enumerate_devices(family: str) -> list[DeviceInfo]:
    """Return the facts of every device, without a context. Raises: DeviceUnavailable."""
    return streams.enumerate_devices(family, driver.api(), describe)


def describe(name: str, facts: Facts, peers: bool) -> DeviceInfo:
    """Translate the driver's facts of one device; `peers` is True if the family has others."""
    abilities = {"images"}
    if facts.attributes["compute_capability"] >= (8, 0):
        abilities.add("bf16")
    described = streams.describe(name, facts, peers, abilities)
    return described._replace(shared_banks=32)  # of all that this library runs on


class CUDADevice(streams.StreamDevice):
    """One GPU: its primary context, and one stream.

    Order: arrays of PyCUDA or CuPy and our buffers may be used in turns, as the stream and the
    legacy default stream wait for each other's earlier work.
    """

    api: Calls

    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info, driver.api())

    @property
    def driver_version(self) -> tuple[int, int]:
        """The newest version of CUDA that the driver supports."""
        with self.own("open"):
            return self.api.version()
