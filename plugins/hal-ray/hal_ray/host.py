"""The code on the nodes: an actor that lists a node's devices, and one that has a device open.

A message to a device is a list of commands and at most one question, done in this order:

    run((17, False, [("write", place, data), ((3, geometry, places), vals)], ("wait",)))

It has a number, and says whether to note its arrival. A command that begins with a tuple is a
launch. A command answers nothing. When one fails, those behind it are dropped, also of later
messages, until a question that waits tells the failure. A place is (handle, offset, nbytes): the
memory that the other side gave that handle.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np

import hal_core as hal
from hal_core.dtypes import any_
from hal_ray.driver import explain

FAMILY = "RAY"
_BYTES = {1: hal.uint8, 2: hal.uint16, 4: hal.uint32, 8: hal.uint64}
_KEPT = ("free", "unload", "forget")  # done after a failure, too: they give memory back
_MAX_VIEWS = 1024  # of one block
_MAX_CALLS = 4096  # launches that are ready
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

Place = tuple[int, int, int]
Key = tuple[int, Any, tuple[Place | None, ...]]  # of a launch: program, geometry, memory
Command = tuple[Any, ...]
Answer = tuple[bool, Any] | None  # (True, the answer), None for None, or (False, a packed error)


def pack(error: BaseException) -> bytes:
    """Return an error of hal-core as bytes; any other becomes a DeviceFault with its text."""
    if isinstance(error, hal.HalError):
        try:
            return pickle.dumps(error.with_traceback(None))
        except Exception as refused:  # a backend's own class may hold anything
            error = hal.DeviceFault("run", f"{error} ({type(error).__name__}; {refused})")
            return pickle.dumps(error)
    return pickle.dumps(hal.DeviceFault("run", f"{type(error).__name__}: {error}"))


def unpack(packed: bytes) -> Exception:
    """Return the error, or a DeviceFault where its class is not installed on this side."""
    try:
        error = pickle.loads(packed)
    except Exception as refused:
        return hal.DeviceFault("run", f"an error that only its node can read: {refused}")
    return error if isinstance(error, Exception) else hal.DeviceFault("run", repr(error))


class Listing(NamedTuple):
    """The devices of one node."""

    devices: list[tuple[int, hal.DeviceInfo]]  # with their ranks, the highest first
    missing: dict[str, str]  # family -> why it has none


class NodeLister:
    """An actor that tells which devices its node has; it ends after that."""

    def versions(self) -> tuple[str, tuple[int, int]]:
        """Return the versions of hal-core and of its plugin API."""
        return hal.__version__, hal.API_VERSION

    def devices(self) -> Listing:
        """Ask every plugin of the node but this one."""
        for name in _VISIBLE:
            if os.environ.get(name) == "":  # Ray hides the GPUs from actors that reserve none
                del os.environ[name]
        found, missing = [], {}
        for family in hal.Device:
            if family == FAMILY:
                continue
            try:
                ranks = hal.Device.backend(family).ranks
                infos = hal.Device.devices(family)
                found += [(ranks[info.kind], info._replace(vendor={})) for info in infos]
            except hal.HalError as error:
                missing[family] = str(error)
        return Listing(found, missing)


class DeviceHost:
    """An actor that has one device open, and what the other side made on it."""

    def __init__(self) -> None:
        self._device: hal.Compiled
        self._memory: dict[int, dict[Any, hal.Buffer]] = {}  # handle -> None: all; or a view
        self._empty: dict[hal.DType, hal.Buffer] = {}
        self._calls: dict[Key, Callable[..., Any]] = {}
        self._programs: dict[int, tuple[hal.Program, list[hal.DType]]] = {}
        self._compilers: dict[str, Any] = {}
        self._graphs: dict[int, hal.Graph] = {}
        self._times: dict[int, Callable[[], tuple[int, int]]] = {}
        self._number = 0  # of the last message
        self._arrived: dict[int, int] = {}  # number of a message -> when it came
        self._failure: bytes | None = None
        self._clock: Any = None

    def run(self, message: bytes, *puts: list[Any]) -> Answer:
        """Do the commands of one message and answer its question.

        `puts` are the references that commands end in, in their order: Ray has to see them, so
        they travel beside the message, in which they are None.
        """
        number, noted, commands, question = pickle.loads(message)
        if number <= self._number:  # Ctrl-C on the other side, which did not know that it was sent
            return None
        self._number = number
        if noted:
            self._arrived[number] = perf_counter_ns()
        if puts:
            carried = iter(puts)
            commands = [
                (*command[:-1], next(carried)) if command[-1] is None else command
                for command in commands
            ]
        self._run(iter(commands))
        if question is None:
            return None
        try:
            told = self._tell(question)
            return None if told is None else (True, told)  # None travels faster
        except Exception as error:
            return False, pack(error)

    def _run(self, commands: Iterator[Command]) -> None:
        if self._failure is None:
            try:
                for command in commands:
                    key = command[0]
                    if key.__class__ is tuple:  # as in `_do`: a call of it would be a tenth
                        (self._calls.get(key) or self._call(key))(command[1])
                    else:
                        self._do(command)
            except Exception as error:
                self._failure = pack(error)
        for command in commands:  # behind the failure
            if command[0] in _KEPT:
                with suppress(Exception):  # the first failure is told
                    self._do(command)

    def _do(self, command: Command) -> None:
        key = command[0]
        if key.__class__ is tuple:
            (self._calls.get(key) or self._call(key))(command[1])
        else:
            getattr(self, f"_do_{key}")(*command[1:])

    def _tell(self, question: Command) -> Any:
        return getattr(self, f"_tell_{question[0]}")(*question[1:])

    # -- memory

    def _view(self, place: Place | None, dtype: hal.DType) -> hal.Buffer:
        if place is None:
            if dtype not in self._empty:
                self._empty[dtype] = hal.Buffer(self._device, 0, dtype)
            return self._empty[dtype]
        handle, offset, nbytes = place
        views = self._memory[handle]
        key = offset, nbytes, dtype
        view = views.get(key)
        if view is None:
            if len(views) >= _MAX_VIEWS:
                views = self._memory[handle] = {None: views[None]}
            view = views[key] = views[None].view(nbytes // dtype.itemsize, dtype, offset)
        return view

    def _tell_alloc(self, handle: int, nbytes: int, zero: bool) -> None:
        # The cache of freed blocks is the other side's: here each goes back at once.
        options = hal.BufferSpec(nolru=True, zero=zero)
        self._memory[handle] = {
            None: hal.Buffer(self._device, nbytes, hal.uint8, options).allocate()
        }

    def _do_free(self, handle: int) -> None:
        self._memory.pop(handle, None)  # it is not there if allocating it failed
        self._calls.clear()  # which keep memory

    def _do_write(self, place: Place, data: Any) -> None:
        self._view(place, hal.uint8).copyin(data)

    def _do_fetch(self, place: Place, put: list[Any]) -> None:
        """Copy what the other side has put into the object store."""
        import ray

        self._do_write(place, ray.get(put[0]))

    def _do_take(self, place: Place, given: list[Any]) -> None:
        """Copy what another device's actor has put into the object store."""
        import ray

        try:
            succeeded, answer = ray.get(given[0])
            if not succeeded:
                raise unpack(answer)
            data = ray.get(answer)
        except ray.exceptions.RayError as error:
            raise explain(error, "copy", lost="the device that had the data is lost; ") from None
        self._do_write(place, data)

    def _do_copy(self, dest: Place, src: Place) -> None:
        self._view(dest, hal.uint8).copy_from(self._view(src, hal.uint8))

    def _do_fill(self, place: Place, pattern: bytes) -> None:
        value = int.from_bytes(pattern, sys.byteorder)
        self._view(place, _BYTES[len(pattern)]).fill(value)

    def _tell_read(self, place: Place) -> Any:
        self._raise_failure()
        return self._array(place)

    def _tell_give(self, place: Place) -> Any:
        """Put bytes into the object store, for another actor; the failure is told to it, too."""
        import ray

        if self._failure is not None:
            raise unpack(self._failure)
        return ray.put(self._array(place))

    def _array(self, place: Place) -> Any:
        view = self._view(place, hal.uint8)
        if self._device.info.host_visible:
            return np.frombuffer(view.as_memoryview(), np.uint8)  # after all work
        return view.numpy()

    # -- kernels

    def _tell_pairs(self) -> list[tuple[str, str, bool]]:
        pairs = self._device.compilers
        return [(pair.name, pair.language, pair.renderer is not None) for pair in pairs]

    def _pair(self, name: str) -> Any:
        return next(pair for pair in self._device.compilers if pair.name == name)

    def _tell_render(self, name: str, method: str, packed: bytes) -> Any:
        """Call a method of a pair's renderer: it supports a dtype, or renders a kernel."""
        return getattr(self._pair(name).renderer(), method)(pickle.loads(packed))

    def _compiler(self, name: str) -> Any:
        if name not in self._compilers:
            self._compilers[name] = self._pair(name).compiler()
        return self._compilers[name]

    def _tell_compiler(self, name: str) -> dict[str, Any]:
        compiler = self._compiler(name)
        names = ("language", "format", "target", "identity", "takes_offsets")
        return {name: getattr(compiler, name) for name in names}

    def _tell_compile(self, name: str, source: hal.Source) -> bytes:
        image: bytes = self._compiler(name).compile_or_reuse(source)[0]
        return image

    def _tell_headers(self, name: str, source: hal.Source[Any]) -> str:
        return str(self._compiler(name)._headers(source))

    def _tell_current(self, name: str, image: bytes) -> bool:
        return bool(self._compiler(name)._is_current(image))

    def _tell_disassemble(self, name: str, image: bytes) -> str:
        return str(self._compiler(name).disassemble(image))

    def _tell_load(self, number: int, binary: hal.Binary) -> Any:
        program = self._device.load(binary)
        dtypes = [param.dtype for param in binary.signature.pointers]
        self._programs[number] = program, [hal.uint8 if d is any_ else d for d in dtypes]
        return program.info

    def _tell_geometry(self, number: int, geometry: Any) -> None:
        """Let the real program refuse a launch geometry. Raises: as its launch."""
        self._programs[number][0]._geometry(*geometry)

    def _do_unload(self, number: int) -> None:
        program, _ = self._programs.pop(number)
        self._calls.clear()
        program.unload()

    def _call(self, key: Key) -> Callable[..., Any]:
        """Return the function that launches with numbers, made ready once for many launches."""
        number, (grid, block, shared), places = key
        program, dtypes = self._programs[number]
        bufs = tuple(map(self._view, places, dtypes))

        def call(vals: tuple[Any, ...], wait: bool = False) -> Any:
            return program(*bufs, vals=vals, grid=grid, block=block, shared=shared, wait=wait)

        if len(self._calls) >= _MAX_CALLS:
            self._calls.clear()
        self._calls[key] = call
        return call

    def _tell_timed(self, key: Key, vals: tuple[Any, ...]) -> float:
        self._raise_failure()
        seconds: float = self._call(key)(vals, wait=True)
        return seconds

    # -- graphs

    def _do_define(self, number: int, commands: Sequence[Command]) -> None:
        with self._device.capture() as graph:
            for command in commands:
                self._do(command)
        self._graphs[number] = graph

    def _do_replay(self, number: int) -> None:
        self._graphs[number].replay()

    def _do_forget(self, number: int) -> None:
        self._graphs.pop(number, None)  # it is not there if defining it failed

    # -- order, time and end

    def _tell_open(self, name: str, title: str, settings: dict[str, str]) -> int:
        """Open the device: the one of that name or, where Ray shows a part of them, its like."""
        os.environ.update(settings)
        family = name.partition(":")[0]
        infos = hal.Device.devices(family)
        same = [info for info in infos if info.title == title]
        chosen = next((info for info in same if info.name == name), same[0] if same else None)
        if chosen is None:
            problem = f"the node has no {name} ({title}) any more"
            raise hal.DeviceUnavailable("open", problem, fix="Call hal.Device.refresh().")
        self._device = hal.Device[chosen.name]
        return os.getpid()

    def _tell_wait(self) -> None:
        self._device.synchronize()
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise unpack(failure)

    def _tell_poison(self) -> bool:
        return self._device.allocator.poison

    def _tell_statistics(self) -> hal.AllocatorStatistics:
        return self._device.allocator.statistics()

    def _tell_now(self) -> int:
        return perf_counter_ns()

    def _do_measure(self, number: int, *command: Any) -> None:
        self._measure(number, lambda: self._do(command))

    def _tell_measured(self, number: int, question: Command) -> Any:
        return self._measure(number, lambda: self._tell(question))

    def _measure(self, number: int, work: Callable[[], Any]) -> Any:
        if self._clock is None:
            self._clock = self._device._make_clock()
        result, self._times[number] = self._clock.measure(work)
        return result

    def _tell_times(self) -> tuple[dict[int, tuple[int, int]], dict[int, int]]:
        """Tell when measured commands ran and when messages came, on this process's clock."""
        times, arrived = {n: read() for n, read in self._times.items()}, self._arrived
        self._times, self._arrived = {}, {}
        return times, arrived
