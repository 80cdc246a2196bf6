"""OpenCL devices: their facts, contexts and queues."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from shutil import which
from typing import TYPE_CHECKING, Any

from hal_core.device.base import Compiled, DeviceInfo, Limits
from hal_core.errors import CompileError, CompilerUnavailable, DeviceUnavailable, InvalidArgument
from hal_core.source import Source
from hal_opencl import driver
from hal_opencl.clock import OpenCLClock
from hal_opencl.command_buffer import calls_of
from hal_opencl.compiler import OpenCLCompiler
from hal_opencl.driver import COMPLETE, cl
from hal_opencl.waiter import waiter

if TYPE_CHECKING:
    from hal_core.graph import Step
    from hal_core.queue import Queue
    from hal_opencl.graph import Replay
    from hal_opencl.queue import OpenCLQueue

_MAX_BLOCKS = 2**31 - 1
_INT64_ATOMICS = {"cl_khr_int64_base_atomics", "cl_khr_int64_extended_atomics"}
# A kernel of a name that no cache of PoCL knows.
_TRY = """
import os, sys
from hal_opencl.driver import cl, find_devices
context = cl.Context([find_devices()[int(sys.argv[1])]])
program = cl.Program(context, f"__kernel void try{os.getpid()}() {{}}").build()
(kernel,) = program.all_kernels()
cl.enqueue_nd_range_kernel(cl.CommandQueue(context), kernel, (1,), (1,)).wait()
"""
_SUBGROUPS = {"cl_khr_subgroups", "cl_khr_subgroup_shuffle", "cl_khr_subgroup_ballot"}


def enumerate_devices(family: str) -> list[DeviceInfo]:
    """Return the facts of every device, without a context. Raises: DeviceUnavailable."""
    found = driver.find_devices()
    return [describe(f"{family}:{n}" if n else family, one) for n, one in enumerate(found)]


def describe(name: str, facts: cl.Device) -> DeviceInfo:
    """Translate the platform's facts of one device."""
    platform = facts.platform
    extensions = frozenset(facts.extensions.split())
    capabilities = {"timing", "pinned"}
    if facts.double_fp_config:
        capabilities.add("fp64")
    if "cl_khr_fp16" in extensions:
        capabilities.add("fp16")
    if extensions >= _INT64_ATOMICS:
        capabilities.add("int64_atomics")
    if extensions >= _SUBGROUPS:
        capabilities.add("subgroups")
    if facts.image_support:
        capabilities.add("images")
    if calls_of(facts) is not None:
        capabilities.add("graphs")
    if "NVIDIA" in platform.name:  # whose binaries are PTX text
        capabilities.add("disassemble")
    sizes = driver.fact(facts, "warp_size_nv"), driver.fact(facts, "wavefront_width_amd")
    x, y, z = facts.max_work_item_sizes[:3]
    return DeviceInfo(
        name=name, kind=driver.kind_of(facts), title=facts.name.strip(),
        memory_nbytes=facts.global_mem_size, arch=" ".join(facts.version.split()[:2]),
        compute_units=facts.max_compute_units, host_visible=False,
        limits=Limits(
            max_block=(x, y, z),
            max_block_threads=facts.max_work_group_size,
            max_grid=(_MAX_BLOCKS, _MAX_BLOCKS, _MAX_BLOCKS),
            shared_nbytes=facts.local_mem_size,
            view_alignment=max(1, facts.mem_base_addr_align // 8),
            max_alloc_nbytes=facts.max_mem_alloc_size,
        ),
        capabilities=frozenset(capabilities),
        vendor={
            "platform": platform.name.strip(), "platform_version": platform.version.strip(),
            "vendor": facts.vendor.strip(), "version": facts.version.strip(),
            "driver_version": facts.driver_version.strip(), "extensions": extensions,
        },
        subgroup_size=sizes[0] or sizes[1],
        shared_banks=driver.fact(facts, "local_mem_banks_amd"),
        platform=platform.name.strip(),
    )  # fmt: skip


class OpenCLDevice(Compiled):
    """One device of one platform: a context, and one in-order queue with timestamps.

    Raises: DeviceUnavailable when the platform cannot compile. (PoCL from PyPI lists a device on
    any CPU and fails every build on recent ones: `unknown target CPU 'generic'`.)
    """

    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info)
        found = driver.find_devices()
        if self.index >= len(found):
            raise DeviceUnavailable(
                "open", "the device is no longer there", got=self.index, device=name
            )
        self.hardware = found[self.index]
        self.is_simulated = driver.is_simulator(self.hardware)
        self._try_linker()
        self.context, self.commands = driver.open_queue(self.hardware, name)
        # Seconds that a wait polls before it leaves the wait to another thread, for which it takes
        # about 20 us longer. On a CPU a thread that is awake takes a core from the work.
        self.awake = 50e-6 if info.kind == "cpu" else 100e-6
        # What was compiled last, for the load that follows: its binary, which is text, and itself.
        self.built: tuple[bytes, driver.Program] | None = None
        self.last_launched = ""  # a program's name, for the text of a fault
        self.last_event: cl.Event | None = None  # the event of the work that was queued last
        self.replays: list[tuple[cl.Event, Replay]] = []  # those that may still run
        try:
            self._try_compiler()
        except BaseException:
            self._close()
            raise

    def _synchronize(self, timeout: float | None) -> bool:
        try:
            if timeout is None:
                self.wait_for_last()
            # Not `finish`: it takes no timeout, and waits for what other threads add meanwhile.
            marker = cl.enqueue_marker(self.commands)
            self.commands.flush()
            done = self.wait_for(marker, math.inf if timeout is None else timeout)
            self.forget_replays()
            return done
        except cl.Error as error:
            raise driver.explain(error, "wait", self.name, self.last_launched) from None

    def _close(self) -> None:
        # PyOpenCL releases queue and context when nobody refers to them. Memory that is still in
        # use has its own reference to the context.
        self.last_event = self.built = None
        self.replays.clear()
        del self.commands, self.context

    def _make_queue(self) -> Queue:
        from hal_opencl.queue import OpenCLQueue
        from hal_opencl.simulator_queue import SimulatorQueue

        return SimulatorQueue(self) if self.is_simulated else OpenCLQueue(self)

    def _make_default_queue(self) -> OpenCLQueue:
        from hal_opencl.queue import OpenCLQueue

        return OpenCLQueue(self, self.commands, f"the default queue of {self.name}")

    def _wrap_queue(self, obj: object) -> OpenCLQueue | None:
        from hal_opencl.queue import OpenCLQueue

        if not isinstance(obj, cl.CommandQueue):
            return None
        if obj.context != self.context:
            raise InvalidArgument(
                "wrap", "the command queue belongs to another context", got=obj, device=self.name,
                fix="Make it in this device's context: pyopencl.CommandQueue(device.context).",
            )  # fmt: skip
        if obj.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            raise InvalidArgument(
                "wrap", "the command queue is out of order", got=obj, device=self.name,
                fix="Make it without OUT_OF_ORDER_EXEC_MODE_ENABLE.",
            )  # fmt: skip
        return OpenCLQueue(self, obj, f"a borrowed queue of {self.name}")

    def _make_clock(self) -> OpenCLClock:
        return OpenCLClock(self)

    @property
    def graph(self) -> Callable[[Any, list[Step]], Replay | None]:
        """The function that records a replay for the driver, where it has command buffers."""
        from hal_opencl.graph import native_replay

        return native_replay

    def wait_for(self, event: cl.Event, timeout: float = math.inf) -> bool:
        """Wait for a command; return False when the timeout passes.

        Ctrl-C ends the wait, not the command. (The driver's own waits are deaf to it, so another
        thread waits there.)
        Raises: cl.Error when the command failed.
        """

        def is_over() -> bool:
            return event.command_execution_status <= COMPLETE

        if not waiter.wait(event, is_over, timeout, self.awake):
            return False
        if self.last_event is event:
            self.last_event = None
        driver.raise_failure(event)
        return True

    def queued(self, enqueue: Callable[..., cl.Event], *args: Any) -> cl.Event:
        """Queue work without `queue=`; return its event. Raises: cl.Error."""
        try:
            self.last_event = event = enqueue(*args)
            self.commands.flush()
        except BaseException as error:
            self.interrupted(error)
            raise
        return event

    def interrupted(self, error: BaseException) -> None:
        """Note a call that Ctrl-C came into: the driver may have its work."""
        if not (isinstance(error, cl.Error) or self.closed):
            self.last_event = cl.enqueue_marker(self.commands)

    def wait_for_last(self) -> None:
        """Wait for the work that was queued last, so that the driver's next wait is short.

        Raises: cl.Error when the work failed.
        """
        event = self.last_event
        if event is not None:
            self.wait_for(event)

    def forget_replays(self) -> None:
        """Let go of the replays that are over. Another thread may add one meanwhile."""
        for one in [*self.replays]:
            if one[0].command_execution_status <= COMPLETE:
                with suppress(ValueError):  # another thread was faster
                    self.replays.remove(one)

    def __getattr__(self, name: str) -> Any:
        if name in ("context", "commands"):  # another thread closed the device after our check
            self._check_open(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _try_linker(self) -> None:
        """Raise DeviceUnavailable where PoCL finds no linker: it would end this process."""
        if not driver.is_pocl(self.hardware) or which("ld"):
            return
        # Other builds of PoCL bring a linker, so another process tries whether this one does.
        command = [sys.executable, "-c", _TRY, str(self.index)]
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
        said = tried.stderr.partition("\n")[0]
        if tried.returncode < 0:
            raise DeviceUnavailable(
                "open",
                f"PoCL finds no linker (ld), and ends the process: {said}",
                device=self.name,
                fix="apt-get install binutils, or put a folder that has an ld on PATH.",
            )

    def _try_compiler(self) -> None:
        # The result is kept in the compile cache: one small build for each driver version.
        text = "__kernel void hal_probe() {}\n"
        try:
            OpenCLCompiler(self).compile_or_reuse(Source("hal_probe", text, "", language="opencl"))
        except CompilerUnavailable:  # HAL_CACHE_ONLY=1: nothing will be compiled
            return
        except CompileError as error:
            platform = self.info.vendor
            raise DeviceUnavailable(
                "open",
                f"{platform['platform']} {platform['platform_version']} cannot compile an empty "
                f"kernel: {error.log.strip() or error.problem}",
                device=self.name,
                fix="Install another OpenCL platform: the vendor's driver, or pocl-opencl-icd.",
            ) from None
