"""Images of an OpenCL device: how they are made, and copied to and from the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.dtypes import float16
from hal_core.errors import Unsupported
from hal_opencl import driver
from hal_opencl.driver import cl, inner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hal_core.allocator import Image
    from hal_opencl.device import OpenCLDevice

_ORDERS = {1: "R", 2: "RG", 4: "RGBA"}
_FLOATS = {"float16": "HALF_FLOAT", "float32": "FLOAT"}


def make(device: OpenCLDevice, image: Image, flags: int) -> cl.Image:
    """Make an image. Raises: Unsupported for a format that the device lacks; InvalidArgument."""
    axes = len(image.shape) - 1
    kind = getattr(cl.mem_object_type, f"IMAGE{axes}D")
    wanted = cl.ImageFormat(
        getattr(cl.channel_order, _ORDERS[image.channels]),
        getattr(cl.channel_type, _channel_type(image)),
    )
    known: Sequence[cl.ImageFormat] = ()
    if "images" in device.info.capabilities:
        known = cl.get_supported_image_formats(device.context, cl.mem_flags.READ_WRITE, kind)
    # PoCL 3.1 lists half floats of one channel, and kernels read other numbers from them.
    wrong = driver.is_pocl(device.hardware) and (image.channels, image.dtype) == (1, float16)
    if wanted not in known or wrong:
        why = "a format that the device lacks" if known else "a device without images"
        raise Unsupported(
            "allocate", f"BufferSpec(image=...) has {why}",
            got=f"{_ORDERS[image.channels]}, {_channel_type(image)}", device=device.name,
            fix="Try 4 channels; pyopencl.get_supported_image_formats lists what there is.",
        )  # fmt: skip
    facts = device.hardware
    cube = facts.image3d_max_width, facts.image3d_max_height, facts.image3d_max_depth
    limit = cube if axes == 3 else (facts.image2d_max_width, facts.image2d_max_height)
    size = image._size_within(limit, device.name)
    return cl.create_image(device.context, flags, wanted, shape=size)


def _channel_type(image: Image) -> str:
    dtype: Any = image.dtype
    if dtype.is_float:
        return _FLOATS[dtype.name]
    signed = dtype.kind == "i"
    if image.normalised:
        return f"{'SNORM' if signed else 'UNORM'}_INT{8 * dtype.itemsize}"
    return f"{'SIGNED' if signed else 'UNSIGNED'}_INT{8 * dtype.itemsize}"


def place_of(memory: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the first pixel of an image, and its width, height and depth: what copies take."""
    return (0, 0, 0), (memory.width, max(1, memory.height), max(1, memory.depth))


# The arguments are those of `driver.enqueue_write` and `enqueue_read`, and a list for the event.


def write(
    commands: cl.CommandQueue, dest: Any, src: memoryview, start: int = 0, after: Any = None,
    wait: bool = True, kept: list[cl.Event] | None = None,
) -> cl.Event:  # fmt: skip
    """Copy from the host to an image; return the event. Raises: cl.Error."""
    args = commands, dest, *place_of(dest), src, 0, 0, after, wait
    return driver.kept_event([] if kept is None else kept, inner._enqueue_write_image, args)


def read(
    commands: cl.CommandQueue, src: Any, dest: memoryview, start: int = 0, after: Any = None,
    wait: bool = True, kept: list[cl.Event] | None = None,
) -> cl.Event:  # fmt: skip
    """Copy from an image to the host; return the event. Raises: cl.Error."""
    args = commands, src, *place_of(src), dest, 0, 0, after, wait
    return driver.kept_event([] if kept is None else kept, inner._enqueue_read_image, args)
