"""`hal try`: run the kernels of a file in the interpreter, on small arrays."""

from __future__ import annotations

import argparse
import math

from hal_core.cli import output
from hal_core.errors import HalError, InvalidArgument
from hal_core.source import Source
from hal_kernel.cli import arguments
from hal_kernel.cli.arguments import Given, given, make_up, resolved
from hal_kernel.cli.kernels import FORMS, AnyKernel, KernelFile, lowered
from hal_kernel.interpreter import interpret
from hal_kernel.interpreter.sampling import sample

HELP = "Run the kernels of a file in the interpreter, and show what is wrong with them."

# Threads along an axis, by the number of axes: more than a block of the interpreter has, and no
# multiple of it, so that a missing guard is seen.
_SIZE = (1, 100, 12, 6)
_SECONDS = 5.0  # for one kernel
_MOST = 1 << 24  # elements of an array, for each of which 96 bytes may be kept; and threads


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="FILE[:KERNEL]", help=FORMS)
    arguments.add_arguments(parser.add_argument_group("with FILE:KERNEL"))


def run(options: argparse.Namespace) -> int:
    file = KernelFile(options.kernel)
    kernels = file.chosen()
    launch = Given({}, {}, {})
    is_given = any(getattr(options, name) for name in ("assignments", "threads", "block", "grid"))
    if is_given:
        if len(kernels) > 1:
            problem = f"arguments are for one kernel, and {file.path} has {', '.join(kernels)}"
            raise InvalidArgument("try", problem, fix="Give FILE:KERNEL.")
        signature = lowered(next(iter(kernels.values()))).signature
        launch = given(options, file, signature, _MOST)
    table, faults = output.table(("kernel", "result", "launched with")), []
    for name, kernel in kernels.items():
        launched = [""]
        try:
            result = examine(kernel, launch, launched)
        except HalError as error:
            if is_given and isinstance(error, InvalidArgument):
                raise  # the launch is wrong, not the kernel
            result = "fault"
            faults.append(f"{name}: {error}")
        table.add_row(name, result, launched[-1])
    console = output.console()
    console.print(table)
    for fault in faults:
        console.print(f"\n{fault}")
    return 1 if faults else 0


def examine(kernel: AnyKernel, wanted: Given, launched: list[str]) -> str:
    """Run a kernel on small arrays and return the result; append the launch as it becomes known.

    A launch with as many threads as are asked for says how large the buffers must be. The second
    one, on buffers of that size, has more, as a launch on a device has.

    Raises: KernelSyntaxError, KernelFault, InvalidArgument.
    """
    read = lowered(kernel)
    if isinstance(read, Source):
        launched.append(f"text in {read.language}")
        return "not run"
    axes = {node.arg[1] for node in read.uops if node.op == "SPECIAL"}
    launch = make_up(read, wanted, _SIZE[len(axes)])
    launched.append(launch.text(read.signature))
    numbers, geometry = tuple(launch.numbers.values()), dict(launch.geometry)
    if "threads" in geometry and read.block is None:
        geometry.setdefault("block", 1)
    shape = resolved(read, geometry)
    if (total := math.prod(shape[0]) * math.prod(shape[1])) > _MOST:
        raise InvalidArgument(
            read.name, "too many threads for the interpreter", got=total, limit=_MOST,
            fix="Give smaller sizes: they find the same faults.",
        )  # fmt: skip
    sizes = sample(read, numbers, shape, wanted.arrays, _SECONDS).sizes
    launched.append(launch.text(read.signature, sizes))
    arrays = [
        (
            wanted.arrays[param.name]
            if param.name in wanted.arrays
            else arguments.elements(int(size), param, read.name, _MOST, "the interpreter")
        ).copy()
        for param, size in zip(read.signature.pointers, sizes, strict=True)
    ]
    grid, block, threads = (launch.geometry.get(name) for name in ("grid", "block", "threads"))
    interpret(read, *arrays, vals=numbers, grid=grid, block=block, threads=threads)
    return "no fault"
