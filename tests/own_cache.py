"""A compile cache of the test run's own; a plugin's conftest.py imports the fixture."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAL_CACHE_DIR", str(tmp_path_factory.mktemp("hal-cache")))
        yield
