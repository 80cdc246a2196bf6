"""Buffers and launches over several devices."""

from __future__ import annotations

from hal_core.many.launches import launch
from hal_core.many.multi_buffer import MultiBuffer, Shard

__all__ = ["MultiBuffer", "Shard", "launch"]
