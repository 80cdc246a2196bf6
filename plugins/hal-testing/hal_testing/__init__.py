"""Tools for tests: the conformance kit, a fake backend, and the reference interpreter."""

from hal_kernel.interpreter import interpret

__all__ = ["interpret"]
