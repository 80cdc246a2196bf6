"""A kernel's arguments in Metal's table of them, and the bytes of numbers.

A rendered kernel `(y: float32*, a: float32, x: const float32*, n: int32)` has its pointers first,
and all of its values as one struct behind them; each parameter of a `Source` has the entry of its
position:

    entry       rendered            a Source
    0           y                   y
    1           x                   a
    2           struct { a, n }     x
    3                               n
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.dtypes import pack
from hal_core.errors import Unsupported

if TYPE_CHECKING:
    from hal_core.signature import Param, Signature

MOST_ENTRIES = 31  # of the table
MOST_BYTES = 4096  # of one entry that is no buffer


class Entries(NamedTuple):
    """The content of the entries of a kernel's table."""

    pointers: list[tuple[int, Param]]  # with their entry
    values: list[tuple[int, list[Param]]]  # of the struct that an entry has


def entries_of(signature: Signature, rendered: bool) -> Entries:
    """Return which entries the parameters have."""
    pointers, values = signature.pointers, signature.values
    if not rendered:
        return Entries(
            [(param.position, param) for param in pointers],
            [(param.position, [param]) for param in values],
        )
    return Entries(list(enumerate(pointers)), [(len(pointers), list(values))] if values else [])


def check_room(signature: Signature, rendered: bool, operation: str, device: str) -> None:
    """Raises: Unsupported for more arguments than Metal has entries for."""
    pointers, values = entries_of(signature, rendered)
    count = len(pointers) + len(values)
    if count > MOST_ENTRIES:
        raise Unsupported(
            operation, "the kernel has too many arguments", got=count,
            limit=f"{MOST_ENTRIES} entries; all values of a @hal.kernel take one", device=device,
            fix="Put several arrays into one buffer.",
        )  # fmt: skip
    for _, group in values:
        nbytes, _ = packer(group)
        if nbytes > MOST_BYTES:
            raise Unsupported(
                operation, "the kernel's values are too large together", got=nbytes,
                limit=f"{MOST_BYTES} bytes", device=device, fix="Put them into a buffer.",
            )  # fmt: skip


def packer(values: Sequence[Param]) -> tuple[int, Callable[..., bytes]]:
    """Return the size of a struct of these values, and the function that packs one."""
    if len(values) == 1 and values[0].dtype.format:
        alone = struct.Struct(f"={values[0].dtype.format}")
        return alone.size, alone.pack
    codes = "".join(param.dtype.format or "H" for param in values)
    widest = max(codes, key=struct.calcsize)
    whole = struct.Struct(f"@{codes}0{widest}")  # with the padding that ends it
    if all(param.dtype.format for param in values):
        return whole.size, whole.pack
    return whole.size, partial(_pack_bits, whole, tuple(values))


def _pack_bits(whole: struct.Struct, params: tuple[Param, ...], *values: Any) -> bytes:
    """Pack values of which some have a dtype that struct lacks."""
    numbers = [
        value if param.dtype.format else int.from_bytes(pack(value, param.dtype), "little")
        for param, value in zip(params, values, strict=True)
    ]
    return whole.pack(*numbers)
