"""The software CUDA driver and its engine, built once, and a driver of its own for each test."""

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import build
from driver_calls import Driver
from engine_runner import build_engine


@pytest.fixture(scope="session")
def cuda_folder():
    """The folder with libcuda.so.1, for LD_LIBRARY_PATH of a child."""
    try:
        return build.build(build.kept()).parent
    except build.NoCompiler as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def engine():
    try:
        return build_engine(build.kept())
    except build.NoCompiler as missing:
        pytest.skip(str(missing))


@pytest.fixture
def load_driver(cuda_folder, tmp_path, monkeypatch):
    """Gives a driver that has not been initialized, with SIM_CUDA_* as the keywords say."""

    def load(**settings):
        for name in [name for name in os.environ if name.startswith("SIM_CUDA_")]:
            monkeypatch.delenv(name)  # what others have set for a driver of theirs
        for name, value in settings.items():
            monkeypatch.setenv(f"SIM_CUDA_{name.upper()}", str(value))
        # The loader keeps a library by its file: another file is another driver.
        copy = tmp_path / f"libcuda-{len(list(tmp_path.iterdir()))}.so"
        shutil.copyfile(cuda_folder / build.NAME, copy)
        return Driver(copy)

    return load


@pytest.fixture
def cuda(load_driver):
    """A driver with the first device's primary context current, which the test must leave clean."""
    driver = load_driver()
    driver.start()
    yield driver
    driver.stop()
    assert driver.live(zero=False) == {}
