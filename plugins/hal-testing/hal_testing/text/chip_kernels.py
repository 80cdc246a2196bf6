"""The kernels of the simulated chip: functions in Python, which are called for each thread.

The first argument is the thread's index in the grid, (x, y, z); the others are those of the launch,
with a numpy array for each pointer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hal_core.errors import DeviceFault
from hal_core.signature import Signature

END = b"\nend\n"  # ends every binary, so that a truncated one is found


class ChipKernel:
    """A kernel of a binary. Raises: ValueError for what is no binary with this entry."""

    def __init__(self, image: bytes, entry: str) -> None:
        self.name = entry
        if not image.endswith(END):
            raise ValueError("cut off")
        signature, _, text = image.removesuffix(END).decode().partition("\n")
        self._params = Signature.parse(entry, signature).params
        names: dict[str, Any] = {}
        try:
            exec(text, names)
            self._function = names[entry]
        except Exception as error:
            raise ValueError(f"it defines no {entry}: {error!r}") from error

    def run(self, args: Sequence[Any], grid: Any, block: Any) -> None:
        """Run all threads. `args`: memory, None or a number for each parameter."""
        given = list(args)
        for place, param in enumerate(self._params):
            if param.is_pointer:
                dtype, data = param.dtype.to_numpy(), args[place] or memoryview(b"")
                size = len(data) // dtype.itemsize * dtype.itemsize
                given[place] = np.frombuffer(data[:size], dtype)
        threads = [blocks * width for blocks, width in zip(grid, block, strict=True)]
        try:
            for z, y, x in np.ndindex(*reversed(threads)):
                self._function((x, y, z), *given)
        except Exception as error:
            raise DeviceFault(f"kernel {self.name}", repr(error)) from error
