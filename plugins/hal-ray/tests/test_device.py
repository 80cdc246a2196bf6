"""Tests of resources: the share that a device reserves, and its identity on the node."""

import pytest
from on_nodes import until

import hal_core as hal
from hal_ray.device import RayDevice, describe
from hal_ray.driver import Node
from hal_testing.fake.device import enumerate_devices

NODE = Node("f00", "node-x", {"CPU": 8.0, "GPU": 2.0})


def info(kind, cores=4):
    [made] = enumerate_devices("ACC", 1, kind=kind, compute_units=cores)
    return made


@pytest.mark.parametrize(
    ("kind", "cores", "setting", "needs"),
    [
        ("gpu", 4, None, {"num_gpus": 1}),
        ("accelerator", 4, None, {}),
        ("cpu", 4, None, {"num_cpus": 4}),
        ("cpu", 64, None, {"num_cpus": 8}),  # Ray has eight there
        ("cpu", 64, "3", {"num_cpus": 3}),
        ("interpreter", 1, None, {"num_cpus": 1}),
    ],
)
def test_needs(kind, cores, setting, needs, monkeypatch):
    if setting is not None:
        monkeypatch.setenv("HAL_RAY_CPUS", setting)
    made = describe("RAY:3", NODE, info(kind, cores))
    assert made.vendor["needs"] == needs and made.kind == kind
    assert made.title == "ACC on node-x (A simulated accelerator)"
    assert not made.host_visible and "pinned" not in made.capabilities


def test_an_open_device_reserves_and_a_closed_one_gives_back(cluster, device):
    import ray

    def cores():
        return float(ray.available_resources().get("CPU", 0.0))

    busy = cores()
    device.close()
    until(lambda: cores() > busy, "the core is still reserved")


def test_where_ray_shows_a_part_of_the_devices_their_like_is_opened(cluster):
    """Open the second GPU of a node, which is the first that its actor sees."""
    [npu, *_] = [one for one in hal.Device.devices("RAY") if one.vendor["device"] == "NPU:1"]
    facts = {**npu.vendor, "device": "NPU:7"}
    opened = RayDevice("RAY:90", npu._replace(name="RAY:90", vendor=facts))
    opened.close()
    facts["title"] = "another kind"
    with pytest.raises(hal.DeviceUnavailable, match=r"has no NPU:7 \(another kind\) any more"):
        RayDevice("RAY:90", npu._replace(name="RAY:90", vendor=facts))


def test_no_device_of_the_family_is_a_default(cluster):
    assert not hal.Device.DEFAULT.startswith("RAY")
    assert any(name.startswith("RAY") for name in hal.Device.get_available_devices())
