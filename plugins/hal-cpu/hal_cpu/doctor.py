"""The lines of `hal doctor` about this host."""

from __future__ import annotations

from hal_core.errors import HalError
from hal_core.hookspecs import Check
from hal_cpu import processor
from hal_cpu.compiler import PAIRS


def checks(family: str) -> list[Check]:
    """Check the processor, this process's share of it, and the compilers; one of them is enough."""
    found = [
        Check("processor", True, f"{processor.cpu_title()}, {processor.cpu_arch()}"),
        Check(
            "share",
            True,
            f"{processor.usable_cores()} cores, {processor.usable_memory() >> 20} MiB of memory",
        ),
    ]
    for pair in PAIRS:
        try:
            compiler = pair.compiler()
        except HalError as error:
            optional = pair.name != "llvm"  # llvm is a dependency; the others are the user's choice
            detail = f"{error.problem} (optional)" if optional else error.problem
            found.append(Check(f"compiler {pair.name}", optional, detail, error.fix or ""))
        else:
            # An identity ends with the processor's flags, a long line that says nothing here.
            first = compiler.identity.split(processor.cpu_identity())[0].strip().splitlines()[0]
            found.append(Check(f"compiler {pair.name}", True, first))
    return found
