"""Images of a Metal device: how they are made, and which of them a kernel's texture takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.errors import CompileError
from hal_core.signature import CONST_POINTER
from hal_metal import driver
from hal_metal.transfers import Texture

if TYPE_CHECKING:
    from hal_core.allocator import Image
    from hal_core.signature import Param
    from hal_metal.device import MetalDevice
    from hal_metal.driver import TextureBinding

_ORDERS = {1: "R", 2: "RG", 4: "RGBA"}
_CHANNELS = {
    "float": ("8Unorm", "8Snorm", "16Unorm", "16Snorm", "16Float", "32Float"),
    "int": ("8Sint", "16Sint", "32Sint"),
    "uint": ("8Uint", "16Uint", "32Uint"),
}
# By the tier of the GPU, the formats of textures with access::read_write.
# Source: MTLReadWriteTextureTier1 and MTLReadWriteTextureTier2.
_FEW = frozenset({"R32Float", "R32Sint", "R32Uint"})
_READ_AND_WRITTEN = {
    0: frozenset[str](),
    1: _FEW,
    2: _FEW | {
        order + one
        for order in ("R", "RGBA")
        for one in ("8Unorm", "16Float", "32Float", *_CHANNELS["int"], *_CHANNELS["uint"])
    },
}  # fmt: skip
# The largest size of each axis, by the number of axes. Source: Metal's feature set tables, from
# Apple7 and Mac2 on; no message asks for them.
_LONGEST = {1: 16384, 2: 16384, 3: 2048}


def make(device: MetalDevice, image: Image) -> Texture:
    """Make an image. Raises: InvalidArgument for one that is too large; Refused."""
    axes = len(image.shape) - 1
    size = image._size_within((_LONGEST[axes],) * axes, device.name)
    dtype: Any = image.dtype
    if dtype.is_float:
        kind = "Float"
    elif image.normalised:
        kind = "Snorm" if dtype.kind == "i" else "Unorm"
    else:
        kind = "Sint" if dtype.kind == "i" else "Uint"
    format = f"{_ORDERS[image.channels]}{8 * dtype.itemsize}{kind}"
    return Texture(driver.new_texture(device.hardware, size, format), image, format)


def formats_taken(
    device: MetalDevice, param: Param, bound: TextureBinding, operation: str
) -> frozenset[str]:
    """Return the formats of images that a kernel's texture takes.

    Raises: CompileError for a texture that the signature calls otherwise.
    """
    reads = param.kind == CONST_POINTER
    if param.dtype.name != f"image{bound.axes}d" or reads != (bound.access == "read"):
        raise CompileError(
            operation, f"argument {param.position} of the kernel is {bound}, its signature says "
            f"{param}", device=device.name,
            fix="Write the signature as the kernel declares it, images in the order of their "
            "[[texture(n)]].",
        )  # fmt: skip
    kind = {"half": "float", "short": "int", "ushort": "uint"}.get(bound.type, bound.type)
    found = frozenset(order + one for order in _ORDERS.values() for one in _CHANNELS[kind])
    if bound.access == "read_write":
        found &= _READ_AND_WRITTEN[driver.read_write_tier(device.hardware)]
    return found
