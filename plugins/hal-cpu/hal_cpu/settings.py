"""The environment variables of hal-cpu."""

from __future__ import annotations

import math

from hal_core import config
from hal_cpu import processor

_MAX_DEVICES = 64

THREADS = config.declare(
    "HAL_CPU_THREADS",
    0,
    "threads that share a large launch; unset = usable cores",
    config.number(int, lambda count: count > 0, "a number of threads, 1 or more"),
)
DEVICES = config.declare(
    "HAL_CPU_DEVICES",
    1,
    "number of devices CPU, CPU:1, ... that share the cores of the processor",
    config.number(int, lambda count: 0 < count <= _MAX_DEVICES, "a number of devices, 1 to 64"),
)
CHECK_SECONDS = config.declare(
    "HAL_CPU_CHECK_SECONDS",
    60.0,
    "how long a launch in checked mode may take",
    config.number(
        float, lambda seconds: 0 < seconds < math.inf, "a number of seconds, more than 0"
    ),
)
CHECK_SEED = config.declare(
    "HAL_CPU_CHECK_SEED",
    0,
    "another order of threads in checked mode; 0 = by their index",
    config.number(int, lambda seed: seed >= 0, "a whole number, 0 or more"),
)
_LOADERS = ("elf", "llvmlite") if processor.is_linux() else ("llvmlite",)  # the default is first


def _loader(text: str) -> str:
    if text not in _LOADERS:
        raise ValueError(f"expected {' or '.join(_LOADERS)} on {processor.system()}")
    return text


LOADER = config.declare(
    "HAL_CPU_LOADER",
    _LOADERS[0],
    "what puts machine code into memory: elf (Linux only) or llvmlite",
    _loader,
)
