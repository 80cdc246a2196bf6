"""The hook specifications, and the records that cross them.

A plugin is a small instance with methods marked `@hookimpl` and two plain attributes:

* `hal_api = (1, 0)`: the version of this interface it was written for. Read before anything else.
* `rank` (optional): the place of its devices in the default order, by kind; the highest is first.
  Missing kinds count as in `RANKS`; `{"gpu": 200}` puts an OpenCL GPU after a vendor's own,
  `{"cpu": 0}` makes a CPU the choice where there is nothing better.

It is named by an entry point of the group `hal.devices`, whose name is the family:
`CUDA = "hal_cuda:plugin"`. Importing the plugin loads no driver.

Provider hooks go to the plugin that owns the family, and to no other; extensions (group
`hal.extensions`) can wrap them. Observers go to the owner and to every extension; one that fails
is logged and stops no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pluggy

from hal_core.geometry import Limits

if TYPE_CHECKING:
    from hal_core.allocator import Allocator
    from hal_core.compiler import CompilerPair
    from hal_core.device.base import Compiled
    from hal_core.dtypes import DType
    from hal_core.program import Program
    from hal_core.source import Binary

PROJECT = "hal"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

# Device kind -> place in the default order
RANKS = {"gpu": 400, "accelerator": 100, "cpu": -1, "interpreter": -2}

REQUIRED = ("hal_enumerate", "hal_open_device")  # of a plugin that owns a family
ADDED = ("hal_make_compilers", "hal_doctor")  # an extension may implement these too
OBSERVERS = ("hal_device_opened", "hal_compiled", "hal_device_closed")

# Capability -> what a device has that declares it.
MEANINGS = {
    "fp16": "float16 values of a hal.Source kernel; float16 buffers work without it",
    "bf16": "bfloat16 values of a hal.Source kernel; bfloat16 buffers work without it",
    "fp64": "kernels that compute with float64",
    "int64_atomics": "atomic operations on 64 bits",
    "float_atomics": "atomic addition of floats in its language; hal.atomic_add works without it",
    "subgroups": "subgroups: hal.shuffle, hal.ballot, hal.subgroup_sum",
    "timing": "times measured by the device, for wait=True and profiles",
    "graphs": "graphs of its driver; hal.Graph works without it",
    "peer": "copies to its neighbours that do not go through the host",
    "pinned": "pinned memory of the host, BufferSpec(host=True)",
    "images": "images, BufferSpec(image=hal.Image(...)), in kernels that are text",
    "disassemble": "machine code shown as text",
    "subprocess_fork": "use in a forked child of a process that has used it",
}
CAPABILITIES = frozenset(MEANINGS)


class DeviceInfo(NamedTuple):
    """Facts of one device, known without opening it."""

    name: str  # canonical: "CUDA:1"
    kind: str  # "gpu", "cpu" or "accelerator"; "interpreter": no hardware of its own, and slow
    title: str  # the vendor's name of the hardware
    memory_nbytes: int
    arch: str
    compute_units: int
    host_visible: bool  # buffers can be read in place by the host
    limits: Limits
    capabilities: frozenset[str] = frozenset()  # a subset of CAPABILITIES
    vendor: Mapping[str, Any] = {}  # raw properties, as the driver spells them
    subgroup_size: int | None = None  # threads; None where it is unknown, or differs by kernel
    shared_banks: int | None = None  # of shared memory; None where it is unknown, or has none
    platform: str | None = None  # of a family with several drivers, the one that serves it


class Check(NamedTuple):
    """One line of `hal doctor`."""

    title: str
    ok: bool
    detail: str = ""
    hint: str = ""  # what to do when it is not ok


class Foreign(NamedTuple):
    """Memory on a device that another library allocated."""

    pointer: int  # as BufferSpec(external_ptr=...) takes it
    size: int  # elements
    dtype: DType
    owner: object  # keeps the memory as long as it lives


# -- provider hooks


@hookspec(firstresult=True)
def hal_enumerate(family: str) -> Sequence[DeviceInfo]:
    """List every device of the family, in a stable order, without opening a context.

    The name of device 0 is the family (`CUDA`), of device 1 `CUDA:1`. Asked once until
    `Device.refresh()`. An empty list is the normal answer of a machine without the hardware.

    Raises: DeviceUnavailable(why) when the driver is missing or refuses; with `lasting = False` on
    the exception the hook is called again when somebody next asks.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def hal_open_device(family: str, index: int, info: DeviceInfo) -> Compiled:
    """Open one device; `info` is what `hal_enumerate` gave for it.

    Order: called once for a device until it is closed; different devices may open in parallel.
    Raises: DeviceUnavailable when it is busy or refused, after undoing all that was made; the
    next use tries again.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def hal_make_allocator(device: Compiled) -> Allocator[Any]:
    """Make the device's allocator, at its first use; the device closes it."""
    raise NotImplementedError


@hookspec(firstresult=True)
def hal_import_buffer(device: Compiled, obj: object) -> Foreign | None:
    """Describe the memory of a vendor package's own array, for `Buffer.wrap`; None for an object
    of another kind."""
    raise NotImplementedError


@hookspec(firstresult=True)
def hal_make_compilers(device: Compiled) -> Sequence[CompilerPair]:
    """List the compilers that can serve the device, best first; none is made yet.

    Those of extensions come after the owner's.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def hal_make_program(device: Compiled, binary: Binary) -> Program:
    """Load a binary. Raises: CompileError when it is not one of this device."""
    raise NotImplementedError


@hookspec(firstresult=True)
def hal_doctor(family: str) -> Sequence[Check]:
    """Check what the devices need: driver, versions, permissions; shown by `hal doctor`."""
    raise NotImplementedError


# -- observers


@hookspec
def hal_device_opened(device: Compiled) -> None:
    """Hear of a device that is ready."""


@hookspec
def hal_compiled(device: Compiled, program: Program, cached: bool) -> None:
    """Hear of a kernel that became a program; `cached`: its binary was in the compile cache."""


@hookspec
def hal_device_closed(device: Compiled) -> None:
    """Hear of a device that is closed; its name and info can still be read."""
