"""Buffers and launches over several devices."""

from __future__ import annotations

from hal_kernel.multidevice.launches import launch
from hal_kernel.multidevice.layout import Shard
from hal_kernel.multidevice.multi_buffer import MultiBuffer

__all__ = ["MultiBuffer", "Shard", "launch"]
