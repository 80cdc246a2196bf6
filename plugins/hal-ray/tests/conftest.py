"""Fixtures: a cluster of a head and two nodes on this machine, which lasts for a session."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import hal_core as hal
from hal_ray import plugin

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).resolve().parents[3] / "tests"))

from on_nodes import named
from own_cache import *  # noqa: F403

from hal_testing.conformance.test_queue import TestQueue

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # tests touch no other machine
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # else each worker warns of a change to come
os.environ["RAY_DISABLE_IMPORT_WARNING"] = "1"

# Not 127.0.0.1: Ray takes that for the address of the machine in its network.
LOOPBACK = "127.0.0.2"
SIZES = {"num_cpus": 1, "object_store_memory": 120 << 20, "node_ip_address": LOOPBACK}

NPU = """
from hal_core.hookspecs import hookimpl
from hal_kernel.render.uops import UOpsRenderer
from hal_testing.fake import FakePlugin


class NPURenderer(UOpsRenderer):
    name = "text of the NPU"


class NPUPlugin(FakePlugin):
    @hookimpl
    def hal_make_compilers(self, device):
        return [pair._replace(renderer=NPURenderer) for pair in super().hal_make_compilers(device)]


plugin = NPUPlugin()
"""


def pytest_itemcollected(item):
    """Leave to full runs what the kit tries on the NPU beside failures of its chip and queues."""
    usual = "hal_fault" in getattr(item, "fixturenames", ()) or item.cls is TestQueue
    if item.path.stem == "test_conformance_npu" and not usual:
        item.add_marker(pytest.mark.full)


def start_cluster(*names):
    """Start a head and one more node for each name."""
    from ray.cluster_utils import Cluster

    head = {"node_name": "head", "include_dashboard": False, **SIZES}
    cluster = patiently(lambda: Cluster(True, head_node_args=head))
    for name in names:
        patiently(lambda name=name: cluster.add_node(node_name=name, **SIZES))
    return cluster


def patiently(start):
    """Start a part of a cluster, again if Ray's own limit of 30 seconds was the load's fault."""
    for _ in range(3):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return start()


def write_npu(folder):
    """Write a distribution with two simulated accelerators NPU, whose chip can fail on request.

    This process cannot import it, and so has no renderer for it.
    """
    folder.joinpath("ray_npu.py").write_text(NPU, encoding="utf-8")
    facts = folder / "ray_npu-1.dist-info"
    facts.mkdir()
    facts.joinpath("METADATA").write_text("Name: ray-npu\nVersion: 1\n", encoding="utf-8")
    group = "[hal.devices]\nNPU = ray_npu:plugin\n"
    facts.joinpath("entry_points.txt").write_text(group, encoding="utf-8")


def join(cluster):
    """Connect this process."""
    import ray

    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")


@pytest.fixture(scope="session")
def cluster(own_cache, tmp_path_factory):
    """A head, node-a and node-b, each with one core, and this process connected to them."""
    if "RAY" not in hal.Device:  # run from a checkout
        hal.Device.register_plugin("RAY", plugin)
    import ray

    folder = tmp_path_factory.mktemp("npu")
    write_npu(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))  # of the nodes
        made = start_cluster("node-a", "node-b")
    try:
        join(made)
        hal.Device.refresh()
        yield made
    finally:
        for name in list(hal.Device._devices):
            if name.startswith("RAY") and name in hal.Device._devices:
                with suppress(hal.DeviceFault):  # a test has killed it
                    hal.Device[name].close()
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def device(cluster):
    """The processor of the head."""
    opened = hal.Device[named("CPU", "head")]
    yield opened
    if opened.closed or opened.connection.fault is not None:  # the next test has a new one
        opened.close()


@pytest.fixture
def other(cluster):
    """The processor of node-a."""
    opened = hal.Device[named("CPU", "node-a")]
    yield opened
    if opened.connection.fault is not None:
        opened.close()


@pytest.fixture
def npu(cluster):
    """The simulated accelerator of the head, whose backend only the nodes have."""
    opened = hal.Device[named("NPU", "head")]
    yield opened
    opened.close()
