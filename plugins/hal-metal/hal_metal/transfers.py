"""Copies and fills on the device, of any offset and size, as commands of a command buffer.

Metal's blits take offsets and sizes that are multiples of 4. Others are done by two small kernels,
and ranges that overlap by way of memory between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_metal import driver
from hal_metal.allocator import Part, blit_copies, blit_fills

if TYPE_CHECKING:
    from hal_metal.device import MetalDevice

_BLOCK = 256
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


def copy(device: MetalDevice, commands: Any, dest: Part, src: Part, nbytes: int) -> None:
    """Add a copy; the ranges may overlap. Raises: Refused."""
    if dest.buffer is src.buffer and abs(dest.offset - src.offset) < nbytes:
        middle = between(device, nbytes)
        copy(device, commands, middle, src, nbytes)
        src = middle
    if blit_copies(dest, src, nbytes):
        driver.copy_between(commands, dest.buffer, dest.offset, src.buffer, src.offset, nbytes)
        return
    numbers = nbytes.to_bytes(8, "little")
    places = [(dest.buffer, dest.offset), (src.buffer, src.offset)]
    driver.run_kernel(commands, _kernel(device, "hal_copy_bytes"), places, [numbers],
                      -(-nbytes // _BLOCK), _BLOCK)  # fmt: skip


def fill(device: MetalDevice, commands: Any, dest: Part, nbytes: int, pattern: bytes) -> None:
    """Add a fill. Raises: Refused."""
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
