"""The default queue of a device on a node."""

from __future__ import annotations

from hal_core.queue import DirectQueue


class RayQueue(DirectQueue):
    """A queue whose calls only add commands: one thread starts work on many devices with it."""
