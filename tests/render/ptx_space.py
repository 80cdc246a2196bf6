"""The memory and the numbers of the machine that runs PTX."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Fault(Exception):
    """What no correct text does."""


class Space:
    """Bytes of one state space; only those that were placed may be touched."""

    def __init__(self, nbytes: int) -> None:
        nbytes = -(-nbytes // 8) * 8
        self.bytes = np.zeros(nbytes, np.uint8)
        self.placed = np.zeros(nbytes, bool)
        self.written = np.zeros(nbytes, bool)

    def places(self, addresses: Array, size: int) -> Array:
        """Each access's bytes, one row an access."""
        if (addresses % size).any():
            raise Fault(f"unaligned access of {size} bytes")
        rows = addresses.astype(np.int64)[:, None] + np.arange(size)
        if (rows < 0).any() or (rows >= len(self.bytes)).any() or not self.placed[rows].all():
            raise Fault("access out of bounds")
        return np.asarray(rows)

    def load(self, addresses: Array, dtype: np.dtype[Any]) -> Array:
        rows = self.places(addresses, dtype.itemsize)
        if not self.written[rows].all():
            raise Fault("memory is read that nobody has written")
        return np.ascontiguousarray(self.bytes[rows]).view(dtype)[:, 0]

    def store(self, addresses: Array, values: Array) -> None:
        rows = self.places(addresses, values.itemsize)
        self.bytes[rows] = np.ascontiguousarray(values).view(np.uint8).reshape(rows.shape)
        self.written[rows] = True


def number(text: str, dtype: np.dtype[Any]) -> Array:
    """An operand that is a number; floats are written by their bits."""
    if text[:2] in ("0f", "0d"):
        bits = np.array([int(text[2:], 16)], "u4" if text[1] == "f" else "u8")
        if dtype.kind != "f" or dtype.itemsize != bits.itemsize:
            raise Fault(f"{text} is no {dtype}")
        return bits.view(dtype)
    if dtype.kind == "f":
        raise Fault(f"{text} is no float")
    if dtype.kind == "b":
        return np.array([int(text) != 0])
    value = int(text, 0) % (1 << 8 * dtype.itemsize)
    return np.array([value], f"u{dtype.itemsize}").view(dtype)
