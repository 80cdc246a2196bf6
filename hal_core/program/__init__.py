"""Programs: loaded kernels, whose launch is checked once and cheap from then on.

Launching is the hot path. `Program.__call__` is generated for each shape of signature: it makes
one identity test for each buffer, one class and range test for each value and one dictionary
look-up for the geometry, and hands over to the backend. Any other launch goes to the method that is
written here, which explains what is wrong, or converts and prepares and then launches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, NoReturn, overload
from weakref import ref

from hal_core.buffer import Buffer
from hal_core.concurrency import OfThisProcess
from hal_core.dtypes import alike, any_
from hal_core.errors import CompileError, HalError, InvalidArgument, InvalidState, as_flag
from hal_core.geometry import Dim3, Extent, Rules, is_plain
from hal_core.program.generated import ANY_ALIGNMENT, learn_casts, specialised
from hal_core.queue import Queue, captures, capturing, checked
from hal_core.signature import POINTER, Param, Signature, convert_value

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.dtypes import DType
    from hal_core.source import Binary

_MAX_GEOMETRIES = 1024


class ProgramInfo(NamedTuple):
    """Facts of a loaded kernel; None for a fact that the backend cannot know."""

    registers: int | None = None  # of each thread
    shared_nbytes: int | None = None  # of each block, without a launch's dynamic shared memory
    local_nbytes: int | None = None  # of each thread: its arrays, its stack, its spills
    spill_nbytes: int | None = None  # of each thread: registers that went to memory
    max_block_threads: int | None = None
    block_multiple: int | None = None  # blocks of a multiple of this many threads idle no lane
    block: Dim3 | None = None  # the only block shape that it runs with


class Geometries(dict[tuple[Any, ...], Any]):
    """The geometries of a program by the sizes of its launches: grid, block, threads and shared."""

    __slots__ = ("_program",)

    def __init__(self, program: Program) -> None:
        self._program = ref(program)  # no cycle: a program goes with its last user

    def __missing__(self, sizes: tuple[Any, ...]) -> Any:
        """Return the geometry of sizes that are new; None where no thread runs.

        Raises: as a launch.
        """
        program: Any = self._program()
        rules: Rules = program._rules or program._make_rules()
        grid, block, threads, shared = sizes
        if not (
            (threads.__class__ is int or is_plain(threads))
            and (block is None or is_plain(block))
            and (grid is None or is_plain(grid))
            and shared.__class__ is int
        ):  # no key, as its value may change
            return self[rules.plain(*sizes)]
        x, y, z, a, b, c = rules.blocks_of(grid, block, threads)
        # Sizes that run the same blocks share what the backend made of these.
        same = x, y, z, a, b, c, shared
        geometry = self.get(same)
        if geometry is None:
            geometry = program._prepared((x, y, z), (a, b, c), shared)
            if geometry is None:
                return None
            self[same] = geometry
        if len(self) >= _MAX_GEOMETRIES:
            self.clear()
        self[sizes] = geometry
        return geometry


def _taken(keys: Any, dtype: DType) -> Any:
    several = alike(dtype)
    if dtype is any_:
        return keys.all
    return keys[dtype] if len(several) == 1 else frozenset(keys[one] for one in several)


class Shared:
    """Owns what a driver made of an image, and keeps the image, so that no other has its id."""

    __slots__ = ("__weakref__", "image", "made")

    def __init__(self, image: bytes, made: Any) -> None:
        self.image, self.made = image, made


class Program(OfThisProcess):
    """A kernel loaded on one device. Made by `device.compile` or `device.load`.

    Owns: its machine code; keeps its device alive. Closing the device unloads the program, and a
    launch then raises InvalidState.
    Concurrency: launches may come from any thread; they run in the order of the calls.
    """

    device: Compiled
    binary: Binary
    name: str
    signature: Signature
    source: str = ""  # the text that was compiled
    pair: str = ""  # the name of the compiler pair that served
    info: ProgramInfo  # from the binary; a backend replaces it by the facts of its driver
    formats: ClassVar[tuple[str, ...]] = ()  # of binaries that it loads; a backend fills it in

    _instead = "Send the kernel and compile it there, or send program.binary for device.load."

    def __new__(cls, device: Compiled, binary: Binary) -> Program:
        if cls is Program:
            fix = "Write device.compile(kernel), or device.load(binary)."
            raise InvalidArgument("Program", "its device makes a program", fix=fix)
        any_offset = binary.interface.rendered or binary.interface.offsets
        return object.__new__(specialised(cls, binary.signature, any_offset))

    def __init__(self, device: Compiled, binary: Binary) -> None:
        if binary.format not in (self.formats or (binary.format,)):
            problem = f"the device loads {' and '.join(self.formats)}, not {binary.format!r}"
            fix = "Load what such a device compiled: device.compile(kernel).binary."
            raise CompileError(f"load {binary.name}", problem, device=device.name, fix=fix)
        self.device = device
        self.binary = binary
        self.name = binary.name
        self.signature = binary.signature
        self._numbers = [param.dtype for param in self.signature.values]
        static = binary.interface.shared_nbytes if binary.interface.rendered else None
        self.info = ProgramInfo(shared_nbytes=static, block=binary.interface.block)
        dtypes = [param.dtype for param in self.signature.pointers]
        # A key for each pointer; for one that takes several dtypes, a set of keys.
        self._keys, self._misaligned = (
            tuple(_taken(keys, dtype) for dtype in dtypes)
            for keys in (device._keys, device._misaligned_keys)
        )
        self._geometries = Geometries(self)
        self._rules: Rules | None = None  # made at the first launch
        self._launch: Callable[..., None] | None = None
        self._unloaded = False

    # -- what a backend fills in

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Any:
        """Prepare a launch geometry in the backend's form, once for many launches."""
        return grid, block, shared

    def _bind(self) -> Callable[..., None]:
        """Return `launch(geometry, *args)`; args are opaques and numbers in signature order.

        `launch` queues the work and returns. Any thread may call it, and a finalizer in the middle
        of another call, so each launch has argument storage of its own (`spare_storage`). Numbers
        are already of the parameter's kind and in its range.
        """
        raise self.device._missing(self, "_bind")

    def _launch_timed(self, geometry: Any, args: tuple[Any, ...]) -> float:
        """Launch, wait, and return the seconds that the device spent."""
        raise self.device._missing(self, "_launch_timed")

    def _unload(self) -> None:
        """Free the machine code."""

    # -- what programs of one image share

    def _shared(self, make: Callable[[], Any]) -> Shared:
        """Return the owner of what the driver makes of the image, for all programs of a text.

        Owns: a backend keeps it until `_unload`; it goes with the last program.
        """
        modules, image = self.device._modules, self.binary.image
        found = modules.get(id(image))
        if found is None:
            # Another thread may have made one meanwhile, and its programs have it.
            found = modules.setdefault(id(image), Shared(image, make()))
        return found

    # -- launch

    @overload
    def __call__(
        self, *given: Any, vals: Sequence[Any] | None = ..., grid: Extent | None = ...,
        block: Extent | None = ..., threads: Extent | None = ..., shared: int = ...,
        wait: Literal[True], queue: Queue | None = ...,
    ) -> float: ...  # fmt: skip
    @overload
    def __call__(
        self, *given: Any, vals: Sequence[Any] | None = ..., grid: Extent | None = ...,
        block: Extent | None = ..., threads: Extent | None = ..., shared: int = ...,
        wait: bool = ..., queue: Queue | None = ...,
    ) -> float | None: ...  # fmt: skip
    def __call__(
        self, *given: Any, vals: Sequence[Any] | None = None, grid: Extent | None = None,
        block: Extent | None = None, threads: Extent | None = None, shared: int = 0,
        wait: bool = False, queue: Queue | None = None,
    ) -> float | None:  # fmt: skip
        """Launch with buffers and values in the order of the signature.

        Or give buffers alone, in the order of the pointers, and the values as a tuple or list in
        `vals`. Give `grid` (blocks) and `block` (threads of a block), or `threads` and optionally
        `block`: `threads` rounds up to whole blocks, and the surplus threads run, so kernels need a
        guard. An extent of 0 launches nothing; `threads` with a block of 0 is refused. `shared`
        adds dynamic shared memory to the kernel's own. Extents are integers, and 8.0 is 8. The
        launch allocates a buffer that has no memory yet. With `queue`, a queue of this device, the
        launch is queued there.

        Units: `shared` in bytes; the result in seconds of device time, with `wait=True` only.
        Order: after all earlier calls without `queue`; with it, after earlier work of that queue.
        Raises: InvalidArgument naming the argument, InvalidState for freed buffers or a closed
        device, OutOfMemory.
        """
        # The generated `__call__` has launched already where nothing is unusual.
        self._check_loaded()
        bufs, vals = self._split(given, vals)
        if type(vals) in (tuple, list) and learn_casts(vals, self._numbers):
            launch: Any = self
            return launch(  # type: ignore[no-any-return]
                *bufs, vals=vals, grid=grid, block=block, threads=threads, shared=shared,
                wait=wait, queue=queue,
            )  # fmt: skip
        geometry = self._resolved(grid, block, threads, shared)
        args = self._arguments(bufs, vals)
        if geometry is None:
            return 0.0 if wait else None
        return self._hand_over(geometry, queue, bufs, args, wait, (grid, block, threads, shared))

    def _hand_over(
        self, geometry: Any, queue: Any, bufs: tuple[Buffer, ...], args: tuple[Any, ...],
        wait: Any, sizes: tuple[Any, ...],
    ) -> float | None:  # fmt: skip
        """Launch with arguments that are checked: now, in a queue, or as a node of a graph."""
        if queue is None and captures:
            queue = capturing()
        if wait.__class__ is not bool:
            wait = as_flag(wait, f"launch {self.name}", "wait")
        try:
            if queue is None:
                if wait:
                    return self._launch_timed(geometry, args)
                launch: Any = self._launch
                launch(geometry, *args)
                return None
            if not isinstance(queue, Queue):
                checked(queue, f"launch {self.name}", self.device)
            return queue._add_launch(  # type: ignore[no-any-return]
                self, geometry, bufs, args, sizes, wait
            )
        except (AttributeError, TypeError):
            self._check_loaded()  # another thread may have unloaded it since the launch began
            raise

    def _resolved(self, grid: Any, block: Any, threads: Any, shared: Any) -> Any:
        """Return the geometry of a launch; None where no thread runs. Raises: as a launch."""
        grid = tuple(grid) if grid.__class__ is list else grid
        block = tuple(block) if block.__class__ is list else block
        threads = tuple(threads) if threads.__class__ is list else threads
        try:
            return self._geometries[grid, block, threads, shared]
        except TypeError:  # sequences of other classes
            return self._geometries[self._plain(grid, block, threads, shared)]

    def _plain(self, *sizes: Any) -> tuple[Any, ...]:
        """Return grid, block, threads and shared as Python's integers and tuples of them."""
        return (self._rules or self._make_rules()).plain(*sizes)

    def _make_rules(self) -> Rules:
        limits, interface = self.device.info.limits, self.binary.interface
        self._rules = Rules(
            f"launch {self.name}", self.device.name, limits,
            self.info.max_block_threads or limits.max_block_threads,
            self.info.block or interface.block,
            self.info.shared_nbytes or interface.shared_nbytes,
        )  # fmt: skip
        return self._rules

    def _prepared(self, blocks: Dim3, shape: Dim3, shared: int) -> Any:
        """Return the geometry of blocks that were not launched yet; None where no thread runs."""
        self._check_loaded()
        (self._rules or self._make_rules()).check_limits(blocks, shape, shared)
        if 0 in blocks or 0 in shape:
            return None
        # First: the fast path trusts that the launch of a known geometry is bound.
        if self._launch is None:
            bound = self._bind()
            # By now another thread may have opened a profile or unloaded the program, and put a
            # launch of its own here.
            if self._launch is None:
                self._launch = bound
        return self._geometry(blocks, shape, shared)

    # -- checks

    def _split(
        self, given: tuple[Any, ...], vals: Sequence[Any] | None
    ) -> tuple[tuple[Any, ...], Sequence[Any]]:
        """Return the buffers and the values of a launch, in whichever of both forms it is."""
        if vals is not None:
            return given, vals
        params = self.signature.params
        for param, one in zip(params, given, strict=False):
            if param.is_pointer and not isinstance(one, Buffer):
                self._check_buffer(param, one)
            elif isinstance(one, Buffer) and not param.is_pointer:
                self._refuse(f"argument {param.name!r} is a number, not a buffer", one, param)
        if len(given) != len(params):
            missing = [f"{param.name!r}" for param in params[len(given) :]]
            hint = f": {', '.join(missing)} missing" if missing else "; shared= gives shared memory"
            self._refuse(f"wrong number of arguments{hint}", len(given), len(params))
        bufs = tuple(given[param.position] for param in self.signature.pointers)
        return bufs, tuple(given[param.position] for param in self.signature.values)

    def _arguments(self, bufs: tuple[Buffer, ...], vals: Sequence[Any]) -> tuple[Any, ...]:
        pointers, values = self.signature.pointers, self.signature.values
        if len(bufs) != len(pointers):
            self._refuse("wrong number of buffers", len(bufs), len(pointers))
        if not isinstance(vals, (tuple, list)):
            self._refuse("vals must be a tuple of numbers", vals, f"{len(values)} of them")
        if len(vals) != len(values):
            self._refuse("wrong number of vals", len(vals), len(values))
        operation = f"launch {self.name}"
        args: list[Any] = [None] * len(self.signature.params)
        for param, value in zip(values, vals, strict=True):
            args[param.position] = convert_value(value, param, operation, self.device.name)
        self._check_buffers(bufs)
        # After all checks: a buffer may be allocated here, and a refused launch leaves no trace.
        for param, buffer in zip(pointers, bufs, strict=True):
            try:
                args[param.position] = buffer._opaque_for(operation)
            except HalError as error:
                if error.operation != operation:  # its memory was refused
                    error.args = (f"{operation}, argument {str(param)!r}: {error}",)
                raise
        return tuple(args)

    def _refuse(self, problem: str, got: object, expected: object, fix: str = "") -> NoReturn:
        call = ", ".join([*(param.name for param in self.signature.params), "..."])
        names = [param.name for param in self.signature.values]
        values = ", ".join(names) + ("," if len(names) == 1 else "")
        other = f", or buffers first and vals=({values})" if names else ""
        raise InvalidArgument(
            f"launch {self.name}", problem, got=got, limit=f"expected {expected}",
            device=self.device.name,
            fix=fix or f"Write program({call}), in the order of the kernel{other}.",
        )  # fmt: skip

    def _check_buffers(self, bufs: Sequence[Buffer]) -> None:
        """Raises: InvalidArgument naming the argument."""
        images: dict[int, Param] = {}
        for param, buffer in zip(self.signature.pointers, bufs, strict=True):
            self._check_buffer(param, buffer)
            first = images.setdefault(id(buffer), param) if param.dtype.kind == "I" else param
            if first is not param and POINTER in (first.kind, param.kind):
                problem = f"arguments {first.name!r} and {param.name!r} are one image, and it is "
                fix = "Write into another image."
                self._refuse(f"{problem}written", f"{first}, {param}", "two images", fix)

    def _check_buffer(self, param: Param, buffer: object) -> None:
        what = f"argument {param.name!r}"
        if not isinstance(buffer, Buffer):
            fix = "Make one: hal.Buffer.from_numpy(array, device), or hal.Buffer(device, 0, dtype) "
            fix += "for None. hal.launch takes a hal.MultiBuffer."
            self._refuse(f"{what} is not a hal.Buffer", type(buffer).__name__, param, fix)
        kind = buffer._taken_as
        if "I" in (kind.kind, param.dtype.kind) and kind is not param.dtype:
            is_image = kind.kind == "I"
            fix = "An image is made by hal.BufferSpec(image=hal.Image(width, height)), others are "
            fix += "buffers: copy_from copies between the two."
            axes = " of other axes" if kind.kind == param.dtype.kind else ""
            problem = f"{what} is {'an image' if is_image else 'no image'}{axes}"
            self._refuse(problem, f"{kind.name}{'' if is_image else '*'}", param, fix)
        if param.dtype is any_ and buffer._start() % ANY_ALIGNMENT:
            fix = "Copy the part into a buffer of its own."
            problem = f"{what} begins between elements of a pointer without a dtype"
            self._refuse(problem, buffer._start(), f"a multiple of {ANY_ALIGNMENT} bytes", fix)
        # A record has the alignment of a field, and a vector its own.
        is_vector = param.dtype in alike(kind) and not buffer._start() % param.dtype.itemsize
        if param.dtype is not any_ and not is_vector and kind not in alike(param.dtype):
            fix = "Convert with array.astype(...); buffer.view(dtype=...) reinterprets the bytes."
            self._refuse(f"{what} has the wrong dtype", buffer.dtype.name, param.dtype, fix)
        if buffer._device is not self.device:
            buffer._device._check_open(f"launch {self.name} with {what}")
            fix = "Copy it first: there.copy_from(here)."
            self._refuse(f"{what} is on another device", buffer.device, self.device.name, fix)
        alignment, start = self.device.info.limits.view_alignment, buffer._start()
        interface = self.binary.interface
        if not (interface.rendered or interface.offsets) and start % alignment:
            problem = f"{what} starts at an offset the device cannot give to a Source kernel"
            fix = "Copy the part into a buffer of its own. Kernels of @hal.kernel take any offset, "
            fix += "and so do texts in OpenCL C with offsets=True."
            self._refuse(problem, start, f"a multiple of {alignment} bytes", fix)

    # -- end

    def unload(self) -> None:
        """Free the machine code; launching afterwards raises InvalidState.

        The device then compiles the kernel again at its next use. Order: after the end of every
        launch.
        """
        if not self._unloaded:
            self._stop()
            known = self.device._programs
            for key, (_, made) in list(known.items()):
                if made is self or (not isinstance(made, Program) and self in made.values()):
                    known.pop(key, None)
            self._unload()

    def _stop(self) -> None:
        """Refuse every launch from now on; with no geometry known the fast path takes none."""
        self._unloaded = True
        self._geometries = Geometries(self)
        self._launch = self._refuse_unloaded

    def _check_loaded(self) -> None:
        if self._unloaded:
            self._refuse_unloaded()

    def _refuse_unloaded(self, *args: Any) -> NoReturn:
        operation = f"launch {self.name}"
        self.device._check_open(operation)
        problem, fix = "the program was unloaded", "Compile the kernel again."
        raise InvalidState(operation, problem, device=self.device.name, fix=fix)

    def __repr__(self) -> str:
        state = " unloaded" if self._unloaded else ""
        return f"<Program {self.name}({self.signature}) on {self.device.name}{state}>"
