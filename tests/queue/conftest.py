"""A fixture of this folder."""

import pytest

from hal_core.queue import event, worker


@pytest.fixture
def impatient(monkeypatch):
    """Look for circles, call a wait long and give up a closed queue's thread after moments."""
    monkeypatch.setattr(event, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(event, "_LONG_SECONDS", 0.05)
    monkeypatch.setattr(worker, "_JOIN_SECONDS", 0.001)
