"""What every renderer is: kernel IR in, the text of one language out."""

from __future__ import annotations

from hal_core.dtypes import DTYPES, DType
from hal_core.errors import InvalidKernel, Unsupported
from hal_core.ir import Kernel, UOp
from hal_core.ir.fold import fold
from hal_core.ir.reserved import is_taken
from hal_core.ir.verify import verify


class Renderer:
    """Writes kernels in one language. Stateless: any thread may use one.

    `name` is what a person calls the language, `language` what a `Source` of it says.
    """

    name: str
    language: str
    dtypes: frozenset[DType] = frozenset(DTYPES.values()) - {DTYPES["float16"], DTYPES["bfloat16"]}

    def supports(self, dtype: DType) -> bool:
        """Whether this language can compute with `dtype`; the device may still lack it."""
        return dtype in self.dtypes

    def render(self, kernel: Kernel) -> str:
        """The kernel's text. The same kernel gives the same text: caches rely on it.

        Raises: InvalidKernel when the IR breaks a rule; Unsupported for a dtype or a kernel's
        name that the language cannot take.
        """
        verify(kernel)
        self._check(kernel)
        return self._render(fold(kernel))

    def options(self, kernel: Kernel) -> tuple[str, ...]:
        """What a compiler must be told so that the text means what the kernel says."""
        return ()

    def _render(self, kernel: Kernel) -> str:
        raise NotImplementedError

    def _check(self, kernel: Kernel) -> None:
        operation = f"render kernel {kernel.name!r} as {self.name}"
        if is_taken(kernel.name):
            raise Unsupported(
                operation,
                "some backend's language has this name for itself",
                got=kernel.name,
                fix="Rename the kernel.",
            )
        used = {uop.dtype for uop in kernel.uops if uop.dtype is not None}
        for dtype in sorted(used | kernel.signature.dtypes, key=str):
            if not self.supports(dtype):
                names = ", ".join(sorted(known.name for known in self.dtypes))
                raise Unsupported(
                    operation,
                    "the renderer has no such dtype",
                    got=dtype.name,
                    limit=f"it has {names}",
                    fix="Compute in float32." if dtype.is_float else None,
                )


def dtype_of(uop: UOp) -> DType:
    """The dtype of a node that has a value."""
    if uop.dtype is None:  # verify has refused it before
        raise InvalidKernel("render", f"{uop!r} is not a value")
    return uop.dtype
