"""Make up the arguments of a launch from a kernel's signature, but for those that are given."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hal_core.dtypes import any_, values_of
from hal_core.errors import InvalidArgument
from hal_core.geometry import Dim3, Extent, Rules
from hal_core.signature import Param, Signature, convert_value
from hal_core.source import Source
from hal_kernel.cli.kernels import KernelFile
from hal_kernel.interpreter.arguments import LIMITS
from hal_kernel.interpreter.casts import stored_as
from hal_kernel.interpreter.sampling import made_up, sources_of
from hal_kernel.ir import Kernel
from hal_kernel.lang.constants import as_number

Array = npt.NDArray[Any]

_ALONG = ("global_idx", "block_idx")
_ORDER = frozenset({"LT", "LE", "GT", "GE"})
_PLAIN = _ORDER | {"ADD", "SUB", "CAST", "SPECIAL", "PARAM", "CONST", "MUL", "GET", "VAR"}


class Given(NamedTuple):
    """Arguments of a launch that the user gave; the others are made up."""

    numbers: dict[str, int | float | bool]  # by the name of a value
    arrays: dict[str, Array]  # by the name of a pointer
    geometry: dict[str, Extent]  # `threads`, `block` and `grid` as a launch takes them
    with_data: frozenset[str] = (
        frozenset()
    )  # the arrays whose elements were given, not their number

    def made_up(self, signature: Signature) -> str:
        """Name the values and the data that are made up; empty if there are none."""
        names = [
            f"the data of {param.name}" if param.is_pointer else param.name
            for param in signature.params
            if param.name not in self.with_data and param.name not in self.numbers
        ]
        return ", ".join(names)


class Launch(NamedTuple):
    """The arguments of a launch."""

    numbers: dict[str, int | float | bool]  # all of them, in the order of `vals`
    geometry: dict[str, Extent]

    def text(self, signature: Signature, sizes: Sequence[int] = ()) -> str:
        """Describe the launch: `y = 1024 x float32, n = 1024, threads = 1024`; or without `y`."""
        pointers = (
            f"{param.name} = {size} x {param.dtype.name}"
            for param, size in zip(signature.pointers, sizes, strict=False)
        )
        shown = {**self.numbers, **self.geometry}
        others = (
            f"{name} = {' x '.join(map(str, value)) if isinstance(value, tuple) else value}"
            for name, value in shown.items()
        )
        return ", ".join((*pointers, *others))


def add_arguments(parser: argparse._ActionsContainer) -> None:
    """Add to a command the arguments that describe a launch; `given` reads them."""
    add = parser.add_argument
    # With a default, as argparse takes it for required without one.
    add("assignments", nargs="*", metavar="NAME=VALUE", default=[],
        help="Set a parameter of the kernel: a value to a number; a pointer to an array or to its "
        "number of elements. VALUE is a Python expression, which may use the file's names. "
        "Parameters that are left out are made up.")  # fmt: skip
    for name, meaning in (
        ("threads", "Launch this many threads: 1000, 640x480."),
        ("block", "Launch blocks of this shape: 256, 16x16."),
        ("grid", "Launch this many blocks: 100, 40x30."),
    ):
        add(f"--{name}", type=_extent, metavar="N", help=meaning)


def _extent(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected 256 or 16x16 (got {text!r})") from None


def given(
    options: argparse.Namespace, file: KernelFile, signature: Signature, most: int | None = None
) -> Given:
    """Read what the user gave; the interpreter takes arrays of at most `most` elements.

    Raises: InvalidArgument for a name or a value that does not fit; without `most` for arrays that
    are together larger than a quarter of the machine's memory.
    """
    params = {param.name: param for param in signature.params}
    numbers: dict[str, int | float | bool] = {}
    arrays: dict[str, Array] = {}
    with_data, room = set(), _room()
    for text in options.assignments:
        name, _, expression = (part.strip() for part in text.partition("="))
        problem = "a parameter without a value" if not expression else ""
        problem = "two values of one parameter" if name in numbers | arrays else problem
        problem = "no such parameter" if name not in params else problem
        if problem:
            fix = f"Give NAME=VALUE for {', '.join(params) or 'no parameter: it has none'}."
            raise InvalidArgument(f"arguments of {signature.name}", problem, got=name, fix=fix)
        value = file.evaluate(expression)
        if not params[name].is_pointer:
            if isinstance(value, float) and value.is_integer() and not params[name].dtype.is_float:
                value = int(value)  # n=1e6
            numbers[name] = convert_value(value, params[name], signature.name, "every device")
        else:
            size = room // params[name].dtype.itemsize if most is None else most
            where = "this machine's memory" if most is None else "the interpreter"
            arrays[name] = elements(value, params[name], signature.name, size, where)
            room -= arrays[name].nbytes
            with_data |= {name} if isinstance(value, np.ndarray) else set()
    chosen = {name: getattr(options, name) for name in ("threads", "block", "grid")}
    geometry = {name: extent for name, extent in chosen.items() if extent is not None}
    return Given(numbers, arrays, geometry, frozenset(with_data))


def _room() -> int:
    """Return the bytes that all arrays may have: a command copies them more than once."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
    except (AttributeError, ValueError, OSError):  # the system does not say
        return 4 << 30


