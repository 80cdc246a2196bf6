"""Write and read all bytes of a buffer, with as little of the API under test as possible."""

from __future__ import annotations

import random

import hal_core as hal

# Bytes. Some are next to a power of two, where blocks, pages and words end.
SIZES = (1, 3, 4, 15, 16, 255, 256, 257, 4095, 4096, 65537, 1 << 20)


def pattern(nbytes: int, seed: int = 1) -> bytes:
    """Return bytes without a visible pattern; the same seed gives the same bytes."""
    return random.Random(seed).randbytes(nbytes)


def read(buffer: hal.Buffer) -> bytes:
    """Return all bytes of a buffer; fail if `copyout` leaves one of them out."""
    # Two markers: a byte that copyout leaves out differs between the two reads.
    first, second = bytearray(b"\x5a" * buffer.nbytes), bytearray(b"\xa5" * buffer.nbytes)
    buffer.copyout(first)
    buffer.copyout(second)
    assert first == second, "two reads of one buffer differ: copyout leaves bytes alone"
    return bytes(first)


def buffer_of(
    device: hal.Compiled, data: bytes, dtype: hal.DType = hal.uint8,
    spec: hal.BufferSpec | None = None,
) -> hal.Buffer:  # fmt: skip
    """Return an allocated buffer with these bytes."""
    made = hal.Buffer(device, len(data) // dtype.itemsize, dtype, spec)
    return made.allocate().copyin(data)
