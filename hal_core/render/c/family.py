"""What the renderers of the C family share; `languages/` holds a row of data for each."""

from __future__ import annotations

from functools import cached_property

from hal_core.dtypes import DTYPES
from hal_core.errors import Unsupported
from hal_core.ir import Kernel, UOp
from hal_core.ir.blocks.fission import split
from hal_core.render.c.frame import whole
from hal_core.render.c.language import Language
from hal_core.render.c.spelling import atomic_body
from hal_core.render.c.words import called, reserved
from hal_core.render.renderer import Renderer, dtype_of


class CFamilyRenderer(Renderer):
    """Renders with one language's row."""

    row: Language
    dtypes = frozenset(DTYPES.values())

    def options(self, kernel: Kernel) -> tuple[str, ...]:
        contract = self.row.contract_options[kernel.contract]
        return (*self.row.options, contract) if contract else self.row.options

    @cached_property
    def _words(self) -> frozenset[str]:
        """What a kernel may not be called, for it cannot be renamed."""
        return self.row.keywords | frozenset(self.row.types.values()) | called(self.row)

    @cached_property
    def _reserved(self) -> frozenset[str]:
        return reserved(self.row)

    def _check(self, kernel: Kernel) -> None:
        super()._check(kernel)
        if kernel.name in self._words:
            raise Unsupported(
                f"render kernel {kernel.name!r} as {self.name}",
                "the name is a word of the language",
                got=kernel.name,
                fix="Rename the kernel.",
            )
        for node in kernel.uops:
            if node.op in ("ATOMIC", "CAS"):
                self._check_atomic(kernel, node)

    def _check_atomic(self, kernel: Kernel, node: UOp) -> None:
        if atomic_body(self.row, node) is None:
            line = f", line {node.line}" if node.line else ""
            raise Unsupported(
                f"render kernel {kernel.name!r} as {self.name}{line}",
                "the language has no such atomic operation",
                got=f"{node.arg or 'compare-exchange'} of {dtype_of(node)}",
                fix="Use int32 or uint32.",
            )

    def _render(self, kernel: Kernel) -> str:
        uops = split(kernel) if self.row.threads else kernel.uops
        return whole(self.row, kernel, uops, self._reserved)
