"""Options of an allocation."""

from __future__ import annotations

from typing import NamedTuple


class BufferSpec(NamedTuple):
    """Options of an allocation. A backend honours each field or refuses it, never ignores it."""

    image: tuple[int, int] | None = None  # (height, width) of a texture
    uncached: bool = False
    cpu_access: bool = False  # device memory the host can map
    host: bool = False  # pinned host memory
    nolru: bool = False  # returned to the device at once when freed
    zero: bool = False  # all zeros, else contents are undefined
    external_ptr: int | None = None  # memory the caller owns and keeps alive


DEFAULT_SPEC = BufferSpec()
