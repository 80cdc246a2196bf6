"""R7, R10: without a cluster nothing is imported, and one error says what to do."""

import os
import socket
import sys
import time

import pytest
from run_python import printed

import hal_core as hal
from hal_ray import driver

pytestmark = pytest.mark.results

LIST = """
import sys
import hal_core as hal
assert "RAY" in hal.Device and "RAY" in repr(hal.Device)
for turn in range(2):  # the second error is as the first
    try:
        hal.Device["RAY"]
    except hal.HalError as error:
        print(type(error).__name__, error)
hal.Device.get_available_devices()
print(hal.Device.states()["RAY"], "ray" in sys.modules)
"""


def run(code, **environment):
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return printed(code, env=env, **environment).splitlines()


def test_R7_listing_imports_no_ray_and_says_what_to_call():
    first, second, state = run(LIST)
    assert first == second and state == "no hardware False"
    assert first == (
        "DeviceUnavailable list RAY: this process is connected to no cluster. Call "
        "ray.init(address=...), or set HAL_RAY_ADDRESS=HOST:PORT (auto: this machine's)."
    )


def test_R10_a_cluster_that_is_joined_later_is_found(cluster):
    code = f"""
import ray
import hal_core as hal
for turn in range(2):
    try:
        print(len(hal.Device.devices("RAY")), hal.Device.states()["RAY"])
    except hal.DeviceUnavailable:
        ray.init(address={cluster.address!r}, log_to_driver=False, logging_level="ERROR")
"""
    [found] = run(code, PYTHONWARNINGS="default")
    assert found.partition(" ")[2] == "ready"


def test_the_plugin_module_imports_nothing_dear():
    code = "import sys, hal_ray; print(*(n for n in ('ray', 'numpy') if n in sys.modules))"
    assert run(code) == [""]


@pytest.mark.parametrize("name", ["HAL_RAY_ADDRESS", "RAY_ADDRESS"])
@pytest.mark.parametrize(
    "address",
    ["local", "LOCAL", "Auto", "garbage", "os://host:1", "http://host:1", "ray://", "ray://host",
     "host:", ":6379", "host:0", "host:65536", "host:1:2", "host:-1", "host:1 2", "host:\u0661",
     "::1:6379", "host:" + "9" * 5000],
)  # fmt: skip
def test_an_address_for_which_ray_starts_a_cluster_or_none_is_refused(name, address, monkeypatch):
    """Ray is not even imported: of `os://host:1` it would import the module `os`."""
    monkeypatch.setenv("HAL_RAY_ADDRESS", "auto")
    monkeypatch.setenv(name, address)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(hal.InvalidArgument, match=f"variable {name}: expected HOST:PORT, ray://"):
        driver.connect()


@pytest.mark.parametrize(
    ("addresses", "why"),
    [(["", " "], "connected to no cluster"),
     (["auto", "head:6379", "192.0.2.10:1", "ray://head.example-1.org:10001", "[::1]:6379"],
      "Ray cannot be loaded")],
)  # fmt: skip
def test_an_empty_address_is_none_and_that_of_a_cluster_is_taken(addresses, why, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    for address in addresses:
        monkeypatch.setenv("HAL_RAY_ADDRESS", address)
        with pytest.raises(hal.DeviceUnavailable, match=why):
            driver.connect()


def test_R10_an_address_where_nothing_listens_is_refused_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begin = time.monotonic()
    first, second, state = run(LIST, HAL_RAY_ADDRESS=f"127.0.0.1:{port}")
    assert time.monotonic() - begin < 60
    assert first == second and state == "no hardware True"
    assert f"127.0.0.1:{port}" in first and "Look at HAL_RAY_ADDRESS" in first


@pytest.mark.timeout(120)
def test_R10_an_address_that_answers_nothing_is_refused_in_time():
    """A port that takes connections and is no cluster."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        port = mute.getsockname()[1]
        begin = time.monotonic()
        ask = LIST + "\nimport os; sys.stdout.flush(); os._exit(0)  # Ray's thread still tries"
        first, *_ = run(ask, HAL_RAY_ADDRESS=f"127.0.0.1:{port}", HAL_RAY_SECONDS="3")
        assert time.monotonic() - begin < 60
    assert "no answer in time" in first and f"127.0.0.1:{port}" in first
