"""The annotations of pointer parameters: `hal.Ptr[hal.float32]`, `hal.ConstPtr[hal.float32]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Never, TypeVar, overload

from hal_core.dtypes import DType, Scalar, any_
from hal_core.errors import InvalidArgument
from hal_kernel.lang.constants import as_number

if TYPE_CHECKING:
    from typing import Self

    from hal_core.dtypes import bfloat16, float16, float32

T = TypeVar("T", bound=Scalar)

# Python's own types leave the width to a guess.
WIDTHS: tuple[tuple[type, str], ...] = (
    (float, "Write hal.float32, or hal.float64."),
    (int, "Write hal.int32, or hal.int64."),
    (bool, "Write hal.bool_."),
)


def _pointed(item: object, operation: str) -> DType:
    """Return the dtype of a pointer's elements. Raises: InvalidArgument listing the dtypes."""
    if item is any_:
        return any_
    try:
        return as_number(item, operation)
    except InvalidArgument as error:
        fix = next((text for kind, text in WIDTHS if item is kind), error.fix)
        raise InvalidArgument(operation, error.problem, got=item, fix=fix) from None


class PointerType:
    """The value of `Ptr[float32]` at run time, a pointer parameter of a kernel."""

    def __init__(self, dtype: DType, const: bool) -> None:
        self.dtype, self.const = dtype, const

    def __repr__(self) -> str:
        return f"{'const ' if self.const else ''}{self.dtype.name}*"


if TYPE_CHECKING:
    Index = Scalar | int | tuple[Scalar | int, ...]  # several for an array, or for a view
    Extents = Scalar | int | tuple[Scalar | int, ...]

    class ConstPtr(Generic[T]):
        """A kernel parameter, `x: hal.ConstPtr[hal.float32]`: device memory it only reads."""

        @overload
        def __getitem__(self, index: slice) -> Self: ...
        @overload
        def __getitem__(self: ConstPtr[float16] | ConstPtr[bfloat16], index: Index) -> float32: ...
        @overload
        def __getitem__(self, index: Index) -> T: ...
        def __getitem__(self, index: Index | slice) -> object: ...

    class Ptr(ConstPtr[T]):
        """A kernel parameter, `y: hal.Ptr[hal.float32]`: device memory it may read and write."""

        @overload
        def __setitem__(
            self: Ptr[float16] | Ptr[bfloat16], index: Index, value: float32 | float
        ) -> None: ...
        @overload
        def __setitem__(self, index: Index, value: T | float) -> None: ...
        def __setitem__(self, index: Index, value: Scalar | float) -> None: ...

else:

    class Ptr:
        """A kernel parameter, `y: hal.Ptr[hal.float32]`: device memory it may read and write."""

        def __new__(cls, *given: object) -> Never:
            fix = f"Write hal.{cls.__name__}[hal.float32], with brackets."
            raise InvalidArgument(cls.__name__, "it is an annotation, not a call", fix=fix)

        def __class_getitem__(cls, item: object) -> PointerType:
            return PointerType(_pointed(item, "Ptr[...]"), const=False)

    class ConstPtr:
        """A kernel parameter, `x: hal.ConstPtr[hal.float32]`: device memory it only reads."""

        __new__ = Ptr.__new__

        def __class_getitem__(cls, item: object) -> PointerType:
            return PointerType(_pointed(item, "ConstPtr[...]"), const=True)
