"""The floor of a device's benchmarks: the driver's own interface, without hal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import hal_core as hal
from bench.measure import Task, call

Others = dict[str, Callable[[], Task]]  # by name; making one fails if it is not installed


class Bare(Protocol):
    """Makes tasks that do the work of a row without hal. A task owns the memory that it uses."""

    name: str  # the binding's
    targets: Mapping[str, float]  # kind of row -> the least score

    def launch(self, kernel: hal.KernelFunction, count: int, batch: int) -> Task:
        """Launch a kernel of three float arrays and their length `batch` times, without waiting.

        The arguments are built beforehand.
        """

    def copy_in(self, nbytes: int, pinned: bool) -> Task:
        """Copy from the host and wait."""

    def copy_out(self, nbytes: int, pinned: bool) -> Task:
        """Copy to the host and wait."""

    def copy(self, nbytes: int, batch: int) -> Task:
        """Copy within the device `batch` times, then wait."""
        once = self.copier(nbytes)

        def run() -> None:
            for _ in range(batch):
                once()
            self.wait()

        return call(run, batch)

    def copier(self, nbytes: int) -> Callable[[], object]:
        """Return a function that queues a copy within the device."""

    def wait(self) -> None:
        """Wait for what is queued."""

    def allocate(self, nbytes: int) -> Task:
        """Allocate memory and free it."""

    def peers(self, kernel: hal.KernelFunction, count: int, batch: int) -> Others:
        """Make the same launches through other libraries."""
        return {}

    def multiply(self, size: int) -> Others:
        """Multiply two square matrices by the vendor's library and wait."""
        return {}
