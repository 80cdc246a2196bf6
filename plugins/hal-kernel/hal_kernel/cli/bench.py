"""`hal bench`: measure a kernel on every device, and compare them in one table."""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

from hal_core.buffer import Buffer
from hal_core.cli import output
from hal_core.device import Device
from hal_core.dtypes import any_, uint8
from hal_core.errors import HalError, InvalidArgument
from hal_core.signature import CONST_POINTER
from hal_core.source import Source
from hal_kernel.cli import arguments as launches
from hal_kernel.cli.arguments import Given, Launch, given, make_up, resolved
from hal_kernel.cli.kernels import FORMS, AnyKernel, KernelFile, lowered
from hal_kernel.interpreter.sampling import made_up, sample
from hal_kernel.ir import Kernel

HELP = "Measure a kernel on every device, and compare them in one table."

Array = npt.NDArray[Any]

# Made-up sizes grow until a launch does as much as one of these.
_ENOUGH_NBYTES = 64 << 20
_ENOUGH_OPERATIONS = 1 << 28
_SMALLEST = (256, 256, 16, 8)  # threads along an axis, by the number of axes
_SAMPLE_SECONDS = 1.5  # to find out what a kernel does at one size
_FIRST_SAMPLE_SECONDS = 120.0  # where the size may have been given
_MEASURE_SECONDS = 0.5  # of launches, on one device
_LEAST_LAUNCHES = 3


class Measured(NamedTuple):
    """The times of a kernel on one device."""

    device: str
    hardware: str
    launches: int = 0
    seconds: float = 0.0  # the median
    shortest: float = 0.0
    why: str = ""  # there are no times


class Work(NamedTuple):
    """A launch, its buffers' contents and what it does; None where that is not known."""

    launch: Launch
    arrays: list[Array]
    nbytes: int | None
    operations: int | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="FILE[:KERNEL]", help=FORMS)
    launches.add_arguments(parser)
    add = parser.add_argument
    add("--device", dest="devices", action="append", metavar="DEVICE",
        help="Measure on this device only; may be given several times.")  # fmt: skip
    add("--shared", type=int, default=0, help="Launch with so many bytes of shared memory, as a "
        "text with a __local argument needs.")  # fmt: skip
    add("--json", action="store_true", help="Print JSON, for programs to read.")


def run(options: argparse.Namespace) -> int:
    file = KernelFile(options.kernel)
    chosen = file.one()
    kernel = lowered(chosen)
    if isinstance(kernel, Source) and not kernel.is_plain:
        problem = "only its compiler knows its arguments"
        fix = "Give hal.Source one name and a signature."
        raise InvalidArgument(f"bench {kernel.name}", problem, fix=fix)
    images = [param.name for param in kernel.signature.params if param.dtype.kind == "I"]
    if images:
        problem, fix = "it makes no images", "Measure in a program: program(..., wait=True)."
        raise InvalidArgument(f"bench {kernel.name}", problem, got=images[0], fix=fix)
    wanted = given(options, file, kernel.signature)
    for name in options.devices or ():
        Device[name]  # one that was asked for and cannot be opened is an error of the command
    work = of_source(kernel, wanted) if isinstance(kernel, Source) else of_kernel(kernel, wanted)
    names = options.devices or Device.get_available_devices()
    found = [measure(name, chosen, work, options.shared) for name in names]
    made_up = wanted.made_up(kernel.signature)
    if options.json:
        output.write_json({**record(kernel, work, found), "made_up": made_up}, options)
    else:
        show(kernel, work, found)
        if made_up:
            print(f"Made up: {made_up}. Times may depend on it: give your own as NAME=VALUE.")
    return 1 if any(one.why for one in found) or not found else 0


def of_kernel(kernel: Kernel, wanted: Given) -> Work:
    """Return the work of a kernel, at made-up sizes that are large enough to be measured.

    Raises: KernelFault, InvalidArgument when no arguments can be made up.
    """
    n = _SMALLEST[len({node.arg[1] for node in kernel.uops if node.op == "SPECIAL"})]
    best, took = None, 0.0
    while best is None or (
        took < _SAMPLE_SECONDS / 3
        and best[1].nbytes < _ENOUGH_NBYTES
        and best[1].operations < _ENOUGH_OPERATIONS
    ):
        launch, start = make_up(kernel, wanted, n), time.monotonic()
        if best is not None and launch == best[0]:
            break  # everything was given
        geometry, vals = resolved(kernel, launch.geometry), tuple(launch.numbers.values())
        limit = _SAMPLE_SECONDS if best else _FIRST_SAMPLE_SECONDS
        try:
            best = launch, sample(kernel, vals, geometry, wanted.arrays, limit)
        except HalError:
            if best is None:
                raise
            break  # too large, or finding out takes too long
        n, took = 2 * n, time.monotonic() - start
    launch, found = best
    arrays = [
        wanted.arrays.get(param.name, made_up(param.dtype, size))
        for param, size in zip(kernel.signature.pointers, found.sizes, strict=True)
    ]
    return Work(launch, arrays, found.nbytes, found.operations)


