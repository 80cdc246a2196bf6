"""The kit about memory, work, queues and graphs on the third backend, run by test_third_backend.py.

In a process of its own: the fixtures of `tests/` would come between the kit's.
"""

import pytest
import third_backend

import hal_core as hal
from hal_testing.conformance import (  # noqa: F401  # pytest collects them here
    TestAllocator,
    TestBuffer,
    TestGraph,
    TestProgram,
    TestQueue,
    TestView,
)


@pytest.fixture(scope="session")
def hal_device_name():
    hal.Device.register_plugin("THIRD", third_backend.plugin)
    yield "THIRD"
    for name in ("THIRD", "THIRD:1"):
        if name in hal.Device._devices:
            hal.Device[name].close()
    api = third_backend.api
    assert not (api.retained or api.blocks or api.events or api.loaded), vars(api)
