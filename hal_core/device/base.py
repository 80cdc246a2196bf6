"""An opened device: the base class of every backend's device.

`hal.Device["CPU"]`, which finds the backend and opens the device, is in `__init__.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload
from weakref import WeakValueDictionary, ref

from hal_core import concurrency, config, profiling
from hal_core.allocator import Allocator
from hal_core.compiler import compile_source
from hal_core.compiler.selection import select
from hal_core.concurrency import Living
from hal_core.dtypes import DTYPES, as_dtype, float64
from hal_core.errors import HalError, InvalidArgument, InvalidState, Unsupported, check_class
from hal_core.geometry import Limits
from hal_core.graph import Capture, Graph, Step
from hal_core.hookspecs import CAPABILITIES, DeviceInfo
from hal_core.profiling.host_clock import HostClock
from hal_core.program import Program, Shared
from hal_core.program.several import Programs
from hal_core.queue import (
    DirectQueue,
    Event,
    Freed,
    Queue,
    WorkerQueue,
    captures,
    check_no_capture,
    end_of,
    finish,
    reached,
    seconds_of,
)
from hal_core.signature import Interface
from hal_core.source import Binary, Source, written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hal_core.compiler import Compiler, CompilerPair
    from hal_core.device.backend import Backend
    from hal_core.dtypes import DType
    from hal_core.graph import Graph
    from hal_core.source import Writable

__all__ = ["CAPABILITIES", "BufferKey", "Compiled", "DeviceInfo", "Limits"]

T = TypeVar("T")

# The names with an underscore that a backend defines; all others are the base class's own.
_FILLED_IN = frozenset({
    "_after_fork", "_close", "_instead", "_is_in_call", "_make_clock", "_make_default_queue",
    "_make_queue", "_synchronize", "_wrap_queue",
})  # fmt: skip


class BufferKey:
    """Stands for (device, dtype, aligned): an allocated buffer carries it, a program expects it.

    A launch compares keys by identity. One test covers all three, and that the buffer is alive:
    freeing takes the key away. A view is aligned if the device's `view_alignment` divides its
    offset; `Source` kernels take no other.
    """

    def __init__(self, device: str, dtype: DType, aligned: bool) -> None:
        self.device, self.dtype, self.aligned = device, dtype, aligned

    def __repr__(self) -> str:
        return f"<BufferKey {self.device} {self.dtype.name}{'' if self.aligned else ' misaligned'}>"


class _Keys(dict["DType", BufferKey]):
    """The keys of a device's buffers; those of vectors and structs are made at their first use."""

    def __init__(self, device: str, aligned: bool) -> None:
        self._facts = device, aligned
        super().__init__((kind, BufferKey(device, kind, aligned)) for kind in DTYPES.values())
        self.all = set(self.values())  # what a pointer without a dtype takes

    def __missing__(self, dtype: DType) -> BufferKey:
        device, aligned = self._facts
        made = self.setdefault(dtype, BufferKey(device, dtype, aligned))  # one for all threads
        if dtype.kind != "I":
            self.all.add(made)
        return made


