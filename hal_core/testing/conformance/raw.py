"""Bytes in and out of a buffer, so that no class under test is believed."""

from __future__ import annotations

import random

import hal_core as hal

SIZES = (1, 3, 4, 15, 16, 255, 256, 257, 4095, 4096, 65537, 1 << 20)  # bytes, and about pages


def pattern(nbytes: int, seed: int = 1) -> bytes:
    """Bytes that differ from place to place; never two runs of one seed differ."""
    return random.Random(seed).randbytes(nbytes)


def read(buffer: hal.Buffer) -> bytes:
    """All bytes of a buffer, copied over others, so that one that is not written shows."""
    first, second = bytearray(b"\x5a" * buffer.nbytes), bytearray(b"\xa5" * buffer.nbytes)
    buffer.copyout(first)
    buffer.copyout(second)
    assert first == second, "two reads of one buffer differ: copyout leaves bytes alone"
    return bytes(first)


def buffer_of(
    device: hal.Compiled,
    data: bytes,
    dtype: hal.DType = hal.uint8,
    spec: hal.BufferSpec | None = None,
) -> hal.Buffer:
    """An allocated buffer with these bytes."""
    made = hal.Buffer(device, len(data) // dtype.itemsize, dtype, spec)
    return made.allocate().copyin(data)
