"""The kernels of the simulated chip: listings of the IR, which are interpreted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hal_kernel.interpreter import interpret
from hal_kernel.interpreter.casts import stored_as
from hal_kernel.ir.listing import parse_listing
from hal_kernel.ir.verify import verify

END = b"\nend\n"  # ends every binary, so that a truncated one is found


class ChipKernel:
    """A kernel of a binary. Raises: ValueError for what is no binary with this entry."""

    def __init__(self, image: bytes, entry: str) -> None:
        self.name = entry
        self._kernel = parse_listing(image.removesuffix(END).decode())
        verify(self._kernel)
        if not image.endswith(END) or self._kernel.name != entry:
            raise ValueError(f"cut off, or without {entry}")

    def run(self, args: Sequence[Any], grid: Any, block: Any) -> None:
        """Run all threads. `args`: memory, None or a number for each parameter."""
        # The interpreter takes arrays and values apart; a launch has them in one order.
        given = list(zip(self._kernel.signature.params, args, strict=True))
        bufs = [_elements(arg, stored_as(param.dtype)) for param, arg in given if param.is_pointer]
        vals = [arg for param, arg in given if not param.is_pointer]
        interpret(self._kernel, *bufs, vals=vals, grid=grid, block=block, races=False)


def _elements(memory: memoryview | None, dtype: np.dtype[Any]) -> Any:
    data = memory if memory is not None else memoryview(bytearray())
    return np.frombuffer(data[: data.nbytes // dtype.itemsize * dtype.itemsize], dtype)
