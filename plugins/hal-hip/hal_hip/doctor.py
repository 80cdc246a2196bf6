"""The lines of `hal doctor` about HIP: the runtime and the compiler."""

from __future__ import annotations

from collections.abc import Callable

from hal_core.errors import HalError
from hal_core.hookspecs import Check
from hal_hip import driver, hiprtc


def checks(family: str) -> list[Check]:
    """Check the runtime and hiprtc by loading them; no device is opened."""
    asked: dict[str, Callable[[], str]] = {
        "runtime": lambda: "HIP {}.{}.{}".format(*driver.api().version()),
        "hiprtc": lambda: "{1} at {0}".format(*hiprtc.find()),
    }
    found = []
    for title, ask in asked.items():
        try:
            with driver.check("doctor", family):
                found.append(Check(title, True, ask()))
        except HalError as error:
            found.append(Check(title, False, error.problem, error.fix or ""))
    return found
