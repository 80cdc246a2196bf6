"""The base class of renderers, which write kernel IR as text of one language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from hal_core.dtypes import DTYPES, DType, any_
from hal_core.errors import Unsupported
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.fold import fold
from hal_kernel.ir.gates import without_gates
from hal_kernel.ir.reserved import is_taken
from hal_kernel.ir.rules import RULES
from hal_kernel.ir.subgroups import of_size
from hal_kernel.ir.verify import verify

# Of a block's shared memory on NVIDIA's GPUs. Arrays of more in all are parts of the dynamic kind.
MOST_STATIC_NBYTES = 48 << 10


class ByHand(NamedTuple):
    """A kernel of a language as a user writes it, of which the conformance kit makes its texts."""

    kernel: str  # NAME(float *y, const float *x, int n): y[i] = FACTOR * x[i] where i < n
    before: str = ""  # lines ahead of the first kernel
    has_macros: bool = True  # it has C's preprocessor, and declarations of functions
    # Where it has images, by the kind of their elements, "f", "i", "u":
    # NAME(x: const image2d, y: image2d): y = FACTOR * x at each pixel. If the pixels that a text
    # writes are of one format, then "f", which is float4, and for each format, as "int8x4", y = x.
    images: Mapping[str, str] = MappingProxyType({})


class Renderer:
    """Write kernels in one language. Stateless: any thread may use one."""

    name: str  # the language's name for people: "OpenCL C"
    language: str  # its name in a `Source`: "opencl"
    by_hand: ByHand | None = None  # how its `Source` kernels look, if not as the renderer writes
    serves_source: bool = False  # True: a `Source` may hold a text that the renderer wrote
    subgroup: int | None = None  # threads of a subgroup, if the language says; 1: it has none
    has_lanes = False  # True: it has a `subgroup` and its SPECIALs, but for the size
    dtypes: frozenset[DType] = frozenset(DTYPES.values()) - {DTYPES["float16"], DTYPES["bfloat16"]}

    def supports(self, dtype: DType) -> bool:
        """Return True when the language can compute with `dtype`; the device may still lack it."""
        return dtype in self.dtypes

    def render(self, kernel: Kernel) -> str:
        """Return the kernel's text. The same kernel gives the same text: caches rely on it.

        Raises: InvalidKernel when the IR breaks a rule; Unsupported for a dtype, an operation or a
        kernel's name that the language cannot take.
        """
        verify(kernel)
        self._check(kernel)
        try:
            plain = without_gates(kernel)
            return self._render(fold(of_size(plain, self.subgroup, self.has_lanes)))
        except KeyError as error:
            (lacking,) = error.args
            if lacking not in RULES:
                raise
            operation = f"render kernel {kernel.name!r} as {self.name}"
            problem, fix = "the renderer lacks an operation", "Compile with another compiler."
            raise Unsupported(operation, problem, got=lacking, fix=fix) from error

    def options(self, kernel: Kernel) -> tuple[str, ...]:
        """Return the compiler options that the text needs to mean what the kernel means."""
        return ()

    def _render(self, kernel: Kernel) -> str:
        """Write a kernel that was checked and folded. Subclasses implement this."""
        raise NotImplementedError

    def _check(self, kernel: Kernel) -> None:
        """Refuse a name or dtypes that the language cannot take. Raises: Unsupported."""
        operation = f"render kernel {kernel.name!r} as {self.name}"
        if is_taken(kernel.name):
            raise Unsupported(
                operation,
                "a device language reserves this name",
                got=kernel.name,
                fix="Rename the kernel.",
            )
        found = {uop.dtype for uop in kernel.uops} | kernel.signature.dtypes
        for dtype in sorted([dtype for dtype in found if dtype not in (None, any_)], key=str):
            if not self.supports(dtype):
                names = ", ".join(sorted(known.name for known in self.dtypes))
                raise Unsupported(
                    operation,
                    "the renderer has no such dtype",
                    got=dtype.name,
                    limit=f"it has {names}",
                    fix="Compute in float32." if dtype.is_float else None,
                )


def writers(kind: type) -> dict[str, Callable[[Any, UOp], None]]:
    """Return a table from an op to the method of a class that writes its nodes.

    The method for `RANGE` is called `on_RANGE`. An op without a method is a value.
    """
    return {
        name.removeprefix("on_"): method
        for base in reversed(kind.__mro__)
        for name, method in vars(base).items()
        if name.startswith("on_")
    }
