"""The devices of a cluster: their facts, and the class of an open one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from hal_core.device.base import Compiled, DeviceInfo
from hal_core.errors import DeviceFault, DeviceUnavailable
from hal_ray import driver
from hal_ray.clock import RayClock
from hal_ray.connection import Connection
from hal_ray.driver import Node
from hal_ray.queue import RayQueue

if TYPE_CHECKING:
    from hal_core.graph import Step

# Capabilities of a device that it has from afar, too; others need its memory or its process.
_KEPT = frozenset(
    {
        "fp16", "bf16", "fp64", "int64_atomics", "float_atomics", "subgroups", "timing",
        "disassemble",
    }
)  # fmt: skip


def enumerate_devices(family: str) -> list[DeviceInfo]:
    """Return the facts of every device of every node, best first. Raises: DeviceUnavailable."""
    answers = driver.ask_nodes(driver.connect())
    found: list[tuple[tuple[int, str, int, int], Node, DeviceInfo]] = []
    for place, (node, listing) in enumerate(answers.listings):
        left = node.resources.get("GPU", 0.0)  # a GPU that Ray does not have cannot be reserved
        for rank, info in listing.devices:
            name = info.name.partition(":")[0]
            if info.kind != "gpu" or int(info.name.partition(":")[2] or 0) < left:
                found.append(((-rank, name, place, len(found)), node, info))
    if not found:
        why = " ".join(f"{name}: {text}." for name, text in answers.refused.items())
        missing = [text for _, listing in answers.listings for text in listing.missing.values()]
        raise DeviceUnavailable(
            "list RAY", "no node of the cluster has a device",
            fix=why or " ".join(missing) or "Install hal-cpu on the nodes.",
        )  # fmt: skip
    found.sort(key=lambda one: one[0])
    names = (f"{family}:{number}" if number else family for number in itertools.count())
    return [describe(name, node, info) for name, (_, node, info) in zip(names, found, strict=False)]


def describe(name: str, node: Node, info: DeviceInfo) -> DeviceInfo:
    """Translate the facts of a device on a node."""
    needs: dict[str, float] = {}
    if info.kind == "gpu":
        needs = {"num_gpus": 1}
    elif info.kind in ("cpu", "interpreter"):
        there = int(node.resources.get("CPU", 0))
        wanted = 1 if info.kind == "interpreter" else driver.CORES.read() or info.compute_units
        needs = {"num_cpus": min(there, wanted)}
    return info._replace(
        name=name,
        title=f"{info.name} on {node.name} ({info.title})",
        host_visible=False,
        capabilities=info.capabilities & _KEPT,
        vendor={
            "node": node.name, "node_id": node.number, "device": info.name, "title": info.title,
            "needs": needs,
        },
    )  # fmt: skip


class RayDevice(Compiled):
    """A device of a node, which an actor there has open.

    Order: work travels in messages, which are done in their order.
    Raises: DeviceUnavailable when the node is gone, or others have reserved what it needs.
    """

    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info)
        facts = info.vendor
        ray = driver.connect()
        with driver.check("open", name):
            actor = driver.start_host(ray, facts["node_id"], facts["needs"])
            place = f"{facts['node']} ({facts['device']})"
            self.connection = Connection(ray, actor, name, place)
        self.numbers = itertools.count(1)  # of blocks, programs, graphs and measured commands
        try:
            self.process = self._open_there(facts)
        except BaseException:
            self._close()
            raise
        self.connection.describe_loss = self._describe_loss

    def _synchronize(self, timeout: float | None) -> bool:
        return self.connection.wait(timeout)

    def _close(self) -> None:
        self.connection.close()

    def _make_default_queue(self) -> RayQueue:
        return RayQueue(self, f"the default queue of {self.name}")

    def _make_clock(self) -> RayClock:
        return RayClock(self)

    @property
    def graph(self) -> Callable[[Compiled, list[Step]], Callable[[], None] | None] | None:
        """The function that makes a replay in one command, of a graph of the real device."""
        from hal_ray.graph import replay_there

        return replay_there

    def close(self) -> None:
        """Close as every device does. Raises: DeviceFault of a loss that nothing has raised yet."""
        with suppress(DeviceFault) if self.connection.is_loss_known else nullcontext():
            super().close()

    def statistics_there(self) -> Any:
        """Return the accounts of the real device's allocator, after all commands so far."""
        return self.connection.ask("statistics", seconds=driver.SECONDS.read())

    def _open_there(self, facts: Any) -> int:
        settings = driver.settings()
        cores = int(facts["needs"].get("num_cpus", 0))
        if cores and self.info.kind == "cpu":
            settings["HAL_CPU_THREADS"] = str(cores)
        seconds = driver.SECONDS.read()
        question = "open", facts["device"], facts["title"], settings
        try:
            process: int = self.connection.ask(*question, seconds=seconds)
        except DeviceFault as error:  # the actor could not be started: its node is gone
            fix = "Call hal.Device.refresh()."
            raise DeviceUnavailable("open", error.problem, device=self.name, fix=fix) from None
        except DeviceUnavailable as error:
            if "no answer" not in error.problem:
                raise
            needs = " and ".join(f"{key}={value:g}" for key, value in facts["needs"].items())
            problem = f"node {facts['node']} did not have {needs or 'a worker'} free in time"
            fix = (
                "Close what has reserved it, such as another device of this process; "
                f"{driver.CORES.name} lets a processor reserve fewer cores."
            )
            limit = f"limit {seconds:g} seconds"
            raise DeviceUnavailable(
                "open", problem, limit=limit, device=self.name, fix=fix
            ) from None
        return process

    def _describe_loss(self) -> str:
        """Say what was on the device."""
        allocator = self.__dict__.get("allocator")
        blocks, nbytes = (0, 0) if allocator is None else allocator.statistics()[6::-6]
        return (
            f", with {blocks} buffers of {nbytes} bytes, {len(self._loaded)} programs "
            "and all work since the last wait"
        )
