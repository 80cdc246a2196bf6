"""Machine code under HAL_CHECK=1: `Source` kernels, and rendered ones where CPU_CC asks for it.

Each launch runs in a child process. What it wrote comes back if it ended well and wrote nothing but
the elements of its arguments; else there is an exception, and memory is as it was.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from hal_core.errors import DeviceFault, KernelFault, OutOfBounds
from hal_core.geometry import Dim3
from hal_core.ir import CONST_POINTER, Param
from hal_cpu import driver
from hal_cpu.checked import child_process
from hal_cpu.checked.child_process import Outcome, Region
from hal_cpu.checked.guarded_memory import Place
from hal_cpu.program import CPUProgram, check_shared

if TYPE_CHECKING:
    from hal_core.compiler import Binary
    from hal_cpu.checked.device import CheckedDevice

_GUARD = "Guard the access, if (i < n): threads= rounds up to whole blocks."
_WHY: dict[int, str] = {
    signal.SIGSEGV: "Look at its indices, its pointers, and what it puts on the stack.",
    signal.SIGFPE: "Look at its divisions: by zero, and of the least integer by -1.",
    signal.SIGILL: "Look for __builtin_trap() and for code that cannot be reached.",
    signal.SIGTRAP: "Look for __builtin_trap() and for code that cannot be reached.",
    signal.SIGABRT: "Look for abort() and for an assert() that does not hold.",
}


class Geometry(NamedTuple):
    launch: ctypes.Array[ctypes.c_int32]  # grid and block
    blocks: int


class Argument(NamedTuple):
    """A pointer of the signature, and what it is given."""

    param: Param
    place: Place

    @property
    def is_const(self) -> bool:
        return self.param.kind == CONST_POINTER

    def element(self, address: int) -> int:
        """Of the element that has the byte at `address`."""
        return (address - self.place) // self.param.dtype.itemsize

    @property
    def limit(self) -> str:
        size = self.place.nbytes // self.param.dtype.itemsize
        return f"limit 0 to {size - 1}" if size else "it has no element"

    def distance(self, address: int) -> int:
        return max(self.place - address, address - (self.place + self.place.nbytes) + 1, 0)


class NativeProgram(CPUProgram):
    """Raises, at a launch: DeviceFault, OutOfBounds or KernelFault, with nothing written."""

    device: CheckedDevice

    def __init__(self, device: CheckedDevice, binary: Binary) -> None:
        super().__init__(device, binary)
        self.code = self._keeping.code

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Any:
        check_shared(self.name, shared, self.device.name)
        return Geometry((ctypes.c_int32 * 6)(*grid, *block), grid[0] * grid[1] * grid[2])

    def _bind(self) -> Callable[..., None]:
        code, pack, device, signature = self.code, self._pack, self.device, self.signature

        def launch(geometry: Geometry, *args: Any) -> None:
            given = zip(signature.params, args, strict=True)
            arguments = [Argument(param, arg) for param, arg in given if param.is_pointer]
            one = Launch(f"kernel {signature.name}", device, arguments)
            with device.running.using(*(argument.place for argument in arguments)):
                one.run(code.entry, pack(*args), geometry)

        return launch

    def _launch_timed(self, geometry: Any, args: tuple[Any, ...]) -> float:
        start = perf_counter()
        self._bind()(geometry, *args)
        return perf_counter() - start

    def _unload(self) -> None:
        super()._unload()
        self.code = None


class Launch:
    """One launch, and what to say of how it ended."""

    def __init__(self, operation: str, device: CheckedDevice, arguments: list[Argument]) -> None:
        self.operation, self.device, self.arguments = operation, device, arguments

    def run(self, entry: int, args: bytes, geometry: Geometry) -> None:
        self.device.raise_fault()
        for param, place in self.arguments:
            if place.block is not None:
                place.block.called = f"{param.name!r} of {self.operation}"
        writable = _joined((a.place, a.place + a.place.nbytes) for a in self._pointers(False))
        known = _joined(_accessible(argument.place) for argument in self.arguments)
        beside = _without(known, writable)
        outcome = child_process.run(
            entry, args, *geometry, beside, [*beside, *writable], self.device.seconds
        )
        if not outcome.done:
            self._refuse(outcome)
        for region, before, after in zip(beside, outcome.before, outcome.after, strict=False):
            changed = np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8)
            if changed.any():
                self._refuse_stray(region.address + int(changed.argmax()))
        for region, after in zip(writable, outcome.after[len(beside) :], strict=True):
            driver.memory_at(*region)[:] = after
        for argument in self._pointers(False):
            argument.place.mark()

    def _pointers(self, const: bool) -> list[Argument]:
        return [argument for argument in self.arguments if argument.is_const == const]

    # -- what went wrong

    def _refuse_stray(self, address: int) -> NoReturn:
        """For a write to accessible memory that is no element of a writable argument."""
        where = self.device.name
        for argument in self._pointers(True):
            if not argument.distance(address):
                raise KernelFault(
                    self.operation,
                    f"a write of {argument.param.name!r}, which is const",
                    got=argument.element(address),
                    limit=argument.limit,
                    device=where,
                    fix="Leave const out of the signature.",
                )
        raise self._outside(min(self.arguments, key=lambda a: a.distance(address)), address)

    def _outside(self, argument: Argument, address: int) -> OutOfBounds:
        return OutOfBounds(
            self.operation,
            f"out of bounds: a write of {argument.param.name!r}",
            got=argument.element(address),
            limit=argument.limit,
            device=self.device.name,
            fix=_GUARD,
        )

    def _refuse(self, outcome: Outcome) -> NoReturn:
        where: Any = {"device": self.device.name}
        if outcome.late:
            raise DeviceFault(
                self.operation,
                "it does not end: it has taken too long",
                limit=f"limit {self.device.seconds:g} s",
                fix="Look at its loops, or allow more with HAL_CPU_CHECK_SECONDS.",
                **where,
            )
        if outcome.signal in (signal.SIGSEGV, signal.SIGBUS) and outcome.address:
            self._refuse_access(outcome)
        if not outcome.signal:
            problem = f"it left the process, with status {outcome.status}"
            raise DeviceFault(self.operation, problem, fix="Return from the kernel.", **where)
        fix = _WHY.get(outcome.signal, "Look for who sends it: a limit of the system, or a person.")
        raise DeviceFault(self.operation, f"it ended with {_name(outcome)}", fix=fix, **where)

    def _refuse_access(self, outcome: Outcome) -> NoReturn:
        address, problem = outcome.address, f"{_name(outcome)} at {outcome.address:#x}"
        facts: dict[str, Any] = {}
        near = [a for a in self.arguments if _is_around(a.place, address)]
        if near:
            argument = min(near, key=lambda a: a.distance(address))
            problem += f", out of bounds of {argument.param.name!r}"
            facts = {"got": argument.element(address), "limit": argument.limit}
        else:
            block, freed = self.device.allocator.block_near(address)
            if block is not None:
                problem += f", {'in the freed' if freed else 'beside the'} {block}"
        fix = _GUARD if near else _WHY[signal.SIGSEGV]
        raise DeviceFault(self.operation, problem, device=self.device.name, fix=fix, **facts)


def _name(outcome: Outcome) -> str:
    return signal.Signals(outcome.signal).name


# -- ranges of addresses

Range = tuple[int, int]  # from, up to


def _accessible(place: Place) -> Range:
    """All that a kernel can reach there without a fault."""
    block = place.block
    return (place, place + place.nbytes) if block is None else (block.low, block.high)


def _is_around(place: Place, address: int) -> bool:
    low, high = _accessible(place)
    return low - driver.PAGE <= address < high + driver.PAGE


def _joined(ranges: Iterator[Range]) -> list[Region]:
    """The same addresses in ranges that do not overlap."""
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        elif high > low:
            found.append((low, high))
    return [Region(low, high - low) for low, high in found]


def _without(known: list[Region], taken: list[Region]) -> list[Region]:
    """What of `known` is not `taken`, which lies inside of it."""
    found = []
    for region in known:
        low, end = region.address, region.address + region.nbytes
        for start, nbytes in taken:
            if low <= start < end:
                if start > low:
                    found.append(Region(low, start - low))
                low = start + nbytes
        if end > low:
            found.append(Region(low, end - low))
    return found
