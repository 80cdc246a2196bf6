"""Facts of a device, known without opening it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

CAPABILITIES = frozenset(
    {
        "fp16", "bf16", "fp64", "int64_atomics", "float_atomics", "timing", "graphs", "peer",
        "pinned", "images", "disassemble", "subprocess_fork",
    }
)  # fmt: skip


class Limits(NamedTuple):
    """What a launch or an allocation may ask of a device. Blocks and grids are (x, y, z)."""

    max_block: tuple[int, int, int]
    max_block_threads: int
    max_grid: tuple[int, int, int]
    shared_nbytes: int
    view_alignment: int  # bytes: what a view's offset must divide by in a `Source` kernel
    max_alloc_nbytes: int


class DeviceInfo(NamedTuple):
    """Facts of one device, known without opening it."""

    name: str  # canonical: "CUDA:1"
    kind: str  # "gpu", "cpu" or "accelerator"
    title: str  # the vendor's name of the hardware
    memory_nbytes: int
    arch: str
    compute_units: int
    host_visible: bool  # buffers can be read in place by the host
    limits: Limits
    capabilities: frozenset[str] = frozenset()  # a subset of CAPABILITIES
    vendor: Mapping[str, Any] = {}  # raw properties, as the driver spells them
