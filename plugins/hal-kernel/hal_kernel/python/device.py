"""The facts of the interpreter as a device, and the class of the open one."""

from __future__ import annotations

import os
import platform
import sys
from threading import TIMEOUT_MAX
from time import monotonic
from typing import TYPE_CHECKING, Any

from hal_core import concurrency, config
from hal_core.device.base import Compiled, DeviceInfo, Limits

if TYPE_CHECKING:
    from hal_core.geometry import Dim3
    from hal_kernel.interpreter.prepared import PreparedKernel

SECONDS = config.declare(
    "HAL_PYTHON_SECONDS",
    60.0,
    "how long the loops of a launch on PYTHON may take",
    config.number(float, lambda seconds: 0 < seconds < float("inf"), "seconds, more than 0"),
)
CAPABILITIES = frozenset(
    {
        "fp16", "bf16", "fp64", "int64_atomics", "float_atomics", "subgroups", "timing",
        "pinned", "disassemble", "subprocess_fork",
    }
)  # fmt: skip
_NO_LIMIT = 1 << 62  # of loop iterations: only their time is limited


def describe(name: str) -> DeviceInfo:
    """Return the facts of the interpreter in this process. Its limits are those of hal-cpu."""
    memory = 0  # unknown: Windows has no sysconf
    if sys.platform != "win32":
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = Limits(
        max_block=(1024,) * 3,
        max_block_threads=1024,
        max_grid=(2**31 - 1,) * 3,
        shared_nbytes=64 << 10,
        view_alignment=1,
        max_alloc_nbytes=memory,
    )
    return DeviceInfo(
        name=name, kind="interpreter",
        title=f"hal-core's reference interpreter, in Python {platform.python_version()}",
        memory_nbytes=memory, arch="uops", compute_units=1, host_visible=True, limits=limits,
        capabilities=CAPABILITIES, subgroup_size=1,
    )  # fmt: skip


class PythonDevice(Compiled):
    """The reference interpreter as a device.

    Order: work is done when its call returns. Launches and copies of several threads wait for each
    other, so that each sees the whole of the ones before it.
    """

    def __init__(self, name: str, info: DeviceInfo) -> None:
        self.turn = concurrency.fork_safe_lock()  # held by the launch or copy that is under way
        self.seconds = SECONDS.read()
        super().__init__(name, info)

    def _synchronize(self, timeout: float | None) -> bool:
        seconds = -1 if timeout is None else min(timeout, TIMEOUT_MAX)
        # In one step: behind a call of `acquire` Ctrl-C may come, and the turn would never end.
        (taken,) = map(self.turn.acquire, [True], [seconds])
        if taken:
            self.turn.release()
        return taken

    def _is_in_call(self) -> bool:
        return bool(self.turn._is_owned())  # type: ignore[attr-defined]

    def interpret(
        self, kernel: PreparedKernel, geometry: tuple[Dim3, Dim3], args: tuple[Any, ...]
    ) -> None:
        """Run one launch; `args` are opaques and numbers. Raises: KernelFault."""
        from hal_kernel.interpreter import execute
        from hal_kernel.interpreter.executor import LoopLimits
        from hal_kernel.python.program import inputs_of

        with self.turn:
            until = monotonic() + self.seconds
            limits = LoopLimits(_NO_LIMIT, until, self.seconds, f"allow more with {SECONDS.name}")
            execute(kernel, inputs_of(kernel, args), geometry, limits)
