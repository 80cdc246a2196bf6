"""The lines of `hal doctor` about Metal: which GPUs can be opened."""

from __future__ import annotations

from hal_core.errors import HalError
from hal_core.hookspecs import Check
from hal_metal.device import MetalDevice, enumerate_devices


def checks(family: str) -> list[Check]:
    """Check every GPU by opening it."""
    found = []
    for info in enumerate_devices(family):
        title = f"{info.name} {info.title}"
        try:
            MetalDevice(info.name, info).close()
        except HalError as error:
            found.append(Check(title, False, error.problem, error.fix or ""))
        else:
            found.append(Check(title, True, f"{info.arch}, macOS {info.vendor['system']}"))
    return found
