"""Graphs of the CUDA driver."""

from graphs import *  # noqa: F403
