"""The compile stage: select a compiler, build a binary, load it."""

from __future__ import annotations

import logging
from time import perf_counter_ns
from typing import TYPE_CHECKING

from hal_core import profiling
from hal_core.compiler import Binary, CompileOptions, CompilerPair
from hal_core.compiler.requirements import check_kernel
from hal_core.compiler.selection import select
from hal_core.errors import InvalidArgument, Unsupported
from hal_core.ir import Kernel, Source
from hal_core.ir.verify import verify
from hal_core.lang import KernelFunction

if TYPE_CHECKING:
    from hal_core.device import Compiled
    from hal_core.program import Program

log = logging.getLogger("hal_core")


def compile_kernel(device: Compiled, kernel: object) -> Program:
    """Make a program of a kernel, whatever was compiled before. Raises: as `Compiled.compile`."""
    if not isinstance(kernel, (KernelFunction, Kernel, Source)):
        raise InvalidArgument(
            "compile",
            "not a kernel",
            got=kernel,
            device=device.name,
            fix="Decorate a function with @hal.kernel, or make a hal.Source.",
        )
    pair, compiler = select(device, kernel.language if isinstance(kernel, Source) else None)
    if isinstance(kernel, KernelFunction):
        kernel = kernel.lower()
    elif isinstance(kernel, Kernel):
        verify(kernel)  # a user's own IR may have nodes of any form, which the next check reads
    check_kernel(kernel, device.info)
    text, options = _text_of(kernel, pair, device.name)
    start_ns = perf_counter_ns()
    image, cached = compiler.compile_or_reuse(text, options)
    profiling.compiled(device, kernel.name, image, cached, start_ns)
    binary = Binary(
        image,
        compiler.format,
        compiler.target,
        options.entry,
        options.signature,
        options.block,
        options.shared_nbytes,
        options.rendered,
        options.work,
    )
    program = device.load(binary, source=text, pair=pair.name)
    device._backend.compiled(device, program, cached)
    log.debug("%s: compiled %s with %s, cached: %s", device.name, kernel.name, pair.name, cached)
    return program


def _text_of(
    kernel: Kernel | Source, pair: CompilerPair, device: str
) -> tuple[str, CompileOptions]:
    """Return the text that the compiler is given, and its options."""
    if isinstance(kernel, Source):
        return kernel.text, CompileOptions.of_source(kernel)
    renderer = pair.renderer()  # type: ignore[misc]  # it was selected for having one
    try:
        text = renderer.render(kernel)
    except Unsupported as error:  # a renderer does not know for which device it writes
        limit = {} if error.limit is None else {"limit": error.limit}
        fix = error.fix or "Use a dtype that it has."
        raise Unsupported(
            error.operation, error.problem, got=error.got, **limit, device=device, fix=fix
        ) from None
    return text, CompileOptions.of_kernel(kernel, renderer.options(kernel))
