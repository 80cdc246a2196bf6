"""NVIDIA GPUs: their facts, contexts and streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from hal_core.concurrency import Living
from hal_core.device import Compiled, DeviceInfo, Limits
from hal_core.errors import DeviceFault
from hal_core.polling import poll
from hal_cuda import driver
from hal_cuda.clock import CUDAClock

if TYPE_CHECKING:
    from hal_cuda.allocator import CUDAAllocator

T = TypeVar("T")

keeping: Living[CUDAAllocator] = Living()  # of closed devices, with memory that is still out


def enumerate_devices(family: str) -> list[DeviceInfo]:
    """Facts of every GPU; no context is made. Raises: DeviceUnavailable."""
    api = driver.api()
    with driver.check("enumerate", family):
        facts = [api.facts(index) for index in range(api.count())]
    return [describe(f"{family}:{n}" if n else family, one) for n, one in enumerate(facts)]


def describe(name: str, facts: driver.Facts) -> DeviceInfo:
    numbers = facts.attributes
    capabilities = {
        "fp16", "fp64", "int64_atomics", "float_atomics", "timing", "pinned", "disassemble", "peer",
    }  # fmt: skip
    if facts.capability >= (8, 0):
        capabilities.add("bf16")
    return DeviceInfo(
        name=name,
        kind="gpu",
        title=facts.name,
        memory_nbytes=facts.memory_nbytes,
        arch="sm_{}{}".format(*facts.capability),
        compute_units=numbers["multiprocessor_count"],
        host_visible=False,
        limits=Limits(
            max_block=tuple(numbers[f"max_block_dim_{axis}"] for axis in "xyz"),  # type: ignore[arg-type]
            max_block_threads=numbers["max_threads_per_block"],
            max_grid=tuple(numbers[f"max_grid_dim_{axis}"] for axis in "xyz"),  # type: ignore[arg-type]
            shared_nbytes=numbers["max_shared_memory_per_block_optin"]
            or numbers["max_shared_memory_per_block"],
            view_alignment=16,  # what vector types of a `Source` kernel ask for
            max_alloc_nbytes=facts.memory_nbytes,
        ),
        capabilities=frozenset(capabilities),
        vendor={**numbers, "compute_capability": facts.capability},
    )


class CUDADevice(Compiled):
    """A GPU: its primary context, which other libraries of the process share, and one stream.

    Order: the stream waits for work on the legacy default stream, and that for it, so that arrays
    of PyCUDA or CuPy and buffers of ours may be used in turns.
    """

    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info)
        self.api = driver.api()
        self.last_launched = ""  # a program's name, for the text of a fault
        self.unused: deque[Any] = deque()  # modules of programs that are gone
        self.clock = CUDAClock(self)
        with driver.check("open", name):
            self.context = self.api.retain(self.index)
            try:
                driver.use(self.context)
                self.stream = self.api.make_stream()
            except BaseException:
                self.release_context()
                raise

    @property
    def driver_version(self) -> tuple[int, int]:
        """Of CUDA, the newest that the driver takes."""
        with self.own("open"):
            version: tuple[int, int] = self.api.version()
            return version

    def check(self, operation: str) -> driver.check:
        """`with device.check("copyin"):` - the context is current, refusals become ours."""
        guard = driver.check(operation, self.name, self.last_launched, self)
        with guard:
            driver.use(self.context)
        return guard

    def own(self, operation: str) -> driver.check:
        """As `check`, and sure of it: another library may have changed the context meanwhile, and
        the driver makes and loads things in whichever is current."""
        driver.current.context = None
        return self.check(operation)

    @contextmanager
    def visit(self, operation: str) -> Iterator[None]:
        """As `own`, for what finalizers do: in the middle of anything, of another library's calls
        too, which finds its context current as before."""
        ours, before = driver.current.context, None
        with suppress(driver.Refused):
            before = self.api.current_context()
        try:
            with self.own(operation):
                yield
        finally:
            if before is not None and int(before) != int(self.context):
                self._leave(operation, before, ours)

    def _leave(self, operation: str, before: Any, ours: Any) -> None:
        with driver.check(operation, self.name):
            try:
                self.api.set_current(before)
                driver.current.context = ours
            except driver.Refused as error:
                if error.code not in driver.WRONG_CONTEXT:  # else it was destroyed meanwhile
                    raise

    def call(self, operation: str, work: Callable[..., T], *arguments: Any) -> T:
        """One call of the driver, where asking for the context first would show."""
        with self.check(operation):
            try:
                return work(*arguments)
            except driver.Refused as error:
                if not self.regained(error):
                    raise
                return work(*arguments)

    def regained(self, error: driver.Refused) -> bool:
        """Whether the driver refused because another context was current; ours is now."""
        if error.code not in driver.WRONG_CONTEXT or self.closed:
            return False
        with driver.check("wait", self.name):
            if int(self.api.current_context()) == int(self.context):
                return False
            self.api.set_current(self.context)
        return True

    @contextmanager
    def events(self, count: int) -> Iterator[list[Any]]:
        """The context is current."""
        made: list[Any] = []
        with ExitStack() as steps:
            while len(made) < count:
                made.append(self.api.make_event())
                steps.callback(self.api.destroy_event, made[-1])
            yield made

    def _synchronize(self, timeout: float | None) -> bool:
        with self.own("wait"):
            if timeout is None:
                self.api.wait(self.stream)
                return True
            return poll(lambda: self.api.is_done(self.stream), timeout)

    def _make_clock(self) -> CUDAClock:
        return self.clock

    def unload_unused(self) -> None:
        """The context is current."""
        with ExitStack() as steps, suppress(IndexError):  # another thread may be faster
            while True:
                steps.callback(self.api.unload, self.unused.popleft())

    def _close(self) -> None:
        allocator: CUDAAllocator | None = vars(self).get("allocator")
        self.clock.stop()
        # Meanwhile no other thread frees memory behind work of the stream.
        with allocator._freeing if allocator else nullcontext():
            lost = False
            try:
                self._let_go()
            except DeviceFault:
                lost = True  # and what the context held with it
            finally:
                for one in keeping if lost else ():  # or it is lost when opened again, too
                    if one.device.index == self.index:
                        one.let_go()
                if allocator is None or not allocator.keep_context(lost):
                    self.release_context()
        if allocator is not None:
            allocator.free_cache()  # what others gave back meanwhile

    def _let_go(self) -> None:
        with self.own("close"), ExitStack() as steps:  # each is taken, whatever another raises
            steps.callback(self.api.destroy_stream, self.stream)
            steps.callback(self.unload_unused)
            self.api.wait(self.stream)

    def release_context(self) -> None:
        driver.current.context = None
        with driver.check("close", self.name):
            self.api.release(self.index, self.context)
