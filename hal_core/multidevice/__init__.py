"""Buffers and launches over several devices."""

from __future__ import annotations

from hal_core.multidevice.launches import launch
from hal_core.multidevice.layout import Shard
from hal_core.multidevice.multi_buffer import MultiBuffer

__all__ = ["MultiBuffer", "Shard", "launch"]
