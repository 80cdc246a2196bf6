"""Graphs of the CUDA driver."""

from __future__ import annotations

from graphs import *  # noqa: F403
