"""Images of a Metal device: how they are made, and which of them a kernel's texture takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.errors import InvalidArgument
from hal_metal import driver
from hal_metal.transfers import Texture

if TYPE_CHECKING:
    from hal_core.allocator import Image
    from hal_metal.device import MetalDevice

_ORDERS = {1: "R", 2: "RG", 4: "RGBA"}
# The largest size of each axis, by the number of axes. Source: Metal's feature set tables, from
# Apple7 and Mac2 on; no message asks for them.
_LONGEST = {1: 16384, 2: 16384, 3: 2048}


def make(device: MetalDevice, image: Image) -> Texture:
    """Make an image. Raises: InvalidArgument for one that is too large; Refused."""
    size = image.shape[-2::-1]  # width first
    longest = _LONGEST[len(size)]
    if max(size) > longest:
        raise InvalidArgument(
            "allocate", f"BufferSpec(image=...) is larger than images of {len(size)} axes may be",
            got=size, limit=(longest,) * len(size), device=device.name,
            fix="Split it, or use a buffer.",
        )  # fmt: skip
    return Texture(driver.new_texture(device.hardware, size, format_of(image)), image)


def format_of(image: Image) -> str:
    """Return how Metal's constants call a format: RGBA8Unorm."""
    dtype: Any = image.dtype
    if dtype.is_float:
        kind = "Float"
    elif image.normalised:
        kind = "Snorm" if dtype.kind == "i" else "Unorm"
    else:
        kind = "Sint" if dtype.kind == "i" else "Uint"
    return f"{_ORDERS[image.channels]}{8 * dtype.itemsize}{kind}"
