"""The lines of `hal doctor` about HIP: the runtime and the compiler."""

from __future__ import annotations

from hal_core.errors import HalError
from hal_core.hookspecs import Check
from hal_hip import driver, hiprtc


def checks(family: str) -> list[Check]:
    """Check the runtime and hiprtc by loading them; no device is opened."""
    found = []
    try:
        with driver.check("doctor", family):
            version = ".".join(map(str, driver.api().version()))
    except HalError as error:
        found.append(Check("runtime", False, error.problem, error.fix or ""))
    else:
        found.append(Check("runtime", True, f"HIP {version}"))
    try:
        compiler = hiprtc.find()
    except HalError as error:
        found.append(Check("hiprtc", False, error.problem, error.fix or ""))
    else:
        found.append(Check("hiprtc", True, f"{compiler.version} at {compiler.path}"))
    return found