def of_source(kernel: Source, wanted: Given) -> Work:
    """Return the work of a kernel that is text, for which nothing can be made up.

    Raises: InvalidArgument naming what was not given.
    """
    numbers, arrays = wanted.numbers, wanted.arrays
    missing = [f"{param.name}=" for param in kernel.signature.params
               if param.name not in numbers | arrays]  # fmt: skip
    missing += [] if wanted.geometry.keys() & {"threads", "grid"} else ["--threads"]
    if missing:
        problem = "a hal.Source does not tell which arguments suit it"
        fix = f"Give {' '.join(missing)}"
        raise InvalidArgument(f"bench {kernel.name}", problem, fix=f"{fix} too.")
    launch = Launch(
        {param.name: numbers[param.name] for param in kernel.signature.values}, wanted.geometry
    )
    resolved(kernel, wanted.geometry)
    elements = [arrays[param.name] for param in kernel.signature.pointers]
    return Work(launch, elements, None, None)


def measure(name: str, kernel: AnyKernel, work: Work, shared: int) -> Measured:
    """Measure a kernel on one device, after one launch that is not counted."""
    hardware = ""
    try:
        device = Device[name]
        hardware = device.info.title
        program = device.compile(kernel)
        params = program.signature.pointers
        buffers = [
            Buffer(device, array.size, uint8 if param.dtype is any_ else param.dtype)
            for param, array in zip(params, work.arrays, strict=True)
        ]
        changed = [param.kind != CONST_POINTER for param in params]
        vals = tuple(work.launch.numbers.values())
        geometry: dict[str, Any] = {**work.launch.geometry, "shared": shared}
        seconds: list[float] = []
        end = math.inf
        while len(seconds) <= _LEAST_LAUNCHES or time.perf_counter() < end:
            # Each launch finds the same data: an index that is read may be another one later.
            for buffer, array, is_changed in zip(buffers, work.arrays, changed, strict=True):
                if is_changed or not seconds:
                    buffer.copyin(array)
            seconds.append(program(*buffers, vals=vals, **geometry, wait=True))
            end = min(end, time.perf_counter() + _MEASURE_SECONDS)  # from the first one's end
    except HalError as error:
        return Measured(name, hardware, why=str(error))
    del seconds[0]
    return Measured(name, hardware, len(seconds), statistics.median(seconds), min(seconds))


def record(kernel: Kernel | Source, work: Work, found: Sequence[Measured]) -> dict[str, object]:
    """Return what `--json` prints. Units: seconds and bytes of one launch."""
    sizes = {
        param.name: array.size
        for param, array in zip(kernel.signature.pointers, work.arrays, strict=True)
    }
    return {
        "kernel": kernel.name, "arguments": {**sizes, **work.launch.numbers},
        "geometry": work.launch.geometry, "nbytes": work.nbytes, "operations": work.operations,
        "devices": [one._asdict() for one in found],
    }  # fmt: skip


def show(kernel: Kernel | Source, work: Work, found: Sequence[Measured]) -> None:
    """Print the launch, a table with a row for each device, and why some have no times."""
    console = output.console()
    sizes = [array.size for array in work.arrays]
    console.print(f"{kernel.name}: {work.launch.text(kernel.signature, sizes)}")
    table = output.table(("device", "hardware"), ("time", "GB/s", "Gop/s"))
    for one in found:
        if not one.why:
            rates = (
                "" if amount is None else f"{amount / one.seconds / 1e9:.2f}"
                for amount in (work.nbytes, work.operations)
            )
            table.add_row(one.device, one.hardware, output.seconds(one.seconds), *rates)
    if table.row_count:
        console.print(table)
    for one in found:
        if one.why:
            console.print(f"{one.device}: {one.why}")
    if not found:
        console.print("No device found. `hal doctor` says why.")
