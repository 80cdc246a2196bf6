"""Fixtures of the core's tests: a registry that knows the fake backend only, own cache folder."""

import itertools
import sys
from pathlib import Path

import pytest

import hal_core as hal

sys.path.insert(0, str(Path(__file__).parent))

from fake_backend import FakePlugin
from fake_site import FakeSite


@pytest.fixture(scope="session")
def caches(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hal-caches")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def own_cache(caches, monkeypatch):
    """Name a folder, which the cache makes: `tmp_path` would make one for each of 9,000 tests."""
    folder = next(caches)
    monkeypatch.setenv("HAL_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def plugin():
    """Registered as FAKE: two devices in memory."""
    made = FakePlugin("accelerator", "accelerator")
    hal.Device.register_plugin("FAKE", made)
    yield made
    for name in ("FAKE", "FAKE:1"):
        hal.Device[name].close()


@pytest.fixture
def fake(plugin):
    return hal.Device["FAKE"]


@pytest.fixture
def site(tmp_path):
    """A folder for distributions of which the tests' process knows nothing."""
    return FakeSite(tmp_path / "site")


@pytest.fixture
def own_sys(monkeypatch):
    """Undo what a command does to `sys.argv` and `sys.path` for the file that it runs."""
    for name in ("argv", "path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))


@pytest.fixture
def busy_threads():
    """Threads change places as often as the interpreter lets them."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)
