"""What hal is held against on a device: the driver's own interface, through its binding alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import hal_core as hal
from bench.measure import Task

Others = dict[str, Callable[[], Task]]  # by name; making one fails where it is not installed


class Bare(Protocol):
    """Tasks that do without hal what a row does with it. Tasks own the memory that they use."""

    name: str  # of the binding
    targets: Mapping[str, float]  # what is promised against it, by the kind of row

    def launch(self, kernel: hal.KernelFunction, count: int, batch: int) -> Task:
        """`batch` launches of a kernel of three float arrays and their length, not waited for.

        The arguments are built beforehand.
        """

    def copy_in(self, nbytes: int, pinned: bool) -> Task:
        """From the host, waited for."""

    def copy_out(self, nbytes: int, pinned: bool) -> Task:
        """To the host, waited for."""

    def copy(self, nbytes: int, batch: int) -> Task:
        """`batch` copies within the device, then a wait."""

    def allocate(self, nbytes: int) -> Task:
        """Memory taken and given back."""

    def peers(self, kernel: hal.KernelFunction, count: int, batch: int) -> Others:
        """The same launch through what a user would pick instead."""

    def multiply(self, size: int) -> Others:
        """The product of two square matrices by the vendor's library, waited for."""
