"""Devices of a Ray cluster beside Ray itself: a head and a node on this machine."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import hal_core as hal
from bench.measure import OURS, Effort, Task, call, compare
from bench.report import Missing, Row, beside

NBYTES = 64 << 20
LAUNCHES = 1000
LOOPBACK = "127.0.0.2"  # Ray takes 127.0.0.1 for the machine's address in its network
SIZES = {"num_cpus": 1, "object_store_memory": 700 << 20, "node_ip_address": LOOPBACK}
LISTING = "import hal_core as hal; hal.Device.states(); hal.Device.get_available_devices()"


@hal.kernel
def add_one(y: hal.Ptr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] + 1.0


class Holder:
    """An actor with an array of its own, as a program of Ray's has it."""

    def __init__(self) -> None:
        self.array = np.ones(NBYTES, np.uint8)

    def nothing(self) -> None:
        """Do nothing."""

    def give(self) -> Any:
        return self.array

    def take(self, given: Any) -> None:
        self.array[:] = given


def rows(effort: Effort) -> Iterator[Row | Missing]:
    if any(importlib.util.find_spec(name) is None for name in ("ray", "hal_ray")):
        yield Missing("devices of a cluster", "hal-ray is not installed")
        return
    yield listing(effort.rarely())
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(True, head_node_args={"include_dashboard": False, **SIZES})
    try:
        cluster.add_node(**SIZES)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        hal.Device.refresh()
        names = [i.name for i in hal.Device.devices("RAY") if i.vendor["device"] == "CPU"]
        nodes = [hal.Device.info(name).vendor["node_id"] for name in names]
        place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        holders = [
            ray.remote(Holder).options(scheduling_strategy=place(node, False), num_cpus=0).remote()
            for node in nodes
        ]
        devices = [hal.Device[name] for name in names]
        yield from waits(ray, devices, holders, effort.rarely())
        yield from copies(ray, devices, holders, effort.rarely())
    finally:
        for device in list(hal.Device._devices.values()):
            if device.family == "RAY":
                device.close()
        ray.shutdown()
        cluster.shutdown()


def listing(effort: Effort) -> Row:
    """Measure the import and the listing of devices, where Ray is installed and not started."""

    def process(**environment: str) -> Task:
        command = [sys.executable, "-c", LISTING]
        env = os.environ | environment
        return call(lambda: subprocess.run(command, env=env, check=True))

    tasks = {OURS: process(), "without hal-ray": process(HAL_DISABLE="RAY")}
    what = "import hal_core and list its devices, hal-ray installed, no cluster"
    return beside(what, compare(tasks, effort), "without hal-ray", 0.95)


def waits(ray: Any, devices: list[Any], holders: list[Any], effort: Effort) -> Iterator[Row]:
    device, holder = devices[0], holders[0]
    program, y = device.compile(add_one), hal.zeros(1024, hal.float32, device)

    def launches(count: int) -> None:
        for _ in range(count):
            program(y, vals=(1024,), threads=1024)
        device.synchronize()

    def calls(count: int) -> None:
        ray.get([holder.nothing.remote() for _ in range(count)])

    tasks = {OURS: call(lambda: launches(1)), "a call of an actor": call(lambda: calls(1))}
    effort = Effort(max(20, effort.rounds), 0.05)
    what = "hal-ray, a launch and a wait"
    yield beside(what, compare(tasks, effort), "a call of an actor", 1 / 1.3)
    floor = f"{LAUNCHES} calls of an actor"
    tasks = {OURS: call(lambda: launches(LAUNCHES)), floor: call(lambda: calls(LAUNCHES))}
    what = f"hal-ray, {LAUNCHES} launches and a wait"
    yield beside(what, compare(tasks, effort.rarely()), floor, 20.0)


def copies(ray: Any, devices: list[Any], holders: list[Any], effort: Effort) -> Iterator[Row]:
    here, there = (hal.empty(NBYTES, hal.uint8, device) for device in devices[:2])
    array, dest = np.ones(NBYTES, np.uint8), np.empty(NBYTES, np.uint8)
    effort, size = Effort(max(12, effort.rounds), 0.0), "64 MiB"

    def wait() -> None:
        for device in devices:
            device.synchronize()

    def take_over() -> None:
        dest[:] = ray.get(holders[0].give.remote())

    def transfer() -> None:
        there.copy_from(here)
        devices[1].synchronize()

    def hand_over() -> None:
        ray.get(holders[1].take.remote(holders[0].give.remote()))

    here.copyin(array)
    wait()
    copy_in = Task("here.copyin(array)", {"here": here, "array": array}, after=wait)
    tasks = {OURS: copy_in, "ray.put": Task("ray.put(array)", {"ray": ray, "array": array})}
    yield beside(f"hal-ray, copyin {size}", compare(tasks, effort), "ray.put", 0.8)
    floor = "an actor's array, copied here"
    tasks = {OURS: call(lambda: here.copyout(dest)), floor: call(take_over)}
    yield beside(f"hal-ray, copyout {size}", compare(tasks, effort), floor, 0.8)
    floor = "an array from actor to actor"
    tasks = {OURS: call(transfer), floor: call(hand_over)}
    what = f"hal-ray, copy {size} from node to node"
    yield beside(what, compare(tasks, effort), floor, 1 / 1.2)
