"""Devices: their facts, contexts and streams."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from hal_core.concurrency import Living, poll
from hal_core.device.base import Compiled, DeviceInfo, Limits
from hal_core.errors import DeviceFault
from hal_streams import driver
from hal_streams.borrowed import DefaultStreamQueue, wrap
from hal_streams.clock import StreamClock
from hal_streams.graph import native_replay
from hal_streams.marks import Marks
from hal_streams.queue import StreamQueue
from hal_streams.sharing import Sharing
from hal_streams.staging import PinnedBlocks

if TYPE_CHECKING:
    from hal_streams.allocator import StreamAllocator

T = TypeVar("T")

# Every device with streams, events and the core's renderer of C++ has these.
_ABILITIES = {
    "fp16", "fp64", "int64_atomics", "float_atomics", "subgroups", "timing", "pinned",
    "disassemble",
}  # fmt: skip

keeping: Living[StreamAllocator] = Living()  # of closed devices whose memory is in use


def enumerate_devices(
    family: str, api: driver.StreamDriver, describe: Callable[[str, driver.Facts, bool], DeviceInfo]
) -> list[DeviceInfo]:
    """Return the facts of every device, without a context, each put into words by the backend's
    `describe`."""
    with driver.check("enumerate", family):
        found = [api.facts(index) for index in range(api.count())]
    names = [f"{family}:{n}" if n else family for n in range(len(found))]
    made = [describe(*one, len(found) > 1) for one in zip(names, found, strict=True)]
    graphs = {"graphs"} if api.has_graphs else set()
    return [one._replace(capabilities=one.capabilities | graphs) for one in made]


def describe(
    name: str, facts: driver.Facts, peers: bool, abilities: Set[str] = frozenset()
) -> DeviceInfo:
    """Translate the driver's facts of one device; `peers` is True if the family has others.

    `abilities` are the capabilities beside those that every such device has.
    """
    numbers = facts.attributes
    more = ({"peer"} if peers else set()) | ({"images"} if numbers.get("image_support") else set())
    return DeviceInfo(
        name=name, kind="gpu", title=facts.name, memory_nbytes=facts.memory_nbytes,
        arch=facts.arch, compute_units=numbers["multiprocessor_count"], host_visible=False,
        limits=Limits(
            max_block=tuple(numbers[f"max_block_dim_{axis}"] for axis in "xyz"),
            max_block_threads=numbers["max_threads_per_block"],
            max_grid=tuple(numbers[f"max_grid_dim_{axis}"] for axis in "xyz"),
            shared_nbytes=numbers.get("max_shared_memory_per_block_optin")
            or numbers["max_shared_memory_per_block"],
            view_alignment=16,  # vector types of a `Source` kernel need it
            max_alloc_nbytes=facts.memory_nbytes,
        ),
        capabilities=frozenset(abilities | _ABILITIES | more),
        vendor=dict(numbers),
        subgroup_size=numbers["warp_size"],
    )  # fmt: skip


def wait_for_others(is_inside: Callable[[FrameType], bool]) -> None:
    """Wait until no other thread runs a function whose frame `is_inside`, ten seconds at most.

    The launch itself keeps no count: that would cost a tenth of its time.
    """

    def nobody() -> bool:
        frames, me = sys._current_frames(), threading.get_ident()
        for frame in (frames[thread] for thread in frames if thread != me):
            step: FrameType | None = frame
            while step is not None:
                if is_inside(step):
                    return False
                step = step.f_back
        return True

    poll(nobody, 10)


class Visit:
    """A visit to a device's context: `StreamDevice.visit` makes one around calls of the driver.

    As a generator it would leave a cycle with each refusal, which would keep what finalizers drop.
    """

    __slots__ = ("_before", "_guard", "_ours", "device")

    def __init__(self, device: StreamDevice, operation: str) -> None:
        self.device = device
        self._guard = driver.check(operation, device.name, device.last_launched[0], device)
        self._ours: Any = None  # what `use` has made current
        self._before: Any = None

    def __enter__(self) -> None:
        api = self.device.api
        self._ours = api.current.context
        with suppress(driver.Refused):
            self._before = api.current_context()
        try:
            self.device.own(self._guard.operation, ended=True)
        except BaseException:
            self._leave()
            raise

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            self._guard.__exit__(kind, error, trace)
        finally:
            self._leave()

    def _leave(self) -> None:
        device, before = self.device, self._before
        if before is None or int(before) == int(device.context):
            return
        with driver.check(self._guard.operation, device.name):
            try:
                device.api.set_current(before)
                device.api.current.context = self._ours
            except driver.Refused as error:
                if error.code not in driver.WRONG_CONTEXT:  # it was destroyed meanwhile
                    raise


class StreamDevice(Compiled):
    """One device: its context, which other libraries of the process share, and one stream.

    Order: the stream and the legacy default stream wait for each other's earlier work, so arrays of
    other libraries and our buffers may be used in turns.
    Concurrency: closing waits for calls that other threads are in the middle of.
    """

    api: driver.StreamDriver

    def __init__(self, name: str, info: DeviceInfo, api: driver.StreamDriver) -> None:
        super().__init__(name, info)
        self.api = api
        # Modules with this class's methods, and with those of the backend.
        self._packages = __package__, type(self).__module__.rpartition(".")[0]
        # A program's name, for the text of a fault; in a list, as an attribute takes longer to set.
        self.last_launched = [""]
        # Streams of queues, and what destroys modules and graphs. All that is left when the device
        # closes goes then: finalizers may come later, as in a collection by another thread.
        self.streams: list[Any] = []
        self.made: dict[int, Callable[[], object]] = {}
        self.unused: deque[int] = deque()  # keys of `made`, of programs and graphs that are gone
        self._made_numbers = itertools.count()
        self.in_doubt: list[Any] = []  # used by work of which nobody knows whether it is over
        self._ended = False  # True: the stream is being destroyed, or gone
        self.lost = False  # True: a fault ended the context, as the end of the device showed
        self.clock = StreamClock(self)
        self.marks, self.pinned = Marks(self), PinnedBlocks(self)  # of its queues
        self.sharing = Sharing(self)
        with driver.check("open", name):
            self.context = self.api.retain(self.index)
        try:
            with self.own("open"):  # another library may have changed this thread's context
                self.stream = self.api.make_stream()
        except BaseException:
            self.release_context()
            raise

    def _synchronize(self, timeout: float | None) -> bool:
        if timeout is None:
            is_shared = self.sharing.is_pending()
            if is_shared:
                self.sharing.reclaim()
            self.call("wait", self.api.wait, self.stream)
            if is_shared:
                self.sharing.release()
            return True
        return poll(lambda: self.call("wait", self.api.is_done, self.stream), timeout)

    def _close(self) -> None:
        allocator: StreamAllocator | None = vars(self).get("allocator")
        self.clock.stop()
        self._ended = True
        wait_for_others(self._is_used_by)
        # No other thread may free memory on a stream that is being destroyed.
        with allocator._freeing if allocator else nullcontext():
            try:
                # First the wait, then each callback, the last one first, even if another raises.
                with self.own("close", ended=True), ExitStack() as steps:
                    steps.callback(self.api.destroy_stream, self.stream)
                    if allocator is not None:
                        steps.callback(allocator.destroy_pool)
                    steps.callback(self._destroy_all)
                    steps.callback(self.pinned.destroy)
                    steps.callback(self.marks.destroy)
                    steps.callback(self.in_doubt.clear)
                    for stream in (self.stream, *self.streams):
                        self.api.wait(stream)
            except DeviceFault:
                self.lost = True  # the context, with all that it held
            finally:
                self.sharing.close()
                # Memory in use would keep a lost context, and the device would open with it again.
                for one in keeping if self.lost else ():
                    if one.device.name != self.name:
                        continue
                    one.release_context()
                if allocator is None or not allocator.keep_context():
                    self.release_context()
        if allocator is not None:
            allocator.free_cache()  # other threads may have given back memory until here

    def _make_queue(self) -> StreamQueue:
        self.sharing.release()
        return StreamQueue(self)

    def _make_default_queue(self) -> StreamQueue:
        return DefaultStreamQueue(self)

    def _wrap_queue(self, obj: object) -> StreamQueue | None:
        return wrap(self, obj)

    def _make_clock(self) -> StreamClock:
        return self.clock

    @property
    def graph(self) -> Any:
        """The function that makes a graph of the driver, where that has them."""
        return native_replay if self.api.has_graphs else None

    def _is_used_by(self, frame: FrameType) -> bool:
        """Return True for a function of the backend that works with the stream or the context."""
        if frame.f_globals.get("__package__") not in self._packages:
            return False
        owner, *given = (frame.f_locals.get(name) for name in ("self", "device", "src_device"))
        return self in (owner, getattr(owner, "device", None), *given)

    def check(self, operation: str, ended: bool = False) -> driver.check:
        """Make the context current; the result turns refusals into exceptions of hal-core.

        `with device.check("copyin"):` does both. `ended`: for the end of the device, and after it.
        """
        guard = driver.check(operation, self.name, self.last_launched[0], self)
        with guard:
            if self._ended and not ended:
                self._check_open(operation)
            self.api.use(self.context)
        return guard

    def own(self, operation: str, ended: bool = False) -> driver.check:
        """Do the same as `check`, even if another library has changed the thread's context.

        What allocates, makes or loads needs this: the driver does it in the current context,
        whoever made that current.
        """
        self.api.current.context = None
        return self.check(operation, ended)

    def visit(self, operation: str) -> Visit:
        """Do the same as `own`, and make the earlier context current again at the end.

        Finalizers need this: they run in the middle of anything, of another library's calls too.
        """
        return Visit(self, operation)

    def call(self, operation: str, work: Callable[..., T], *arguments: Any) -> T:
        """Make one call of the driver, and repeat it if our context was not current.

        Faster than `own`, which sets the context each time: the copies, fills and waits that are
        made this way belong to their stream, whichever context is current.
        """
        if self._ended:
            self._check_open(operation)
        try:
            return work(*arguments)
        except driver.Refused as error:
            with driver.check(operation, self.name, self.last_launched[0], self):
                if not self.regained(error):
                    raise
                return work(*arguments)

    def regained(self, error: driver.Refused) -> bool:
        """Make our context current if another one caused a refusal; return whether one did."""
        if error.code not in driver.WRONG_CONTEXT or self.closed:
            return False
        with driver.check("wait", self.name):
            if int(self.api.current_context()) == int(self.context):
                return False
            self.api.set_current(self.context)
            self.api.current.context = self.context
        return True

    @contextmanager
    def events(self, count: int) -> Iterator[list[Any]]:
        """Make events, and destroy them at the end. The caller has made the context current."""
        made: list[Any] = []
        with ExitStack() as steps:
            for _ in range(count):
                made.append(self.api.make_event())
                steps.callback(self.api.destroy_event, made[-1])
            yield made

    def join_queues(self) -> bool:
        """Let later work of our stream come after that of all queues; False if the host must wait.

        Exports need this: other libraries wait for our stream alone.
        """
        streams = [one for one in self._queues if isinstance(one, StreamQueue)]
        queues = [one for one in streams if not one.closed or one._has_work()]
        self._forget_ends()
        # The ends come last: a queue may be dropped meanwhile.
        return all(one.precede(self.stream) for one in queues) and not self._ends

    def release_done(self) -> None:
        """Release what queued work needed that is done by now."""
        for queue in self._queues:
            if isinstance(queue, StreamQueue):
                queue.look()
        self._forget_ends()
        self.sharing.settle()
        self.sharing.release()

    def unload_unused(self) -> None:
        """Unload modules whose programs are gone, and destroy such graphs.

        The caller has made the context current.
        """
        if not self.unused:
            return
        with self.api.relaxed():
            self.api.wait(self.stream)  # a launch or replay may be queued there; queues keep theirs
        with ExitStack() as steps, suppress(LookupError):  # another thread may take the last one
            while True:
                steps.callback(self.made.pop(self.unused.popleft()))

    def add_made(self, destroy: Callable[[], object]) -> int:
        """Note what destroys a module or graph; the number returned is for `unused`."""
        key = next(self._made_numbers)
        self.made[key] = destroy
        return key

    def destroy_stream(self, stream: Any) -> None:
        """Destroy the stream of a queue, once. The caller has made the context current."""
        with suppress(ValueError):  # another thread was faster
            self.streams.remove(stream)
            self.api.destroy_stream(stream)

    def _destroy_all(self) -> None:
        with ExitStack() as steps:  # each is taken, whatever another raises
            while True:
                if not self.streams:
                    break
                steps.callback(self.api.destroy_stream, self.streams.pop())
            while True:
                if not self.made:
                    break
                steps.callback(self.made.popitem()[1])

    def release_context(self) -> None:
        """Give the context back to the driver, which destroys it after its last user."""
        self.api.current.context = None
        with driver.check("close", self.name):
            self.api.release(self.index, self.context, self.lost)
