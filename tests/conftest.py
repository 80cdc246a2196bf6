"""Fixtures of the core's tests: a registry that knows the fake backend only, own cache folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hal_core as hal

sys.path.insert(0, str(Path(__file__).parent))

from fake_backend import FakePlugin


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "hal-cache"
    monkeypatch.setenv("HAL_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def plugin() -> Iterator[FakePlugin]:
    """Registered as FAKE: two devices in memory."""
    made = FakePlugin("accelerator", "accelerator")
    hal.Device.register_plugin("FAKE", made)
    yield made
    for name in ("FAKE", "FAKE:1"):
        hal.Device[name].close()


@pytest.fixture
def fake(plugin: FakePlugin) -> hal.Compiled:
    return hal.Device["FAKE"]
