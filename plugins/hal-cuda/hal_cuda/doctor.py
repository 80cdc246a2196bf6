"""What `hal doctor` says of CUDA beyond the devices: the driver and the compiler."""

from __future__ import annotations

from hal_core.errors import HalError
from hal_core.hookspecs import Check
from hal_cuda import driver, nvrtc


def checks(family: str) -> list[Check]:
    return [_driver(), _nvrtc()]


def _driver() -> Check:
    try:
        with driver.check("doctor", "CUDA"):
            version = ".".join(map(str, driver.api().version()))
    except HalError as error:
        said = " ".join(str(error.__context__ or "").split())  # what `hal doctor -v` shows
        return Check("driver", False, said or error.problem, error.fix or "")
    return Check("driver", True, f"CUDA {version}, through {driver.DRIVER.read()}")


def _nvrtc() -> Check:
    try:
        found = nvrtc.find()
    except HalError as error:
        hint = f"{error.fix}. Kernels of hal.kernel compile without it, through PTX."
        return Check("NVRTC", False, error.problem, hint)
    version = ".".join(map(str, found.version))
    return Check("NVRTC", True, f"{version} at {found.path}")
