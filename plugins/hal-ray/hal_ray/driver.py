"""Calls of Ray: the cluster, its nodes and actors, and its errors as exceptions of hal-core.

Ray is imported when it was before, or when HAL_RAY_ADDRESS names a cluster, and never starts one.
"""

from __future__ import annotations

import logging
import math
import os
import re
import socket
import sys
from typing import Any, NamedTuple

from hal_core import API_VERSION, __version__, config
from hal_core.concurrency import start_thread, unless_of_a_signal
from hal_core.errors import DeviceFault, DeviceUnavailable, HalError, OutOfMemory

log = logging.getLogger("hal_core")


def _address(text: str) -> str:
    """Return the address of a cluster. Raises: ValueError for any other text."""
    # For `local` Ray would start a cluster, and for NAME:// import the module of that name.
    address = text.strip()
    found = re.fullmatch(r"(?:ray://)?(?:[\w.-]+|\[[\w:.%]+\]):(\d+)", address, re.ASCII)
    if address not in ("", "auto") and not (found and 0 < int(found[1][:6]) < 1 << 16):
        raise ValueError("expected HOST:PORT, ray://HOST:PORT or auto")
    return address


ADDRESS = config.declare(
    "HAL_RAY_ADDRESS",
    "",
    "the Ray cluster to connect to, HOST:PORT, ray://HOST:PORT or auto; whoever reaches that port "
    "runs code there",
    _address,
)
# Ray's own variable, which it takes in the place of auto.
_AUTO = config.Setting("RAY_ADDRESS", "", "the cluster that HAL_RAY_ADDRESS=auto names", _address)
SECONDS = config.declare(
    "HAL_RAY_SECONDS",
    30.0,
    "how long a cluster may take to answer, and a node to list or open a device",
    config.number(
        float, lambda seconds: 0 < seconds < math.inf, "a number of seconds, more than 0"
    ),
)
CORES = config.declare(
    "HAL_RAY_CPUS",
    0,
    "cores that a CPU device of a node reserves and uses; unset = all that Ray has on the node",
    config.number(int, lambda count: count > 0, "a number of cores, 1 or more"),
)
START = "Call ray.init(address=...), or set HAL_RAY_ADDRESS=HOST:PORT (auto: this machine's)."
REOPEN = "Close the device and open it again; hal.Device.refresh() looks which nodes there are."


def explain(
    error: BaseException, operation: str, device: str | None = None, lost: str = ""
) -> HalError:
    """Return the exception of hal-core for an error of Ray; `lost` says what is gone with it."""
    import ray

    known = ray.exceptions
    text = " ".join(str(error).split())
    for rest in (" Some common causes", " To see information"):  # advice for programs of Ray's own
        text = text.partition(rest)[0]
    if isinstance(error, (known.ObjectStoreFullError, known.OutOfDiskError)):
        fix = "Copy in parts, or give ray.init or `ray start` a larger object_store_memory."
        problem = f"the object store is full: {text}"
        return OutOfMemory(operation, problem, device=device, fix=fix)
    if isinstance(error, known.GetTimeoutError):
        fix = f"{SECONDS.name} sets the limit. `ray status` shows what the cluster does."
        problem, limit = "no answer in time", f"limit {SECONDS.read():g} seconds"
        return DeviceUnavailable(operation, problem, limit=limit, device=device, fix=fix)
    problem = f"{type(error).__name__}: {text}"
    return DeviceFault(operation, f"{lost}{problem}", device=device, fix=REOPEN)


class check:
    """`with check("copyin", name):` turns errors of Ray inside into exceptions of hal-core."""

    def __init__(self, operation: str, device: str | None = None) -> None:
        self._operation, self._device = operation, device

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            import ray

            if isinstance(error, ray.exceptions.RayError):
                raise explain(error, self._operation, self._device) from None


# -- the cluster


def connect() -> Any:
    """Return Ray's module, connected to a cluster. Raises: DeviceUnavailable."""
    loaded: Any = sys.modules.get("ray")
    if loaded is not None and loaded.is_initialized():
        return loaded
    address = ADDRESS.read()
    if address == "auto":
        address = _AUTO.read() or address
    if not address:
        problem = "this process is connected to no cluster"
        unconnected = DeviceUnavailable("list RAY", problem, fix=START)
        unconnected.lasting = False  # the next question may come after ray.init()
        raise unconnected
    try:
        import ray
    except ImportError as error:
        problem, fix = f"Ray cannot be loaded: {error}", "python -m pip install ray"
        raise DeviceUnavailable("list RAY", problem, fix=fix) from error
    _check_answers(address)
    failed: list[BaseException] = []

    def init() -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except BaseException as error:
            failed.append(error)

    # In a thread, as Ray knows no time limit for it.
    thread = start_thread("hal-ray init", init)
    thread.join(SECONDS.read())
    if thread.is_alive() or failed:
        problem = " ".join(str(failed[0]).split()) if failed else "no answer in time"
        raise _refused(address, problem)
    return ray


