"""The lines of `hal doctor` about OpenCL: which devices can compile."""

from __future__ import annotations

from hal_core.errors import HalError
from hal_core.hookspecs import Check
from hal_opencl.device import OpenCLDevice, enumerate_devices


def checks(family: str) -> list[Check]:
    """Check every device by opening it, which compiles an empty kernel."""
    found = []
    for info in enumerate_devices(family):
        title = f"{info.name} {info.title} ({info.vendor['platform']})"
        try:
            OpenCLDevice(info.name, info).close()
        except HalError as error:
            found.append(Check(title, False, error.problem, error.fix or ""))
        else:
            found.append(Check(title, True, f"compiles; {info.vendor['platform_version']}"))
    return found
