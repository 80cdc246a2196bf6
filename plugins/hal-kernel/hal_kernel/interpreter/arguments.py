"""Check the arguments of an interpreted kernel as a launch does: arrays, values, a geometry."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from hal_core.dtypes import any_, check_array
from hal_core.errors import InvalidArgument
from hal_core.geometry import Dim3, Extent, Limits, Rules
from hal_core.signature import CONST_POINTER, Param, convert_value
from hal_kernel.interpreter.casts import stored_as
from hal_kernel.ir import Kernel
from hal_kernel.lang.constants import as_number

Array = npt.NDArray[Any]

_MANY = 2**31 - 1
_BLOCK_THREADS = 1 << 16
LIMITS = Limits((_BLOCK_THREADS,) * 3, _BLOCK_THREADS, (_MANY,) * 3, _MANY, 1, _MANY)
_DEVICE = "the interpreter"


class Inputs(NamedTuple):
    """Checked arguments, by position in the signature. Nothing here is copied.

    `written` has an array for each pointer with elements that nothing has written yet. It has an
    unsigned integer per element, as wide, with a 1 in each byte that is written.
    """

    arrays: dict[int, Array]  # flat, with the dtype of `stored_as`
    values: dict[int, Array]  # each with one element
    written: dict[int, Array]


class Arguments:
    """The arguments of `interpret`; `inputs` are the checked ones."""

    def __init__(
        self, kernel: Kernel, given: Sequence[Any], vals: Sequence[Any] | None,
        initialised: Sequence[Array | None],
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.operation = f"interpret {kernel.name}"
        params = kernel.signature.params
        pointers, values = kernel.signature.pointers, kernel.signature.values
        counts: list[tuple[str, Any, set[int]]] = [("arguments", given, {len(params)})]
        if vals is not None:
            counts = [("buffers", given, {len(pointers)}), ("vals", vals, {len(values)})]
        counts.append(("initialised masks", initialised, {len(pointers), 0}))
        for what, items, wanted in counts:
            count = len(items) if isinstance(items, Sized) else type(items).__name__
            if count not in wanted:
                self._refuse(f"wrong number of {what}", count, max(wanted), self._call())
        bufs = given
        if vals is None:
            bufs = [given[param.position] for param in pointers]
            vals = [given[param.position] for param in values]
        arrays = {
            param.position: self._elements(param, array)
            for param, array in zip(pointers, bufs, strict=True)
        }
        numbers = {
            param.position: self._value(param, value)
            for param, value in zip(values, vals, strict=True)
        }
        written = {}
        for param, mask in zip(pointers, initialised, strict=False):  # `initialised` may be empty
            if mask is None:
                continue
            size = len(arrays[param.position])
            check_array(mask, self.operation)
            mask = np.asarray(mask)
            if mask.dtype != np.bool_ or mask.size != size:
                got, what = f"{mask.size} x {mask.dtype}", f"initialised mask of {param.name!r}"
                self._refuse(what, got, f"{size} x bool", "Give a bool for each element.")
            every = np.uint64(0x0101_0101_0101_0101)  # a 1 in each byte
            record = np.where(mask.reshape(-1), every, np.uint64(0))
            written[param.position] = record.astype(f"u{param.dtype.itemsize}")
        self.inputs = Inputs(arrays, numbers, written)

    def geometry(
        self, grid: Extent | None, block: Extent | None, threads: Extent | None
    ) -> tuple[Dim3, Dim3]:
        """Return (grid, block) as a launch does, but with another block for `threads=` alone."""
        rules = Rules(self.operation, _DEVICE, LIMITS, _BLOCK_THREADS, self.kernel.block)
        if threads is not None and block is None and self.kernel.block is None:
            # 64 threads, 8 x 8 or 4 x 4 x 4, along the axes with more than one thread. A device
            # makes the block no larger than `threads`, which hides a missing guard at small sizes.
            counts, _ = rules.resolve(grid, 1, threads, 0)
            size = (1, 64, 8, 4)[sum(count > 1 for count in counts)]
            block = [size if count > 1 else 1 for count in counts]
        return rules.resolve(grid, block, threads, 0)

    def _call(self) -> str:
        """Return the fix of an error: the call that the signature asks for."""
        names = [self.kernel.name, *(param.name for param in self.kernel.signature.params)]
        return f"Write interpret({', '.join(names)}, ...)."

    def _value(self, param: Param, value: Any) -> Array:
        try:
            number = convert_value(value, param, self.operation, _DEVICE)
        except InvalidArgument as error:
            raise InvalidArgument(
                self.operation,
                error.problem,
                got=error.got,
                limit=error.limit,
                device=_DEVICE,
                fix=self._call(),
            ) from None
        return np.array([number], stored_as(param.dtype))

    def _elements(self, param: Param, array: Any) -> Array:
        """Return the array's own memory as a flat array; a bfloat16 array gives its bits."""
        what = f"argument {param.name!r}"
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
            fix = "Give np.ascontiguousarray(x), or of a hal.Buffer a copy, buffer.numpy()."
            got = type(array).__name__
            self._refuse(f"{what} is not a C-contiguous numpy array", got, param, fix)
        dtype, name = param.dtype, array.dtype.name
        if (
            dtype is not any_
            and name != dtype.name
            and (dtype.name, name) != ("bfloat16", "uint16")
        ):
            fix = f"Convert it first, x.astype({dtype.name!r}), and keep the order: {self._call()}"
            if dtype.name == "bfloat16":
                fix = "Convert it first, x.astype(ml_dtypes.bfloat16), or give the bits as uint16."
            self._refuse(f"{what} has the wrong dtype", name, param, fix)
        check_array(array, self.operation)
        if not array.dtype.isnative or array.dtype.fields or dtype is any_:
            as_number(array.dtype, self.operation)
        if param.kind != CONST_POINTER and not array.flags.writeable:
            fix = "Give a copy: x.copy()."
            self._refuse(f"{what} cannot be written", "a read-only array", param, fix)
        return array.reshape(-1).view(stored_as(dtype))

    def _refuse(self, problem: str, got: object, expected: object, fix: str) -> NoReturn:
        raise InvalidArgument(
            self.operation, problem, got=got, limit=f"expected {expected}", device=_DEVICE, fix=fix
        )
