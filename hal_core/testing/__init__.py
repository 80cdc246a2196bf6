"""The reference interpreter: what a kernel means, to compare a device with."""

from hal_core.interpreter import interpret

__all__ = ["interpret"]
