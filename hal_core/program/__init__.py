"""A loaded kernel: checked once, bound once, launched cheaply.

Launching is the hot path. `Program.__call__` is generated for each shape of signature: it tests
that every argument is what the last checked launch knows - one identity test a buffer, one class
and range test a value, one dictionary look-up for the geometry - and hands over to the backend.
Anything else goes to `_checked`, which explains, converts, or prepares and then launches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, overload

from hal_core import concurrency
from hal_core.buffer import Buffer
from hal_core.errors import InvalidArgument, InvalidState
from hal_core.geometry import Dim3, Extent, Rules, is_plain
from hal_core.ir import Param, Signature, convert_value
from hal_core.program.call import specialised

if TYPE_CHECKING:
    from hal_core.compiler import Binary
    from hal_core.device import Compiled

_MAX_GEOMETRIES = 1024


class ProgramInfo(NamedTuple):
    """Facts of a loaded kernel; None where the backend cannot know."""

    registers: int | None = None  # a thread
    shared_nbytes: int | None = None  # a block, static
    local_nbytes: int | None = None  # a thread: arrays of its own, the stack, spills
    spill_nbytes: int | None = None  # a thread: registers that found no room
    max_block_threads: int | None = None
    block_multiple: int | None = None  # blocks of a multiple of it leave no lane idle


class Program:
    """A kernel loaded on one device. Made by `device.compile` or `device.load`.

    Owns: its machine code; keeps its device open. Closing the device unloads it, and a launch
    then raises InvalidState.
    Concurrency: launches may come from any thread; they run in the order of the calls.
    """

    device: Compiled
    binary: Binary
    name: str
    signature: Signature
    source: str = ""  # what the compiler was given
    pair: str = ""  # the compiler pair that made it
    info: ProgramInfo  # as far as the binary says; a backend puts in what its driver knows

    def __new__(cls, device: Compiled, binary: Binary) -> Program:
        return object.__new__(specialised(cls, binary.signature, binary.rendered))

    def __init__(self, device: Compiled, binary: Binary) -> None:
        self.device = device
        self.binary = binary
        self.name = binary.entry
        self.signature = binary.signature
        static = binary.shared_nbytes if binary.rendered else None
        self.info = ProgramInfo(shared_nbytes=static)
        dtypes = [param.dtype for param in binary.signature.pointers]
        self._keys = tuple(device._keys[dtype] for dtype in dtypes)
        self._misaligned = tuple(device._misaligned_keys[dtype] for dtype in dtypes)
        self._geometries: dict[object, Any] = {}
        self._launch: Callable[..., None] | None = None
        self._unloaded = False

    # -- what a backend fills in

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Any:
        """The backend's ready-made form of a launch geometry; made once, used for many."""
        return grid, block, shared

    def _bind(self) -> Callable[..., None]:
        """`launch(geometry, *args)`: args are opaques and Python numbers in signature order.

        Order: enqueues and returns. Called from any thread, and by finalizers in the middle of
        itself, so argument storage is each launch's own. Numbers are already of the parameter's
        kind and in its range.
        """
        raise self.device._missing(self, "_bind")

    def _launch_timed(self, geometry: Any, args: tuple[Any, ...]) -> float:
        """Launch, wait, and give the seconds the device spent."""
        raise self.device._missing(self, "_launch_timed")

    def _unload(self) -> None:
        """Free the code."""

    # -- launch

    @overload
    def __call__(
        self,
        *bufs: Buffer,
        vals: Sequence[Any] = ...,
        grid: Extent | None = ...,
        block: Extent | None = ...,
        threads: Extent | None = ...,
        shared: int = ...,
        wait: Literal[True],
    ) -> float: ...
    @overload
    def __call__(
        self,
        *bufs: Buffer,
        vals: Sequence[Any] = ...,
        grid: Extent | None = ...,
        block: Extent | None = ...,
        threads: Extent | None = ...,
        shared: int = ...,
        wait: Literal[False] = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        *bufs: Buffer,
        vals: Sequence[Any] = ...,
        grid: Extent | None = ...,
        block: Extent | None = ...,
        threads: Extent | None = ...,
        shared: int = ...,
        wait: bool,
    ) -> float | None: ...
    def __call__(
        self,
        *bufs: Buffer,
        vals: Sequence[Any] = (),
        grid: Extent | None = None,
        block: Extent | None = None,
        threads: Extent | None = None,
        shared: int = 0,
        wait: bool = False,
    ) -> float | None:
        """Launch: `bufs` for the signature's pointers, `vals` for its values, both in order.

        Give `grid` (blocks) and `block` (threads a block), or `threads` and optionally `block`:
        `threads` rounds up to whole blocks, and the surplus threads run - kernels guard.
        0 along any axis launches nothing. `shared` adds dynamic shared memory
        to what the kernel declares. Extents are integers: 8.0 is refused, unless the program was
        launched with 8 before, which is the same key of what it remembers.
        A buffer that was never allocated is allocated.

        Units: `shared` in bytes; the result in seconds of device time, with `wait=True` only.
        Order: after all earlier work of the device.
        Raises: InvalidArgument naming the argument, InvalidState for freed buffers or a closed
        device, OutOfMemory.
        """
        return self._checked(bufs, vals, grid, block, threads, shared, wait)

    def _checked(
        self,
        bufs: tuple[Buffer, ...],
        vals: Sequence[Any],
        grid: Extent | None,
        block: Extent | None,
        threads: Extent | None,
        shared: int,
        wait: bool,
    ) -> float | None:
        """The slow path: checks everything, says what is wrong, prepares the next fast launch."""
        if self._unloaded:
            self._refuse_unloaded()
        extents = self._rules().resolve(grid, block, threads, shared)
        args = self._arguments(bufs, vals)
        if 0 in extents[0] or 0 in extents[1]:
            return 0.0 if wait else None
        try:
            return self._prepared(args, extents, (grid, block, threads, shared), wait)
        except (AttributeError, TypeError):
            if self._unloaded:  # meanwhile, by another thread
                self._refuse_unloaded()
            raise

    def _prepared(
        self,
        args: tuple[Any, ...],
        extents: tuple[Dim3, Dim3],
        key: tuple[Any, Any, Any, Any],
        wait: bool,
    ) -> float | None:
        """Launch, and remember the geometry for the fast way."""
        plain = all(map(is_plain, key))  # anything else works too, but is not remembered
        geometry = self._geometries.get(key) if plain else None
        if geometry is None:
            geometry = self._geometry(*extents, key[3])
        if self._launch is None:
            bound = self._bind()
            if self._launch is None:  # else meanwhile a profile was opened, or the program unloaded
                self._launch = bound
        launch = self._launch
        if plain:
            if len(self._geometries) >= _MAX_GEOMETRIES:
                self._geometries.clear()
            self._geometries[key] = geometry
        if wait:
            return self._launch_timed(geometry, args)
        launch(geometry, *args)
        return None

    # -- checks

    def _arguments(self, bufs: tuple[Buffer, ...], vals: Sequence[Any]) -> tuple[Any, ...]:
        pointers, values = self.signature.pointers, self.signature.values
        if len(bufs) != len(pointers):
            self._refuse("wrong number of buffers", len(bufs), len(pointers))
        if not isinstance(vals, (tuple, list)):
            self._refuse("vals is a tuple of numbers", vals, f"{len(values)} of them")
        if len(vals) != len(values):
            self._refuse("wrong number of vals", len(vals), len(values))
        args: list[Any] = [None] * len(self.signature.params)
        for param, value in zip(values, vals, strict=True):
            args[param.position] = self._value(param, value)
        for param, buffer in zip(pointers, bufs, strict=True):
            self._check_buffer(param, buffer)
        for param, buffer in zip(pointers, bufs, strict=True):
            args[param.position] = buffer._opaque_for(f"launch {self.name}")
        return tuple(args)

    def _refuse(self, problem: str, got: object, expected: object, fix: str = "") -> NoReturn:
        pointers = ", ".join(param.name for param in self.signature.pointers)
        names = [param.name for param in self.signature.values]
        values = ", ".join(names) + ("," if len(names) == 1 else "")
        call = ", ".join(filter(None, (pointers, values and f"vals=({values})", "...")))
        raise InvalidArgument(
            f"launch {self.name}",
            problem,
            got=got,
            limit=f"expected {expected}",
            device=self.device.name,
            fix=fix or f"Write program({call}): buffers first, numbers in vals=.",
        )

    def _check_buffer(self, param: Param, buffer: object) -> None:
        what = f"argument {param.name!r}"
        if not isinstance(buffer, Buffer):
            fix = "Make one: hal.Buffer.from_numpy(array, device). Numbers go into vals=."
            self._refuse(f"{what} is not a hal.Buffer", type(buffer).__name__, param, fix)
        if buffer.dtype is not param.dtype:
            fix = "Convert on the host, or look at the same bytes with buffer.view(dtype=...)."
            self._refuse(f"{what} has the wrong dtype", buffer.dtype.name, param.dtype, fix)
        if buffer._device.forked:
            raise concurrency.fork_error(f"launch {self.name}", buffer.device)
        if buffer._device.closed:
            raise InvalidState(
                f"launch {self.name}",
                f"the device of {what} was closed",
                device=buffer.device,
                fix="Make a new buffer on the device that is open now.",
            )
        if buffer._device is not self.device:
            raise InvalidArgument(
                f"launch {self.name}",
                f"{what} is on another device",
                got=buffer.device,
                limit=f"expected {self.device.name}",
                device=self.device.name,
                fix="Copy it first: there.copy_from(here).",
            )
        alignment = self.device.info.limits.view_alignment
        start = buffer._start()
        if not self.binary.rendered and start % alignment:
            self._refuse(
                f"{what} starts at an offset the device cannot give to a Source kernel",
                start,
                f"a multiple of {alignment} bytes",
                "Copy the part into a buffer of its own; rendered kernels take any offset.",
            )

    def _value(self, param: Param, value: Any) -> int | float | bool:
        return convert_value(value, param, f"launch {self.name}", self.device.name)

    def _rules(self) -> Rules:
        limits = self.device.info.limits
        most = self.info.max_block_threads or limits.max_block_threads
        where = f"launch {self.name}", self.device.name
        static = self.info.shared_nbytes or self.binary.shared_nbytes
        return Rules(*where, limits, most, self.binary.block, static)

    # -- end

    def unload(self) -> None:
        """Free the code; launching afterwards raises InvalidState. Not while a launch runs."""
        if not self._unloaded:
            self._stop()
            self._unload()

    def _stop(self) -> None:
        """From now on a launch is refused, on the fast way too."""
        self._unloaded = True
        self._geometries = {}
        self._launch = self._refuse_unloaded

    def _refuse_unloaded(self, *args: Any) -> NoReturn:
        if self.device.forked:
            raise concurrency.fork_error(f"launch {self.name}", self.device.name)
        raise InvalidState(
            f"launch {self.name}",
            "the program's device was closed",
            device=self.device.name,
            fix="Compile the kernel again on an open device.",
        )

    def __repr__(self) -> str:
        state = " unloaded" if self._unloaded else ""
        return f"<Program {self.name}({self.signature}) on {self.device.name}{state}>"
