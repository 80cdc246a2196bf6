"""CPU devices that the registry does not know, so that a test may close them."""

import pytest

from hal_core.device.backend import Backend
from hal_cpu import plugin
from hal_cpu.device import describe


def open_device(maker=plugin, **environment):
    """Open a CPU device of a plugin's under these environment variables, which are read once."""
    with pytest.MonkeyPatch.context() as patch:
        for name, text in environment.items():
            patch.setenv(name, text)
        device = maker.hal_open_device("CPU", 0, describe("CPU"))
    device._backend = Backend(maker, "CPU", "tests")
    return device