class _MadeOnce(Generic[T]):
    """An attribute of a device that is made at its first use, once for all threads.

    Later reads find it in the instance, as any other attribute, and do not come here.
    (`functools.cached_property` makes it twice for two threads; in Python 3.11 it takes one lock
    for all devices, which dead-locks two that are made by threads that wait for each other.)
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self._name, self.__doc__ = make, make.__name__, make.__doc__

    def __get__(self, device: Compiled | None, kind: type) -> T:
        if device is None:
            return self  # type: ignore[return-value]  # as a property of the class
        with device._lock:
            if self._name not in device.__dict__:
                device._check_open(self._name)
                device.__dict__[self._name] = self._make(device)
            made: T = device.__dict__[self._name]
            return made


class Compiled(concurrency.OfThisProcess):
    """An opened device: it compiles kernels to programs, and has memory and queues to run them.

    Get one from the registry, `hal.Device["CPU"]`; each device has one object. In a forked child a
    device with the capability `subprocess_fork`, as CPU and PYTHON, is the parent's and works on;
    any other is `forked`.

    Order: work without `queue=` runs in the order of the calls, whichever threads made them; each
    queue has an order of its own.
    Owns: its allocator, compilers and programs, and queues while they have work; `close` ends the
    queues and invalidates buffers and programs. Buffers, programs and queues keep their device
    alive.
    """

    name: str  # canonical: "CUDA:1"
    family: str  # "CUDA"
    index: int  # 1
    info: DeviceInfo
    closed: bool
    forked: bool  # True in a forked child, where every use raises ForkError; never on CPU, PYTHON

    # The observer of what queues wait for and which memory they use, which refuses races. A backend
    # in checked mode sets it, for all devices.
    _order: ClassVar[Any] = None

    _instead = "Send device.name, and write hal.Device[name] there. Buffers carry their data."

    def __init__(self, name: str, info: DeviceInfo) -> None:
        earlier = dict(vars(self))
        unknown = info.capabilities - CAPABILITIES
        if unknown:
            raise InvalidArgument("open", "unknown capabilities", got=sorted(unknown), device=name)
        self.name = name
        self.info = info
        self.family, _, index = name.partition(":")
        self.index = int(index or 0)
        self.closed = False
        self.forked = False
        self._backend: Backend = None  # type: ignore[assignment]  # set by the registry
        self._lock = concurrency.fork_safe_lock()
        self._keys, self._misaligned_keys = _Keys(name, True), _Keys(name, False)
        self._ready_compilers: dict[str, Compiler] = {}  # by the name of their pair
        self._failed_compilers: dict[str, str] = {}  # name of a pair -> why it cannot serve
        self._loaded: Living[Program] = Living()
        self._queues: Living[Queue] = Living()
        self._graphs: Living[Graph] = Living()
        self._queue_numbers = itertools.count(1)
        self._ends: list[Event | Freed] = []  # the ends of queues that were dropped
        # Queues that may have work. The device keeps them: were one collected, the memory that its
        # work still uses would be finalized too.
        self._busy: set[Queue] = set()
        # id of a kernel -> the kernel and its program. To hash a weak reference, as a
        # WeakKeyDictionary does, would take longer than all the rest of a warm `compile`.
        self._programs: dict[int, tuple[ref[Any], Program | Programs]] = {}
        # While a text's programs are loaded: id of their image -> what the driver made of it.
        self._modules: WeakValueDictionary[int, Shared] = WeakValueDictionary()
        kept = {name: value for name, value in vars(self).items() if name.startswith("_")}
        # A name that a subclass had set before keeps that value here: `_overwritten` reports it.
        self._kept = kept | {name: earlier[name] for name in kept.keys() & earlier.keys()}
        del self._kept["_backend"]
        concurrency.devices.add(self)
        wanted = config.PROFILE.read()
        if wanted:
            profiling.device_made(wanted)

    # -- what a backend fills in

    def _synchronize(self, timeout: float | None) -> bool:
        """Wait for all queued work; return False when `timeout` seconds pass first."""
        return True

    def _close(self) -> None:
        """Release the driver's context. Order: after the programs and the allocator."""

    def _is_in_call(self) -> bool:
        """Tell whether this thread is in a call that queued work waits for."""
        return False

    def _make_queue(self) -> Queue:
        """Return a new queue; by default one whose work a thread does, on the default queue."""
        return WorkerQueue(self, lambda: self._synchronize(None))

    def _make_default_queue(self) -> Queue:
        """Return the queue for which calls without `queue=` work."""
        return DirectQueue(self, f"the default queue of {self.name}")

    def _wrap_queue(self, obj: object) -> Queue | None:
        """Return a queue over a vendor's own, which is borrowed; None for another object."""
        return None

    def _make_clock(self) -> HostClock:
        """Return the clock that gives a profile its device times. It may queue work to do so."""
        return HostClock(self)

    def _missing(self, part: object, method: str) -> Unsupported:
        """Return the error for a method that a backend should have filled in, and has not."""
        origin = "" if self._backend is None else f"; from {self._backend.origin}"
        problem = f"{type(part).__name__} fills in no {method}{origin}"
        return Unsupported(method, problem, device=self.name, fix="Upgrade the backend.")

    # -- parts

    @_MadeOnce
    def allocator(self) -> Allocator[Any]:
        """The device's memory. Made at the first use."""
        made = self._backend.make("hal_make_allocator", Allocator, device=self)
        if made.device is not self:
            raise self._backend.refuse("hal_make_allocator gave an allocator of another device")
        # Stored before the profiler hears of it: a profile that another thread opens now looks for
        # it in the device.
        self.__dict__["allocator"] = made
        profiling.device_changed(self)
        return made

    @_MadeOnce
    def compilers(self) -> list[CompilerPair]:
        """The compiler pairs, best first. Made at the first use."""
        return self._backend.make_compilers(self)

    @_MadeOnce
    def default_queue(self) -> Queue:
        """The queue of every call without `queue=`. Made at the first use."""
        made = self._make_default_queue()
        made._keeps_work = True  # it lives as long as the device
        return made

    def queue(self) -> Queue:
        """Make a queue, whose work runs in its own order.

        Raises: InvalidState when the device is closed, DeviceUnavailable when its driver refuses.
        """
        self._check_open("queue")
        self._forget_ends()
        made = self._make_queue()
        self._queues.add(made)
        return made

    @property
    def graph(self) -> Callable[[Compiled, list[Step]], Callable[[], None] | None] | None:
        """The function that makes a native replay of steps; None: a graph runs them one by one.

        It may return None for steps that it cannot take.
        """
        return None

    def capture(self) -> AbstractContextManager[Graph]:
        """`with device.capture() as graph:` records this thread's work and runs nothing of it.

        Launches, copies and fills without `queue=` are checked, and become the nodes of the graph;
        work with `queue=` and work of other threads runs as usual. After an exception in the block
        the graph is empty.
        Raises: InvalidState for a capture inside another. Calls in the block raise InvalidState if
        they read data, use a file or a MultiBuffer, wait for the device, or replay a graph.
        """
        self._check_open("capture")
        return Capture(self)

    @property
    def renderer(self) -> Any:
        """The renderer of the compiler pair that serves `@hal.kernel` functions now.

        hal-core calls only its `supports(dtype)`; kernels use the rest.
        """
        self._check_open("compile")
        pair, _ = select(self, None)
        try:
            made = pair.renderer()  # type: ignore[misc]  # select(None) gives one that has one
        except concurrency.unless_of_a_signal(Exception) as error:
            if isinstance(error, HalError):
                raise
            raise self._backend.refuse(f"the renderer of {pair.name} failed", error) from error
        if made is None:
            raise self._backend.refuse(f"the renderer of {pair.name} is None")
        return made

    @property
    def compiler(self) -> Compiler:
        """The compiler of the pair that serves `@hal.kernel` functions now."""
        self._check_open("compile")
        return select(self, None)[1]

    def supports(self, dtype: DType) -> bool:
        """Return True when the device and its selected compiler both take `dtype` in kernels.

        Raises: InvalidArgument when `dtype` is no dtype; CompilerUnavailable when the device takes
        text alone.
        """
        kind = as_dtype(dtype, "supports")
        # float16 and bfloat16 need no ability of the device: kernels compute with them in float32.
        has_float64 = "fp64" in self.info.capabilities
        return (
            kind.name in DTYPES
            and self.renderer.supports(kind)
            and (kind is not float64 or has_float64)
        )

    def _key(self, dtype: DType, aligned: bool = True) -> BufferKey:
        return (self._keys if aligned else self._misaligned_keys)[dtype]

    # -- compile

    @overload
    def compile(self, kernel: Source | Writable) -> Program: ...
    @overload
    def compile(self, kernel: Source[Mapping[str, Any] | None]) -> Programs: ...
    def compile(self, kernel: Source[Any] | Writable) -> Program | Programs:
        """Write the kernel as text, compile it (or take it from the cache on disk) and load it.

        A kernel is a `Source`, or an object whose method `__hal_source__(device)` returns one: a
        `@hal.kernel` function, a `hal.Kernel`, or an object of another compiler. The device keeps
        the program as long as the kernel lives, so a later change of `CPU_CC` affects only other
        kernels, and a device that is opened again. An object without weak references, such as a
        plain tuple or a `hal.Kernel`, is compiled each time. A `Source` of several kernels gives a
        mapping of programs, by their names.

        Raises: KernelSyntaxError, InvalidKernel, CompileError, CompilerUnavailable; Unsupported
        for a dtype, an atomic operation, a block or shared memory that the device lacks.
        """
        known = self._programs.get(id(kernel))
        if known is not None and known[0]() is kernel:
            return known[1]
        self._check_open("compile")
        source = written(kernel, self)  # without a lock: a front end may compile other kernels, too
        if not type(kernel).__weakrefoffset__:
            return self._compiled(source)
        with self._lock:
            known = self._programs.get(id(kernel))  # another thread may have compiled it by now
            if known is None:
                program = self._compiled(source)
                # The dead reference that `forget` is called with is only pop's default.
                forget = partial(self._programs.pop, id(kernel))
                known = self._programs[id(kernel)] = ref(kernel, forget), program
        return known[1]

    def _compiled(self, source: Source[Any]) -> Program | Programs:
        programs = compile_source(self, source)
        return Programs(programs) if source.is_several else programs[0]

    def load(self, binary: Binary, *, source: str = "", pair: str = "") -> Program:
        """Make a program from machine code that was compiled before.

        Raises: CompileError when the bytes are not a binary of this device, lack the entry or
        need symbols that do not exist here.
        """
        program = self._load(binary, source, pair)
        self._modules.pop(id(binary.image), None)  # the next load of it has a module of its own
        return program

    def _load(self, binary: Binary, source: str, pair: str) -> Program:
        self._check_open("load")
        fix = "program.binary is one; text is compiled, by device.compile(hal.Source(...))."
        check_class(binary, Binary, "load", fix, self.name)
        if not (isinstance(binary.image, bytes) and isinstance(binary.interface, Interface)):
            raise InvalidArgument("load", "a hal.Binary of wrong parts", device=self.name, fix=fix)
        program = self._backend.make("hal_make_program", Program, device=self, binary=binary)
        program.source, program.pair = source, pair
        self._loaded.add(program)
        profiling.device_changed(self)
        return program

    # -- order and end

    def synchronize(self, timeout: float | None = None) -> bool:
        """Wait for all queued work; return False when the timeout passes first.

        Units: seconds.
        Raises: DeviceFault when work of the default queue failed. What failed in another queue is
        raised where that queue is waited for. InvalidState when queues wait for each other; their
        work is then dropped.
        """
        if self.closed:
            self._check_open("synchronize")
        if captures:
            check_no_capture("synchronize", "work cannot be waited for")
        deadline = monotonic() + seconds_of(timeout, "synchronize")
        if not (len(self._queues) or self._ends):
            return self._is_done(timeout)
        self._forget_queues()  # the queues that are left have work, or somebody refers to them
        if not all(one._synchronize(max(0.0, deadline - monotonic())) for one in self._queues):
            return False
        self._forget_queues()  # dropped queues become ends
        for left in list(self._ends):
            if not reached(end_of(left), max(0.0, deadline - monotonic())):
                return False
        self._forget_ends()
        if self._order is not None:
            self._order.seen_all(self.name)
        return self._is_done(None if timeout is None else max(0.0, deadline - monotonic()))

    def _is_done(self, timeout: float | None) -> bool:
        """Wait as `_synchronize` does. Raises: PluginError where it tells nothing."""
        done = self._synchronize(timeout)
        if done.__class__ is not bool:
            raise self._backend.refuse(f"_synchronize gave {done!r}, neither True nor False")
        return done

    def close(self) -> None:
        """Wait for queued work and release everything; a second call does nothing.

        Work that waits for an event which nobody has set is dropped, and its events fail.
        Raises: DeviceFault when work failed or the device is lost; it is closed all the same.

        The device's buffers and programs raise InvalidState afterwards.
        """
        with self._lock:
            if self.closed:
                return
            if self._backend is not None:
                self._backend.closing(self)

            def stop() -> None:
                ends = [partial(finish, end_of(left), self) for left in self._ends]
                concurrency.run_each([*[queue._stop for queue in self._queues], *ends])

            # A step of its own, and no function of Python's, which Ctrl-C might end: what follows
            # would release the driver of a device that is open.
            closed = partial(setattr, self, "closed", True)
            steps: list[Callable[[], object]] = [stop, partial(self._synchronize, None), closed]
            if self._order is not None:
                steps.append(partial(self._order.seen_all, self.name))
            # Again: another thread may make a queue until the device is closed.
            steps += [stop, self._programs.clear, self._busy.clear, self._ends.clear]
            programs = [*itertools.filterfalse(attrgetter("_unloaded"), self._loaded)]
            # All of them first: a thread that launches one would keep the next from ending.
            steps += [program._stop for program in programs]
            steps += [program._unload for program in programs]
            if "allocator" in self.__dict__:
                steps.append(self.allocator.close)
            steps.append(self._close)
            if self._backend is not None:
                steps.append(partial(self._backend.observe, "hal_device_closed", self))
            concurrency.run_each(steps)

    def _overwritten(self) -> list[str]:
        """Return the names that this class keeps for itself, and that a subclass uses otherwise."""
        mine = type(self).__mro__[: type(self).__mro__.index(Compiled)]
        theirs = {name for kind in mine for name in vars(kind)}
        methods = {name for name in vars(Compiled) if name.startswith("_") and name[1] != "_"}
        taken = theirs & ((methods - _FILLED_IN) | self._kept.keys())
        lost = {name for name, value in self._kept.items() if vars(self).get(name) is not value}
        return sorted(taken | lost)

    def _forget_ends(self) -> None:
        self._forget_queues()  # first: a queue that nobody else refers to becomes an end
        for left in list(self._ends):  # a finalizer may append to it meanwhile
            if end_of(left)._is_over():
                with suppress(ValueError):  # another thread was faster
                    self._ends.remove(left)

    def _forget_replays(self) -> None:
        """Let graphs drop their last replays, whose buffers nobody else may need any more."""
        for graph in self._graphs:
            graph._plan = None

    def _forget_queues(self) -> None:
        """Drop the queues whose work is done."""
        for queue in self._busy.copy():  # other threads may add to it
            has_work = True
            try:
                # First: a queue that gets work after the look adds itself.
                self._busy.discard(queue)
                has_work = not queue.closed
                with suppress(InvalidState):  # closed meanwhile, or captured: the next call looks
                    has_work = has_work and queue._has_work()
            finally:
                if has_work:
                    self._busy.add(queue)
            for waited in () if has_work else list(queue._waits):
                with suppress(ValueError):  # another thread was faster
                    if waited[1]._is_over():
                        queue._waits.remove(waited)

    def _after_fork(self) -> None:
        """Refuse every use in a forked child, when the driver does not survive the fork."""
        allocator: Allocator[Any] | None = self.__dict__.get("allocator")
        if allocator is not None:
            allocator._after_fork()
        if concurrency.survives_fork(self.info.capabilities):
            # The child has none of the threads that do the work of its parent's queues.
            for queue in self._queues:
                queue._after_fork()  # before its finalizer
            self._queues.clear()
            self._busy.clear()
            self._ends.clear()
            self.__dict__.pop("default_queue", None)
            return
        if self._backend is not None:
            self._backend.closing(self)
        programs = list(self._loaded)
        # Never freed: the finalizer of a vendor's object would call the driver.
        concurrency.never_release(self, dict(self.__dict__), programs)
        for program in programs:
            program._stop()
        for compiler in self._ready_compilers.values():
            for step in ("_compile", "_compile_module", "_headers", "_disassemble"):
                setattr(compiler, step, concurrency.refuse_after_fork(step[1:], self.name))
        if allocator is not None:
            allocator._abandon()
        self.closed = self.forked = True
        self._programs.clear()
        for part in ("allocator", "compilers"):  # made anew, which is refused
            self.__dict__.pop(part, None)

    def _check_open(self, operation: str) -> None:
        if self.forked:
            raise concurrency.fork_error(operation, self.name)
        if self.closed:
            fix = f'Open it again with hal.Device["{self.name}"]; make buffers and programs anew.'
            raise InvalidState(operation, "the device is closed", device=self.name, fix=fix)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<{type(self).__name__} {self.name} {self.info.title!r}{state}>"
