"""Copies and fills on the device, of any offset and size, as commands of a command buffer.

Metal's blits take offsets and sizes that are multiples of 4. Others are done by two small kernels,
and ranges that overlap by way of memory between them, as are two images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_metal import driver

if TYPE_CHECKING:
    from hal_core.allocator import Image
    from hal_metal.device import MetalDevice

_BLOCK = 256
# Bytes that a place in a buffer is a multiple of, where pixels are copied to or from it.
# Source: Metal's feature set tables, "buffer alignment for copying an existing texture to a
# buffer": 16 for Apple's families, 256 for Mac's.
_PIXELS_ALIGNMENT = 256
_KERNELS = """\
#include <metal_stdlib>
using namespace metal;

kernel void hal_copy_bytes(
    device uchar *dest [[buffer(0)]], const device uchar *src [[buffer(1)]],
    constant ulong &count [[buffer(2)]], uint3 at [[threadgroup_position_in_grid]],
    uint3 inside [[thread_position_in_threadgroup]])
{
    ulong i = (ulong)at.x * 256 + inside.x;
    if (i < count) dest[i] = src[i];
}

kernel void hal_fill_bytes(
    device uchar *dest [[buffer(0)]], constant uchar *pattern [[buffer(1)]],
    constant ulong2 &sizes [[buffer(2)]], uint3 at [[threadgroup_position_in_grid]],
    uint3 inside [[thread_position_in_threadgroup]])
{
    ulong i = (ulong)at.x * 256 + inside.x;
    if (i < sizes.x) dest[i] = pattern[i % sizes.y];
}
"""


class Part:
    """An opaque: a part of an MTLBuffer. Two are equal only if they are one object.

    (To hash or compare an MTLBuffer sends a message.)
    """

    __slots__ = ("buffer", "host", "offset")

    def __init__(self, buffer: Any, offset: int, host: memoryview) -> None:
        self.buffer = buffer
        self.offset = offset
        self.host = host  # bytes from the offset on, as the host sees them


class Texture:
    """An opaque: an image in memory that the host does not see."""

    __slots__ = ("format", "image", "texture")

    def __init__(self, texture: Any, image: Image, format: str) -> None:
        self.texture, self.image = texture, image
        self.format = format  # RGBA8Unorm


def blit_copies(dest: Part, src: Part, nbytes: int) -> bool:
    """Tell whether Metal's blit does this copy: not between elements, and no overlap."""
    apart = dest.buffer is not src.buffer or abs(dest.offset - src.offset) >= nbytes
    return apart and not (dest.offset | src.offset | nbytes) & 3


def blit_fills(dest: Part, nbytes: int, pattern: bytes) -> bool:
    """Tell whether Metal's blit does this fill, which repeats one byte."""
    return not (dest.offset | nbytes) & 3 and pattern == pattern[:1] * len(pattern)


def copy(
    device: MetalDevice, commands: Any, dest: Part | Texture, src: Part | Texture, nbytes: int
) -> None:
    """Add a copy; the ranges may overlap. Raises: Refused."""
    if isinstance(dest, Texture):
        if isinstance(src, Texture) or src.offset % _PIXELS_ALIGNMENT:
            src = _copied(device, commands, src, nbytes)
        driver.copy_pixels(commands, dest.texture, dest.image, src.buffer, src.offset, True)
        return
    if isinstance(src, Texture):
        if not dest.offset % _PIXELS_ALIGNMENT:
            driver.copy_pixels(commands, src.texture, src.image, dest.buffer, dest.offset, False)
            return
        src = _copied(device, commands, src, nbytes)
    if dest.buffer is src.buffer and abs(dest.offset - src.offset) < nbytes:
        src = _copied(device, commands, src, nbytes)
    if blit_copies(dest, src, nbytes):
        driver.copy_between(commands, dest.buffer, dest.offset, src.buffer, src.offset, nbytes)
        return
    numbers = nbytes.to_bytes(8, "little")
    places = [(dest.buffer, dest.offset), (src.buffer, src.offset)]
    driver.run_kernel(commands, _kernel(device, "hal_copy_bytes"), places, [numbers],
                      -(-nbytes // _BLOCK), _BLOCK)  # fmt: skip


def _copied(device: MetalDevice, commands: Any, src: Part | Texture, nbytes: int) -> Part:
    """Add a copy into new memory, and return that. Raises: Refused."""
    made = between(device, nbytes)
    copy(device, commands, made, src, nbytes)
    return made


def fill(
    device: MetalDevice, commands: Any, dest: Part | Texture, nbytes: int, pattern: bytes
) -> None:
    """Add a fill. Raises: Refused."""
    if isinstance(dest, Texture):
        middle = between(device, nbytes)
        fill(device, commands, middle, nbytes, pattern)
        copy(device, commands, dest, middle, nbytes)
        return
    if blit_fills(dest, nbytes, pattern):
        driver.fill_range(commands, dest.buffer, dest.offset, nbytes, pattern[0])
        return
    sizes = nbytes.to_bytes(8, "little") + len(pattern).to_bytes(8, "little")
    driver.run_kernel(commands, _kernel(device, "hal_fill_bytes"), [(dest.buffer, dest.offset)],
                      [pattern, sizes], -(-nbytes // _BLOCK), _BLOCK)  # fmt: skip


def staged(device: MetalDevice, data: memoryview) -> Part:
    """Return new memory with these bytes. Raises: Refused."""
    made = between(device, data.nbytes)
    made.host[:] = data
    return made


def between(device: MetalDevice, nbytes: int) -> Part:
    """Return new memory. Raises: Refused."""
    buffer, host = driver.allocate(device.hardware, nbytes)
    return Part(buffer, 0, host)


def _kernel(device: MetalDevice, name: str) -> Any:
    found = device.transfer_kernels.get(name)
    if found is None:
        library = driver.build(device.hardware, _KERNELS, "3_0")
        found = driver.pipeline_of(device.hardware, library, name).state
        device.transfer_kernels[name] = found
    return found
