"""Fixtures: the CPU device, C objects, and a compile cache of the test run's own."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import hal_core as hal
from hal_cpu import plugin

sys.path.append(str(Path(__file__).resolve().parents[3] / "tests"))
sys.path.append(str(Path(__file__).parent))

from unregistered import open_device


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    if "CPU" not in hal.Device:  # run from a checkout
        hal.Device.register_plugin("CPU", plugin)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAL_CACHE_DIR", str(tmp_path_factory.mktemp("hal-cache")))
        for name in ("CPU_CC", "CPU_LLVM", "CPU_GCC", "CPU_CLANG", "CPU_ZIG", "HAL_CPU_THREADS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def device(own_cache):
    opened = hal.Device["CPU"]
    yield opened
    opened.close()


@pytest.fixture
def own_device(own_cache):
    """A device that the test may close; the registry does not know it."""
    opened = open_device()
    yield opened
    opened.close()


@pytest.fixture
def checked(own_cache):
    """A device that was opened under HAL_CHECK=1."""
    opened = open_device(HAL_CHECK="1")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def releases_the_gil():
    """`releases_the_gil(work, times=50)`: whether another thread can run while `work` does."""

    def releases(work, times=50):
        gate, ran = threading.Lock(), list[int]()
        gate.acquire()
        thread = threading.Thread(target=lambda: (gate.acquire(), ran.append(1)))
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)  # a thread runs only where another one releases the GIL
        try:
            thread.start()  # it has the GIL until it waits at the gate
            gate.release()
            sum(range(500_000))  # it wakes, and asks for the GIL
            for _ in range(times):
                work()
                if ran:
                    break
            return bool(ran)
        finally:
            sys.setswitchinterval(interval)
            thread.join()

    return releases


@pytest.fixture(scope="session")
def c_object(tmp_path_factory):
    """`c_object(text, *options)`: an ELF object made by the machine's C compiler, or TEST_CC."""
    found = os.environ.get("TEST_CC") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        pytest.skip("needs gcc or clang to make objects")
    folder = tmp_path_factory.mktemp("objects")

    def make(text, *options):
        (folder / "kernel.c").write_text(text)
        command = [*found.split(), "-c", "-O2", "-fPIC", *options, "kernel.c", "-o", "kernel.o"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return (folder / "kernel.o").read_bytes()

    return make
