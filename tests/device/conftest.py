"""The helpers of this folder are imported by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hal_core.device.names import KNOWN

sys.path.insert(0, str(Path(__file__).parent))


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.alone)
    item.add_marker(pytest.mark.syntax)
    item.add_marker(pytest.mark.quick)


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HAL_DEVICE", "HAL_PLUGINS", "HAL_DISABLE", "HAL_PREFER", "ACC", "CL", *KNOWN):
        monkeypatch.delenv(name, raising=False)