def elements(value: Any, param: Param, operation: str, most: int, where: str) -> Array:
    """Return the array for a pointer, of which a number gives the size.

    Raises: InvalidArgument for another dtype, and for more elements than there is room for.
    """
    is_whole = type(value) is int or (isinstance(value, float) and value.is_integer())
    is_size = is_whole and value >= 0
    size = value if is_size else np.size(value)
    if size > most:
        raise InvalidArgument(
            operation, f"{param.name!r} is too large for {where}", got=size, limit=most,
            fix="Give fewer elements.",
        )  # fmt: skip
    if is_size:
        return made_up(param.dtype, int(value))
    if isinstance(value, np.ndarray):
        values, dtype = values_of(value, operation, as_number)
        if param.dtype in (dtype, any_):
            return values.reshape(-1).view(stored_as(param.dtype))
    got = f"{value.dtype} array" if isinstance(value, np.ndarray) else repr(value)
    raise InvalidArgument(
        operation, f"{param.name!r} takes a number of elements or a numpy array", got=got,
        limit=f"expected {param.dtype.name}",
    )  # fmt: skip


def make_up(kernel: Kernel, given: Given, n: int) -> Launch:
    """Make a launch of size n: every integer that is not given is n, every float 1.

    As many threads run along an axis as the value or the constant says that the kernel compares
    their number with, `if i < width`, and n where there is none. If the threads are given, such a
    value is their number.
    """
    values, constants = guards(kernel)
    numbers: dict[str, int | float | bool] = {}
    for param in kernel.signature.values:
        made = 1.0 if param.dtype.is_float else min(n, int(param.dtype.max))
        numbers[param.name] = given.numbers.get(param.name, made)
    geometry = dict(given.geometry)
    if "threads" in geometry and "grid" not in geometry:
        threads = geometry["threads"]
        for axis, extent in enumerate(threads if isinstance(threads, tuple) else (threads,)):
            if axis in values and values[axis] not in given.numbers:
                numbers[values[axis]] = extent
    elif "grid" not in geometry:
        axes = {node.arg[1] for node in kernel.uops if node.op == "SPECIAL"}
        ends = {axis: numbers[name] for axis, name in values.items()}
        limits = {axis: int(end) for axis, end in ends.items() if math.isfinite(end)}
        extents = dict.fromkeys(axes, n) | constants | limits
        threads = tuple(extents.get(axis, 1) for axis in range(max(axes, default=0) + 1))
        geometry["threads"] = threads
        if min(threads) < 1:
            small = {name: value for name, value in numbers.items() if value < 1}
            fix = f"Give {', '.join(small)} of 1 or more, or --threads."
            raise InvalidArgument(
                kernel.name, "no thread runs: the kernel compares their number with one below 1",
                got=", ".join(f"{name}={value}" for name, value in small.items()), fix=fix,
            )  # fmt: skip
    return Launch(numbers, geometry)


def guards(kernel: Kernel) -> tuple[dict[int, str], dict[int, int]]:
    """Return the value, and the constant, that the threads' number along an axis is compared with.

    Of several values the first, of several constants the greatest.
    """
    values: dict[int, str] = {}
    found: dict[int, int] = {}
    for node in kernel.uops:
        parts = sources_of(kernel, [node] if node.op in _ORDER else []).values()
        axes = {part.arg[1] for part in parts if part.op == "SPECIAL" and part.arg[0] in _ALONG}
        names = {kernel.signature.params[part.arg].name for part in parts if part.op == "PARAM"}
        if len(axes) != 1 or not all(part.op in _PLAIN for part in parts):
            continue
        (axis,) = axes
        constants = [part.arg for part in parts if part.op == "CONST"]
        limits = [int(end) for end in constants if math.isfinite(end)]
        if len(names) == 1:
            values.setdefault(axis, *names)
        elif not names and limits:
            found[axis] = max(*limits, found.get(axis, 2))
    return values, found


def resolved(kernel: Kernel | Source, geometry: Mapping[str, Extent]) -> tuple[Dim3, Dim3]:
    """Return (grid, block) of a geometry, as devices choose it.

    Raises: InvalidArgument, also for a launch without threads.
    """
    rules = Rules(kernel.name, "every device", LIMITS, LIMITS.max_block_threads, kernel.block)
    grid, block, threads = (geometry.get(name) for name in ("grid", "block", "threads"))
    blocks, shape = rules.resolve(grid, block, threads, 0)
    if 0 in blocks or 0 in shape:
        fix = "Give sizes, and threads, of 1 or more."
        raise InvalidArgument(kernel.name, "the launch has no threads", got=dict(geometry), fix=fix)
    return blocks, shape
