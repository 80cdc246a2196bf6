"""A fixture of the kit for backends with streams."""

import numpy as np
import pytest

from hal_testing.plugin import External


@pytest.fixture
def hal_external(device):
    """Return device memory allocated past our allocator."""
    api = device.api
    with device.check("external"):
        address = api.allocate(64, device.stream, None)
        api.fill(address, b"\0", 64, device.stream)

    def content():
        data = np.empty(64, np.uint8)
        with device.check("external"):
            api.copy_out(data, address, 64, device.stream)
            api.wait(device.stream)
        return data.tobytes()

    yield External(address, 64, content)
    with device.check("external"):
        api.free(address, device.stream, False)
