"""The lines of `hal doctor` about CUDA: the driver and the compiler."""

from __future__ import annotations

from hal_core.errors import HalError
from hal_core.hookspecs import Check
from hal_cuda import driver, nvrtc


def checks(family: str) -> list[Check]:
    """Check the driver and NVRTC by loading them; no device is opened."""
    found = []
    newest = 1 << 30, 0  # without a driver nothing is too new
    try:
        with driver.check("doctor", family):
            newest = driver.api().version()
    except HalError as error:
        # The package's own words, which `hal doctor -v` shows.
        raw = " ".join(str(error.__context__ or "").split())
        found.append(Check("driver", False, raw or error.problem, error.fix or ""))
    else:
        version = ".".join(map(str, newest))
        found.append(Check("driver", True, f"CUDA {version}, through {driver.DRIVER.read()}"))
    try:
        library = nvrtc.find()
        library.check_driver(newest, "CUBIN")
    except HalError as error:
        fix = f"{error.fix}. Kernels of hal.kernel compile without it, through PTX."
        found.append(Check("NVRTC", False, error.problem, fix))
    else:
        version = ".".join(map(str, library.version))
        found.append(Check("NVRTC", True, f"{version} at {library.path}"))
    return found
