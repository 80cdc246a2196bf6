"""Fixtures: every toolchain on this machine that can run rendered text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from offline import OFFLINE, OfflineCompiler
from toolchains import TOOLCHAINS, Toolchain


@pytest.fixture(scope="session", params=list(TOOLCHAINS))
def toolchain(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Toolchain]:
    made = TOOLCHAINS[request.param](tmp_path_factory.mktemp(request.param))
    if made.missing:
        pytest.skip(made.missing)
    yield made
    made.close()


@pytest.fixture(scope="session", params=list(OFFLINE))
def offline(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OfflineCompiler]:
    made = OFFLINE[request.param](tmp_path_factory.mktemp(request.param))
    if made.missing:
        pytest.skip(made.missing)
    yield made
    made.close()
