"""The base class of the C family's renderers; each language adds a row of data."""

from __future__ import annotations

from functools import cached_property

from hal_core.dtypes import DTYPES
from hal_core.errors import Unsupported
from hal_kernel.ir import Kernel
from hal_kernel.ir.uop import ATOMIC_OPS, atomic_name, dtype_of
from hal_kernel.render.c.frame import whole
from hal_kernel.render.c.language import Language
from hal_kernel.render.c.operations import atomic_body
from hal_kernel.render.c.words import called, reserved
from hal_kernel.render.renderer import Renderer


class CFamilyRenderer(Renderer):
    """Render kernels in the language that `row` describes."""

    row: Language
    dtypes = frozenset(DTYPES.values())

    def options(self, kernel: Kernel) -> tuple[str, ...]:
        contract = self.row.contract_options[kernel.contract]
        return (*self.row.options, contract) if contract else self.row.options

    @cached_property
    def reserved(self) -> tuple[frozenset[str], frozenset[str]]:
        """The names that a kernel may not have, and those that its variables may not have.

        Variables are renamed. A kernel cannot be, because it is launched by its name.
        """
        kernels = self.row.keywords | frozenset(self.row.types.values()) | called(self.row)
        return kernels, reserved(self.row)

    def _check(self, kernel: Kernel) -> None:
        super()._check(kernel)
        operation = f"render kernel {kernel.name!r} as {self.name}"
        if kernel.name in self.reserved[0]:
            raise Unsupported(
                operation,
                "the language has this name already",
                got=kernel.name,
                fix="Rename the kernel.",
            )
        for node in kernel.uops:
            if node.op in ATOMIC_OPS and atomic_body(self.row, node) is None:
                line = f", line {node.line}" if node.line else ""
                raise Unsupported(
                    f"{operation}{line}",
                    "the language has no such atomic operation",
                    got=f"{atomic_name(node)} of {dtype_of(node.src[0])}",
                    fix="Use int32 or uint32.",
                )

    def _render(self, kernel: Kernel) -> str:
        return whole(self._row(kernel), kernel, self.row.nodes(kernel), self.reserved[1])

    def _row(self, kernel: Kernel) -> Language:
        """Return the language as this kernel is written in it."""
        return self.row
