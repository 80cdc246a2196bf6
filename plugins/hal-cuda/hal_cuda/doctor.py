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
        # Nothing is wrong where it is missing: only kernels in CUDA C++ need it.
        detail = f"{error.problem}: kernels of hal.kernel compile through PTX, without it"
        found.append(Check("NVRTC", error.problem == nvrtc.MISSING, detail, error.fix or ""))
    else:
        version = ".".join(map(str, library.version))
        found.append(Check("NVRTC", True, f"{version} at {library.path}"))
    return found
