"""The lines of `hal doctor` about the cluster: a line for each node, and what is missing there."""

from __future__ import annotations

from hal_core.errors import HalError
from hal_core.hookspecs import Check
from hal_ray import driver


def checks(family: str) -> list[Check]:
    """Ask every node for its devices."""
    try:
        ray = driver.connect()
        answers = driver.ask_nodes(ray)
    except HalError as error:
        return [Check("cluster", False, error.problem, error.fix or "")]
    address = ray.get_runtime_context().gcs_address
    found = [Check("cluster", True, f"Ray {ray.__version__} at {address}")]
    for node, listing in answers.listings:
        names = ", ".join(info.name for _, info in listing.devices)
        missing = " ".join(f"{name}: {why}" for name, why in listing.missing.items())
        found.append(Check(f"node {node.name}", bool(names), names or "no device", missing))
    for name, why in answers.refused.items():
        found.append(Check(f"node {name}", False, why, "Install one version on all nodes."))
    return found
