"""Memory shared with libraries that work on streams of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from runtime_control import Runtime
from shared_memory import *  # noqa: F403

import hal_core as hal


@pytest.fixture
def shuffle(device: hal.Compiled, runtime: Runtime) -> Iterator[Callable[[int], None]]:
    """Return what sets the seed of the streams' order."""
    yield runtime.shuffle
    runtime.shuffle(0)


@pytest.fixture
def fail(runtime: Runtime) -> Callable[[str, int], None]:
    """Return what lets the next call of a function fail."""
    return lambda name, code: runtime.fail(f"hip{name}", code)


@pytest.fixture
def capture(runtime: Runtime) -> Callable[[Any], Any]:
    """Return what captures a stream as PyTorch does; a capture that was spoilt is an error."""

    @contextmanager
    def captured(stream: Any) -> Iterator[None]:
        runtime.capture(int(stream))
        yield
        assert runtime.capture() == 0

    return captured


@pytest.fixture
def untouched(runtime: Runtime) -> Callable[[], bool]:
    """Return what tells whether the runtime was given no handle of what is gone."""
    stale = runtime.stale()
    return lambda: runtime.stale() == stale
