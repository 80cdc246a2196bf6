"""Settings of every test run of the repository, the core's tests and the plugins'."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def cheap_collections() -> None:
    """Keep `gc.collect()` fast: it does not look again at what earlier modules made.

    After some thousand tests a process holds millions of objects, and a collection takes a second.
    """
    gc.collect()
    gc.freeze()