def _check_answers(address: str) -> None:
    """Refuse an address at which nothing listens: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:  # auto
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), SECONDS.read()).close()
    except unless_of_a_signal(OSError) as error:
        raise _refused(address, str(error)) from None


def _refused(address: str, problem: str) -> DeviceUnavailable:
    problem = problem.partition(" Please ")[0].rstrip(".")  # Ray's advice is on its own settings
    fix = (
        f"Look at {ADDRESS.name}, and with `ray status` at the cluster; hal.Device.refresh() tries "
        "again."
    )
    return DeviceUnavailable("connect", problem, got=address, fix=fix)


class Node(NamedTuple):
    """One machine of the cluster that is alive."""

    number: str  # Ray's name for it, unique
    name: str
    resources: dict[str, float]


def find_nodes(ray: Any) -> list[Node]:
    """Return the nodes that are alive, the head first, then by name."""
    found = []
    for facts in ray.nodes():
        if facts["Alive"]:
            name = facts.get("NodeName") or facts["NodeManagerHostname"]
            found.append(Node(facts["NodeID"], name, dict(facts["Resources"])))
    head = "node:__internal_head__"
    return sorted(found, key=lambda one: (head not in one.resources, one.name, one.number))


class Answers(NamedTuple):
    """The nodes' answers about their devices."""

    listings: list[tuple[Node, Any]]  # each with its `host.Listing`
    refused: dict[str, str]  # name of a node -> why it has no devices here


def ask_nodes(ray: Any) -> Answers:
    """Ask every node for its devices, within the time limit; one that fails stops no other."""
    from hal_ray.host import NodeLister

    nodes = {node.number: node for node in find_nodes(ray)}
    listings: list[tuple[Node, Any]] = []
    refused: dict[str, str] = {}
    actors = {number: _on_node(ray, NodeLister, number).remote() for number in nodes}
    asked = {actor.versions.remote(): number for number, actor in actors.items()}
    told = {actor.devices.remote(): number for number, actor in actors.items()}
    seconds = SECONDS.read()
    try:
        for ref, number in _each(ray, asked, seconds):
            problem = _problem(ray, ref, seconds, lambda versions: _difference(*versions))
            if problem:
                refused[nodes[number].name] = problem
        for ref, number in _each(ray, told, seconds):
            if nodes[number].name not in refused:
                try:
                    listings.append((nodes[number], ray.get(ref, timeout=0.1)))
                except ray.exceptions.RayError as error:
                    refused[nodes[number].name] = _sentence(error)
    finally:
        for actor in actors.values():
            ray.kill(actor)
    for name, why in refused.items():
        log.warning("RAY: the devices of node %s are left out: %s", name, why)
    return Answers(listings, refused)


def _on_node(ray: Any, kind: type, number: str, **needs: Any) -> Any:
    """Return the actor class of `kind`, to be started on one node and no other."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    place = NodeAffinitySchedulingStrategy(number, soft=False)
    # No events of tasks: our messages would push the program's own tasks out of Ray's list of them.
    options = {"num_cpus": 0, "num_gpus": 0, "max_restarts": 0, "enable_task_events": False}
    return ray.remote(kind).options(scheduling_strategy=place, **options | needs)


def _each(ray: Any, refs: dict[Any, str], seconds: float) -> list[tuple[Any, str]]:
    """Wait for all, at most the time limit, and return them in their order."""
    ray.wait(list(refs), num_returns=len(refs), timeout=seconds)
    return list(refs.items())


def _problem(ray: Any, ref: Any, seconds: float, judge: Any) -> str:
    try:
        return str(judge(ray.get(ref, timeout=0.1)))
    except ray.exceptions.GetTimeoutError:
        return f"no answer within {seconds:g} seconds ({SECONDS.name})"
    except ray.exceptions.RayError as error:
        return _sentence(error)


def _difference(version: str, api: tuple[int, int]) -> str:
    """Say how a node's hal-core differs from this process's; empty where it does not."""
    if (version, tuple(api)) == (__version__, tuple(API_VERSION)):
        return ""
    return (
        f"hal-core {version} (API {'.'.join(map(str, api))}) is there, and {__version__} "
        f"(API {'.'.join(map(str, API_VERSION))}) here: install one version on all nodes"
    )


def _sentence(error: BaseException) -> str:
    text = str(error)
    for line in reversed(text.splitlines()):
        if "ModuleNotFoundError" in line or "ImportError" in line:
            return f"{line.strip()}: install hal-ray and the node's plugins there"
    return " ".join(text.split())[:500]


# -- actors


def start_host(ray: Any, node: str, needs: dict[str, float]) -> Any:
    """Start the actor that has a device open, on a node, once it has what it needs there."""
    from hal_ray.host import DeviceHost

    return _on_node(ray, DeviceHost, node, **needs).remote()


def settings() -> dict[str, str]:
    """Return the settings of this process that count for its devices elsewhere."""
    return {name: os.environ[name] for name in ("HAL_CHECK",) if name in os.environ}
