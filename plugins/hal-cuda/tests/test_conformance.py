"""The conformance kit; `nox -s conformance` runs it with both compilers and both transports."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from simulator import SYSTEM, Simulator

import hal_core as hal
from hal_core.testing.conformance import *  # noqa: F403
from hal_core.testing.kit.abilities import nothing_to_try
from hal_core.testing.plugin import External

ILLEGAL_ADDRESS = 700


@pytest.fixture(scope="session")
def hal_device_name(own_cache: None) -> str:
    return hal.Device.canonicalize("CUDA")


@pytest.fixture
def hal_fault(request: pytest.FixtureRequest) -> Callable[[hal.Program], None]:
    """Let the driver accept a launch whose kernel faults."""
    if SYSTEM:
        nothing_to_try("a fault on a real GPU takes the process along; test_faults.py has them")
    simulator: Simulator = request.getfixturevalue("simulator")
    return lambda program: simulator.fail("run", ILLEGAL_ADDRESS)


@pytest.fixture
def hal_external(device: hal.Compiled) -> Iterator[External]:
    """Return device memory allocated past our allocator."""
    api = device.api
    with device.check("external"):
        address = api.allocate(64, device.stream, None)
        api.fill(address, b"\0", 64, device.stream)

    def content() -> bytes:
        data = np.empty(64, np.uint8)
        with device.check("external"):
            api.copy_out(data, address, 64, device.stream)
            api.wait(device.stream)
        return data.tobytes()

    yield External(address, 64, content)
    with device.check("external"):
        api.free(address, device.stream, False)
