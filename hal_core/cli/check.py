"""`hal check`: run the conformance kit on a device, or the kernels of a file in the interpreter."""

from __future__ import annotations

import argparse
from importlib.resources import files

from hal_core.cli import arguments, output
from hal_core.cli.arguments import Given, given, make_up, resolved
from hal_core.cli.kernels import AnyKernel, KernelFile, is_file, lowered
from hal_core.errors import HalError, InvalidArgument
from hal_core.interpreter import interpret
from hal_core.interpreter.sampling import made_up, sample
from hal_core.source import Source

HELP = "Test the backend of a device with the conformance kit, or the kernels of a file."

# Options for a DEVICE only, and options for a FILE only: parsed field -> option as it is typed.
_KIT = {
    "pair": "--pair", "chapters": "--chapter", "known_gaps": "--known-gaps", "reports": "--report",
    "require_device": "--require-device",
}  # fmt: skip
_LAUNCH = {
    "assignments": "NAME=VALUE", "threads": "--threads", "block": "--block", "grid": "--grid",
}  # fmt: skip
# Threads along an axis, by the number of axes: more than a block of the interpreter has, and no
# multiple of it, so that a missing guard is seen.
_SIZE = (1, 100, 12, 6)
_SECONDS = 5.0  # for one kernel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # The chapters are read from the folder: importing `hal_core.testing` takes a tenth of a second.
    tests = files("hal_core").joinpath("testing", "conformance").iterdir()
    modules = sorted(test.name.removesuffix(".py") for test in tests)
    chapters = ", ".join(name[5:] for name in modules if name.startswith("test_"))
    add = parser.add_argument
    add("device", metavar="DEVICE|FILE[:KERNEL]",
        help="Name a device, OPENCL or CUDA:1, whose backend the kit tests; or a Python file, to "
        "run its kernels in the interpreter, on small arrays.")  # fmt: skip
    kit = parser.add_argument_group("with a DEVICE").add_argument
    kit("--pair", metavar="NAME", help="Test with this compiler of the device.")
    kit("--chapter", dest="chapters", nargs="+", action="extend", default=[], metavar="NAME",
        help=f"Run these chapters only. There are {chapters}.")  # fmt: skip
    gaps = "Expect the tests to fail that the file lists: CLASS::TEST and a reason in each line."
    kit("--known-gaps", metavar="FILE", help=gaps)
    kit("--report", dest="reports", action="append", default=[], metavar="FILE",
        help="Write a report to a .json or .md file.")  # fmt: skip
    kit("--require-device", action="store_true", help="Fail when the hardware is missing.")
    arguments.add_arguments(parser.add_argument_group("with FILE:KERNEL"))


def run(options: argparse.Namespace) -> int:
    of_file = is_file(options.device)
    for field, name in (_KIT if of_file else _LAUNCH).items():
        if getattr(options, field):
            what = "the kernels of a file" if of_file else "a device"
            options.parser.error(f"{name} means nothing for {what}")
    if of_file:
        return check_file(options)
    from hal_core.testing.kit.check import Wanted, check

    return check(Wanted(*(getattr(options, field) for field in Wanted._fields)))


def check_file(options: argparse.Namespace) -> int:
    """Run each kernel of a file in the interpreter, and print what it finds."""
    file = KernelFile(options.device)
    kernels = file.chosen()
    launch = Given({}, {}, {})
    is_given = any(getattr(options, field) for field in _LAUNCH)
    if is_given:
        if len(kernels) > 1:
            problem = f"arguments are for one kernel, and {file.path} has {', '.join(kernels)}"
            raise InvalidArgument("check", problem, fix="Give FILE:KERNEL.")
        launch = given(options, file, next(iter(kernels.values())).signature)
    table, faults = output.table(("kernel", "result", "launched with")), []
    for name, kernel in kernels.items():
        try:
            table.add_row(name, *examine(kernel, launch))
        except HalError as error:
            if is_given and isinstance(error, InvalidArgument):
                raise  # the launch is wrong, not the kernel
            table.add_row(name, "fault", "")
            faults.append(f"{name}: {error}")
    console = output.console()
    console.print(table)
    for fault in faults:
        console.print(f"\n{fault}")
    return 1 if faults else 0


def examine(kernel: AnyKernel, wanted: Given) -> tuple[str, str]:
    """Run a kernel on small arrays; return the result and the launch.

    A launch with as many threads as are asked for says how large the buffers must be. The second
    one, on buffers of that size, has more, as a launch on a device has.

    Raises: KernelSyntaxError, KernelFault, InvalidArgument.
    """
    read = lowered(kernel)
    if isinstance(read, Source):
        return "not run", f"text in {read.language}"
    axes = {node.arg[1] for node in read.uops if node.op == "SPECIAL"}
    launch = make_up(read, wanted, _SIZE[len(axes)])
    numbers, geometry = tuple(launch.numbers.values()), dict(launch.geometry)
    if "threads" in geometry and read.block is None:
        geometry.setdefault("block", 1)
    sizes = sample(read, numbers, resolved(read, geometry), wanted.arrays, _SECONDS).sizes
    arrays = [
        wanted.arrays.get(param.name, made_up(param.dtype, size)).copy()
        for param, size in zip(read.signature.pointers, sizes, strict=True)
    ]
    grid, block, threads = (launch.geometry.get(name) for name in ("grid", "block", "threads"))
    interpret(read, *arrays, vals=numbers, grid=grid, block=block, threads=threads)
    return "no fault", launch.text(read.signature, sizes)
