"""Images of an OpenCL device: how they are made, and copied to and from the host."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from hal_core.dtypes import float16
from hal_core.errors import InvalidArgument, Unsupported
from hal_core.signature import POINTER
from hal_opencl import driver
from hal_opencl.driver import cl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hal_core.allocator import Image
    from hal_core.signature import Signature
    from hal_opencl.device import OpenCLDevice

_ORDERS = {1: "R", 2: "RG", 4: "RGBA"}
_FLOATS = {"float16": "HALF_FLOAT", "float32": "FLOAT"}


def make(device: OpenCLDevice, image: Image, flags: int) -> cl.Image:
    """Make an image. Raises: Unsupported for a format that the device lacks; InvalidArgument."""
    size = image.shape[-2::-1]  # width first
    kind = getattr(cl.mem_object_type, f"IMAGE{len(size)}D")
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
    limit = cube if len(size) == 3 else (facts.image2d_max_width, facts.image2d_max_height)
    if any(one > most for one, most in zip(size, limit, strict=False)):
        raise InvalidArgument(
            "allocate", f"BufferSpec(image=...) is larger than images of {len(size)} axes may be",
            got=size, limit=limit[: len(size)], device=device.name,
            fix="Split it, or use a buffer.",
        )  # fmt: skip
    return cl.create_image(device.context, flags, wanted, shape=size)


def _channel_type(image: Image) -> str:
    dtype: Any = image.dtype
    if dtype.is_float:
        return _FLOATS[dtype.name]
    signed = dtype.kind == "i"
    if image.normalised:
        return f"{'SNORM' if signed else 'UNORM'}_INT{8 * dtype.itemsize}"
    return f"{'SIGNED' if signed else 'UNSIGNED'}_INT{8 * dtype.itemsize}"


def check_distinct(signature: Signature, device: str, *given: object) -> None:
    """Refuse one image as two arguments of which one is written. Raises: InvalidArgument."""
    params = [one for one in signature.pointers if one.dtype.kind == "I"]
    for (first, image), (second, other) in combinations(zip(params, given, strict=True), 2):
        if image is other and POINTER in (first.kind, second.kind):
            problem = f"{first.name!r} and {second.name!r} are one image, and it is written"
            fix = "Write into another image."
            raise InvalidArgument(f"launch {signature.name}", problem, device=device, fix=fix)


def place_of(memory: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the first pixel of an image, and its width, height and depth: what copies take."""
    return (0, 0, 0), (memory.width, max(1, memory.height), max(1, memory.depth))
