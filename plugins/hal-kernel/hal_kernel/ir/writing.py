"""Write a kernel as the text that a device's compiler takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hal_core.compiler.requirements import DOUBLE, Need, check
from hal_core.dtypes import float64
from hal_core.errors import Unsupported
from hal_core.signature import Interface
from hal_core.source import Source
from hal_kernel.ir.cost import operations_per_thread
from hal_kernel.ir.uop import ATOMIC_OPS, SUBGROUP, TOGETHER, Kernel

if TYPE_CHECKING:
    from hal_core.device.base import Compiled


def source_of(kernel: Kernel, device: Compiled, renderer: Any) -> Source:
    """Return the text of a kernel whose IR keeps the rules, by a renderer of the device.

    Raises: Unsupported for what the device or the renderer lacks.
    """
    signature = kernel.signature._replace(name=kernel.name)
    interface = Interface(signature, kernel.block, kernel.shared_nbytes, rendered=True)
    check(interface, device.info, _needs(kernel))
    try:
        text = renderer.render(kernel)
    except Unsupported as error:  # a renderer does not know for which device it writes
        facts = {} if error.limit is None else {"limit": error.limit}
        fix = error.fix or "Use a dtype that it has."
        raise Unsupported(
            error.operation, error.problem, got=error.got, **facts, device=device.name, fix=fix
        ) from None
    return Source(
        kernel.name, text, signature, language=renderer.language,
        options=renderer.options(kernel), block=kernel.block, shared_nbytes=kernel.shared_nbytes,
        rendered=True, work=operations_per_thread(kernel.uops),
    )  # fmt: skip


def _needs(kernel: Kernel) -> Iterator[Need]:
    for node in kernel.uops:
        place = f" at line {node.line}" if node.line else ""
        if node.dtype is float64:
            yield f"it computes in float64{place}", *DOUBLE
        if node.op in TOGETHER or (node.op == "SPECIAL" and node.arg[0] in SUBGROUP):
            fix = "Write it with hal.shared and hal.barrier()."
            yield f"it uses subgroups{place}", "subgroups", fix
        element = node.src[0].dtype if node.op in ATOMIC_OPS else None
        if element is not None and element.itemsize == 8:
            problem = f"it has an atomic operation on {element.name}{place}"
            yield problem, "int64_atomics", "Use elements of 32 bits."
