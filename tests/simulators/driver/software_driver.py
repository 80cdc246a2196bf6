"""Control of a driver in software, and fixtures for the tests that CUDA and HIP share.

A plugin's conftest.py imports them, and gives the fixture `control`.
"""

import ctypes
import json
from collections import Counter
from contextlib import contextmanager

import pytest


class Control:
    """Failures, delays and counts of a driver whose functions begin with `prefix`."""

    prefix: str

    def __init__(self, driver):
        self.driver = driver
        for name in ("sim_all_calls", "sim_live", "sim_stale"):
            getattr(driver, name).restype = ctypes.c_char_p
        driver.sim_capture.restype = ctypes.c_uint

    def fail(self, call, code, nth=1):
        """Let the nth next call of that name return `code`; "run" is a kernel on the device."""
        self.driver.sim_fail(call.encode(), ctypes.c_uint64(nth), code)

    def delay(self, call, seconds):
        """Make each call of that name slower; of a launch, the kernel on the device."""
        self.driver.sim_delay(call.encode(), ctypes.c_uint64(int(seconds * 1e6)))

    def shuffle(self, seed):
        """Let streams take turns in an order by chance; 0: each goes on as soon as it can."""
        self.driver.sim_shuffle(ctypes.c_uint64(seed))

    def capture(self, stream=0):
        """Let another library capture a stream in global mode; 0 ends that.

        Returns the number of calls that have made the last capture invalid.
        """
        return int(self.driver.sim_capture(ctypes.c_void_p(stream)))

    def clear(self):
        """Forget all failures, delays and captures, and the order by chance."""
        self.driver.sim_clear()
        self.capture()
        self.shuffle(0)

    def all_calls(self):
        """Count the calls of a program by name."""
        asked = "run", *(f"{self.prefix}{name}" for name in ("GetErrorName", "GetErrorString"))
        found = _counts(self.driver.sim_all_calls())
        return {name: n for name, n in found.items() if name not in (*asked, "cuGetProcAddress")}

    def calls_since(self, before):
        counts = {name: n - before.get(name, 0) for name, n in self.all_calls().items()}
        return {name: count for name, count in counts.items() if count}

    def stale(self):
        """Count the calls that were given a destroyed handle; a real driver may crash in them."""
        return _counts(self.driver.sim_stale())

    def live(self):
        """Count the driver's objects, those that were destroyed with their context left out."""
        found = Counter[str](json.loads(self.driver.sim_live()))
        del found["abandoned"]
        return +found


def _counts(lines):
    rows = (line.split() for line in lines.decode().splitlines())
    return {name: int(count) for name, count in rows}


@pytest.fixture
def shuffle(device, control):
    """Return what sets the seed of the streams' order."""
    yield control.shuffle
    control.shuffle(0)
    if not device.closed:
        device.synchronize()


@pytest.fixture
def fail(control):
    """Return what lets the next call of a function fail."""
    return lambda name, code: control.fail(f"{control.prefix}{name}", code)


@pytest.fixture
def capture(control):
    """Return what captures a stream as PyTorch does; a capture that was spoilt is an error."""

    @contextmanager
    def captured(stream):
        control.capture(int(stream))
        yield
        if control.capture():
            raise AssertionError("the capture is spoiled")

    return captured


@pytest.fixture
def untouched(control):
    """Return what tells whether the driver was given no handle of what is gone."""
    stale = control.stale()
    return lambda: control.stale() == stale


@pytest.fixture
def calls(control):
    """Return what counts the driver's calls of a piece of work, by names without prefix."""

    def count(work):
        before = control.all_calls()
        work()
        found = control.calls_since(before)
        return {name.removeprefix(control.prefix): count for name, count in found.items()}

    return count


@pytest.fixture
def live(control):
    return control.live
