"""Settings of hal-hip's tests, which need AMD's compiler, and no GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hal_core as hal
from hal_core import config
from hal_hip import hiprtc


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAL_CACHE_DIR", str(tmp_path_factory.mktemp("hal-cache")))
        yield


@pytest.fixture(scope="session")
def library(own_cache: None) -> hiprtc.Found:
    """Return AMD's compiler, which must be there where HIP is required."""
    try:
        return hiprtc.find()
    except hal.CompilerUnavailable as error:
        if "HIP" in config.REQUIRE.read():
            raise
        pytest.skip(str(error))
