"""The decorator `@hal.kernel`, which makes kernels of Python functions."""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, overload

from hal_core.concurrency import fork_safe_lock, refuse_at_exit
from hal_core.errors import InvalidArgument, Unsupported
from hal_core.signature import Signature
from hal_core.source import Source, block_shape
from hal_kernel.errors import KernelSyntaxError
from hal_kernel.ir import Kernel
from hal_kernel.lang.annotations import signature_of
from hal_kernel.lang.definition import Definition

if TYPE_CHECKING:
    from hal_core.device.base import Compiled

_lock = fork_safe_lock()


class KernelFunction(Definition):
    """A function in the kernel language; `device.compile` makes a program of it.

    The definition reads the signature and the lines of the file; the first `lower()` reads the
    body, and fixes the Python values that the kernel captures. So a definition costs little, and a
    kernel may use names that its module assigns further down. An edit of the file changes no kernel
    before the module is loaded again. If the file is edited before a definition inside a function
    runs, the text no longer fits the code, and `lower()` raises KernelSyntaxError.

    Concurrency: any thread may call `lower`.
    """

    name: str
    signature: Signature
    block: tuple[int, int, int] | None  # the only shape it runs with
    contract: bool  # whether a multiply and an add may fuse

    def __init__(
        self, function: FunctionType, caller: FrameType, block: tuple[int, int, int] | None,
        contract: bool,
    ) -> None:  # fmt: skip
        super().__init__(function)
        self.name = function.__name__
        self.signature = signature_of(function, caller, self._lines)
        self.block = block
        self.contract = contract
        self._kernel: Kernel | None = None

    def lower(self) -> Kernel:
        """Return the kernel's IR, computed once.

        Raises: KernelSyntaxError pointing at the first thing outside the kernel language.
        """
        refuse_at_exit(f"kernel {self.name}")
        from hal_kernel.lang.lowering import lower

        with _lock:
            if self._kernel is None:
                try:
                    self._kernel = lower(
                        self.__wrapped__, self._lines, self.signature, self.block, self.contract
                    )
                except KernelSyntaxError as error:
                    # The place is in the message; the front end's own frames would bury it.
                    raise error.with_traceback(None) from None
                self._lines = ()  # lines of the whole file, which nothing needs any more
            return self._kernel

    def __hal_source__(self, device: Compiled) -> Source:
        """Return the text of this kernel for a device; `device.compile` calls this.

        Raises: as `lower`; Unsupported for what the device lacks; CompilerUnavailable.
        """
        from hal_kernel.ir.writing import source_of

        renderer = device.renderer  # first: a device without a compiler says so
        return source_of(self.lower(), device, renderer)

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise self._not_launched()

    def __getitem__(self, geometry: object) -> NoReturn:
        raise self._not_launched()

    def _not_launched(self) -> Unsupported:
        call = (
            f"program({''.join(f'{param.name}, ' for param in self.signature.params)}threads=...)"
        )
        return Unsupported(
            f"kernel {self.name}",
            "a kernel is launched through a program, not called or indexed",
            fix=f"Write program = device.compile({self.name}), then {call}.",
        )

    def _by_value(self) -> tuple[Any, ...]:
        state = {**vars(self), "_kernel": self.lower(), "_lines": ()}
        state.pop("__wrapped__", None)  # pickle knows functions by name only
        return copyreg.__newobj__, (KernelFunction,), state  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        block = f" block={self.block}" if self.block else ""
        contract = "" if self.contract else " contract=False"
        return f"<kernel {self.name}({self.signature}){block}{contract}>"


@overload
def kernel(function: Callable[..., None], /) -> KernelFunction: ...
@overload
def kernel(
    *, block: int | tuple[int, ...] | None = None, contract: bool = True
) -> Callable[[Callable[..., None]], KernelFunction]: ...
def kernel(
    function: Callable[..., None] | None = None,
    /,
    *,
    block: int | tuple[int, ...] | None = None,
    contract: bool = True,
) -> KernelFunction | Callable[[Callable[..., None]], KernelFunction]:
    """Make a kernel of a function: `@hal.kernel` or `@hal.kernel(block=(16, 16, 1))`.

    The function is read, not run. It is written in a small typed subset of Python: assignments,
    `if`, `for k in range(...)`, `while`, `break`, `continue`, `return`, `assert`, elements `x[i]`,
    operators, casts, min, max, abs, round, the functions of `hal_kernel.lang` and the user's own
    with `@hal.func`. Numbers, bools, dtypes and tuples of them from outside the function are
    constants.

    A new local variable that is given a bare Python number is int32 (int64 when the number needs
    it), float32 or bool, and keeps its dtype; `hal.float64(0)` sets another. An index is int32 or
    int64; cast narrower integers first.

    `block` is the only block shape the kernel may be launched with. With `contract=False` a
    multiply and an add of one expression round separately, never fused into one rounding.

    Raises: KernelSyntaxError for a signature that no kernel can have; errors of the body are raised
    at the first compile.
    """
    shape = block_shape(block, "kernel")
    if not isinstance(contract, bool):
        raise InvalidArgument("kernel", "contract must be True or False", got=contract)

    def decorate(function: Callable[..., None]) -> KernelFunction:
        return _make(function, sys._getframe(1), shape, contract)

    if function is None:
        return decorate
    return _make(function, sys._getframe(1), shape, contract)


def _make(
    function: object, caller: FrameType, block: tuple[int, int, int] | None, contract: bool
) -> KernelFunction:
    if not isinstance(function, FunctionType):
        raise InvalidArgument(
            "kernel",
            "not a Python function",
            got=function,
            fix="Put @hal.kernel directly above a def; options have names: @hal.kernel(block=64).",
        )
    return KernelFunction(function, caller, block, contract)
