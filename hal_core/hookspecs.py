"""What a plugin can do: the hook specifications, one group for each noun.

A plugin is a small instance with methods marked `@hookimpl` and two plain attributes:

* `hal_api = (1, 0)`: the version of this interface it was written for. Read before anything else.
* `rank` (optional): how its devices stand in the default order, by kind. Missing kinds count as
  in `RANKS`; `{"gpu": 200}` puts an OpenCL GPU behind a vendor's own, `{"cpu": 0}` makes a CPU
  the choice where there is nothing better.

It is named by an entry point of the group `hal.devices`, whose name is the family:
`CUDA = "hal_cuda:plugin"`. Importing the plugin loads no driver.

Provider hooks go to the plugin that owns the family, and to nobody else; extensions (group
`hal.extensions`) can wrap them. Observers go to the owner and to every extension; one that fails
is logged and stops nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pluggy

from hal_core.geometry import Limits

if TYPE_CHECKING:
    from hal_core.allocator import Allocator
    from hal_core.compiler import Binary, CompilerPair
    from hal_core.device import Compiled
    from hal_core.dtypes import DType
    from hal_core.program import Program

PROJECT = "hal"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

RANKS = {"gpu": 400, "accelerator": 100, "cpu": -1}  # device kind -> place in the default order

REQUIRED = ("hal_enumerate", "hal_open_device")  # of a plugin that owns a family
ADDED = ("hal_make_compilers", "hal_doctor")  # an extension may implement these beside the owner
OBSERVERS = ("hal_device_opened", "hal_compiled", "hal_device_closed")


CAPABILITIES = frozenset(
    {
        "fp16", "bf16", "fp64", "int64_atomics", "float_atomics", "timing", "graphs", "peer",
        "pinned", "images", "disassemble", "subprocess_fork",
    }
)  # fmt: skip


class DeviceInfo(NamedTuple):
    """Facts of one device, known without opening it."""

    name: str  # canonical: "CUDA:1"
    kind: str  # "gpu", "cpu" or "accelerator"
    title: str  # the vendor's name of the hardware
    memory_nbytes: int
    arch: str
    compute_units: int
    host_visible: bool  # buffers can be read in place by the host
    limits: Limits
    capabilities: frozenset[str] = frozenset()  # a subset of CAPABILITIES
    vendor: Mapping[str, Any] = {}  # raw properties, as the driver spells them


class Check(NamedTuple):
    """One line of `hal doctor`."""

    title: str
    ok: bool
    detail: str = ""
    hint: str = ""  # what to do when it is not ok


class Foreign(NamedTuple):
    """Memory that somebody else allocated on a device."""

    pointer: int  # as BufferSpec(external_ptr=...) takes it
    size: int  # elements
    dtype: DType
    owner: object  # keeps the memory as long as it lives


# -- Device


@hookspec(firstresult=True)
def hal_enumerate(family: str) -> Sequence[DeviceInfo]:
    """Every device of the family, in a stable order, without opening a context.

    The name of device 0 is the family (`CUDA`), of device 1 `CUDA:1`. Kept until
    `Device.refresh()`. An empty list is the normal answer of a machine without the hardware.

    Raises: DeviceUnavailable(why) when the driver is missing or refuses.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def hal_open_device(family: str, index: int, info: DeviceInfo) -> Compiled:
    """Open one device; `info` is what `hal_enumerate` gave for it.

    Order: called once for a device until it is closed; different devices may open in parallel.
    Raises: DeviceUnavailable when it is busy or refused: the next use tries again. What was made
    until then is undone.
    """
    raise NotImplementedError


# -- Allocator


@hookspec(firstresult=True)
def hal_make_allocator(device: Compiled) -> Allocator[Any]:
    """The device's allocator, made at the first use and closed by the device."""
    raise NotImplementedError


# -- Buffer


@hookspec(firstresult=True)
def hal_import_buffer(device: Compiled, obj: object) -> Foreign | None:
    """The memory of a vendor package's own array, for `Buffer.wrap`; None for an object that is
    not understood."""
    raise NotImplementedError


# -- Compiler


@hookspec(firstresult=True)
def hal_make_compilers(device: Compiled) -> Sequence[CompilerPair]:
    """The ways to compile for the device, best first; nothing of a pair is made yet.

    Extensions add theirs behind the owner's.
    """
    raise NotImplementedError


# -- Program


@hookspec(firstresult=True)
def hal_make_program(device: Compiled, binary: Binary) -> Program:
    """Load a binary. Raises: CompileError when it is not one of this device."""
    raise NotImplementedError


# -- observers


@hookspec
def hal_device_opened(device: Compiled) -> None:
    """The device is ready."""


@hookspec
def hal_compiled(device: Compiled, program: Program, cached: bool) -> None:
    """A kernel became a program; `cached`: its binary came from the compile cache."""


@hookspec
def hal_device_closed(device: Compiled) -> None:
    """The device is closed; its name and info can still be read."""


# -- diagnosis


@hookspec(firstresult=True)
def hal_doctor(family: str) -> Sequence[Check]:
    """What `hal doctor` shows beyond the devices: driver, versions, permissions."""
    raise NotImplementedError
