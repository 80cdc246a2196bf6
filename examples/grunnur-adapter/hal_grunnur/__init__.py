"""Run grunnur, and what stands on it such as reikna, on the devices of hal-core.

After `import hal_grunnur`, grunnur's API `opencl` has hal-core's devices of the family OPENCL, and
its API `cuda` those of CUDA. Programs stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import gcd
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import hal_core as hal
import numpy as np
from grunnur import _adapter_base as base
from grunnur import _api
from grunnur._adapter_cuda import CuContextAdapter
from grunnur._adapter_opencl import OclContextAdapter

# name of an API -> grunnur's own words for its language, a file's ending, options of fast_math=True
_LANGUAGES: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "opencl": (OclContextAdapter, "cl", ("-cl-mad-enable", "-cl-fast-relaxed-math")),
    "cuda": (CuContextAdapter, "cu", ("--use_fast_math",)),
}


_OWN: Any = None  # each object has its own; grunnur has an abstract property


class API(base.APIAdapterFactory, base.APIAdapter):
    """One API, and what makes it. Its only platform is the family of devices of that name."""

    id = api_id = _OWN
    platform_count = 1

    def __init__(self, api_id: base.APIID) -> None:
        self.id = self.api_id = api_id
        self.platform = Platform(self, api_id.shortcut.upper())

    @property
    def available(self) -> bool:
        try:
            return bool(self.platform.devices)
        except hal.HalError:  # not installed, or without hardware
            return False

    def make_api_adapter(self) -> API:
        return self

    def get_platform_adapters(self) -> tuple[Platform, ...]:
        return (self.platform,)

    def isa_backend_device(self, obj: Any) -> bool:
        return isinstance(obj, hal.Compiled) and obj.family == self.platform.name

    def isa_backend_platform(self, obj: Any) -> bool:
        return bool(obj == self.platform.name)

    def isa_backend_context(self, obj: Any) -> bool:
        return self.isa_backend_device(obj)  # a device of hal-core has a context of its own

    def make_platform_adapter(self, family: str) -> Platform:
        return self.platform

    def make_device_adapter(self, device: hal.Compiled) -> Device:
        return self.platform.get_device_adapters()[device.index]

    def make_context_adapter_from_device_adapters(self, devices: Sequence[Any]) -> Context:
        return Context(devices)

    def make_context_adapter_from_backend_contexts(
        self, contexts: Sequence[Any], *, take_ownership: bool
    ) -> Context:
        return Context([self.make_device_adapter(device) for device in contexts])


class Platform(base.PlatformAdapter):
    # Of a platform and of a device there is one adapter, so Python's own comparison will do.
    __eq__, __hash__ = object.__eq__, object.__hash__
    api_adapter = name = _OWN
    platform_idx, vendor, version = 0, "hal-core", hal.__version__

    def __init__(self, api: API, family: str) -> None:
        self.api_adapter, self.name = api, family

    @property
    def devices(self) -> Sequence[hal.DeviceInfo]:
        return hal.Device.devices(self.name)

    @property
    def device_count(self) -> int:
        return len(self.devices)

    @cached_property
    def _adapters(self) -> tuple[Device, ...]:
        return tuple(Device(self, *one) for one in enumerate(self.devices))

    def get_device_adapters(self) -> tuple[Device, ...]:
        return self._adapters


class Device(base.DeviceAdapter):
    __eq__, __hash__ = object.__eq__, object.__hash__
    platform_adapter = device_idx = name = params = _OWN

    def __init__(self, platform: Platform, number: int, info: hal.DeviceInfo) -> None:
        self.platform_adapter, self.device_idx, self.name = platform, number, info.title
        self._known_as, self.params = info.name, Parameters(info)

    @property
    def device(self) -> hal.Compiled:
        return hal.Device[self._known_as]


class Parameters(base.DeviceParameters):
    type = max_total_local_size = max_local_sizes = warp_size = max_num_groups = _OWN
    local_mem_size = local_mem_banks = compute_units = _OWN

    def __init__(self, info: hal.DeviceInfo) -> None:
        limits = info.limits
        self.type = base.DeviceType.CPU if info.kind == "cpu" else base.DeviceType.GPU
        self.max_total_local_size, self.max_local_sizes = limits.max_block_threads, limits.max_block
        self.warp_size, self.local_mem_banks = info.subgroup_size or 1, info.shared_banks or 1
        self.max_num_groups, self.local_mem_size = limits.max_grid, limits.shared_nbytes
        self.compute_units = info.compute_units

    def align_words(self, word_size: int) -> int:
        return {4: 16, 8: 16, 16: 8}[word_size]


class Context(base.ContextAdapter):
    device_adapters = device_order = _OWN

    def __init__(self, devices: Sequence[Device]) -> None:
        self.device_adapters = {device.device_idx: device for device in devices}
        self.device_order = list(self.device_adapters)
        self._language = devices[0].platform_adapter.api_adapter.id.shortcut
        self._words, self._ending, self._fast = _LANGUAGES[self._language]

    def make_queue_adapter(self, device: Any) -> Queue:
        return Queue(device.device.queue())

    def allocate(self, device: Any, size: int) -> Memory:
        return Memory(hal.empty(size, hal.uint8, device.device))

    def render_prelude(self, *, fast_math: bool = False) -> str:  # type: ignore[override]
        return str(self._words.render_prelude(fast_math=fast_math))

    def compile_single_device(
        self, device: Any, prelude: str, src: str, *, keep: bool = False, fast_math: bool = False,
        compiler_options: Iterable[str] = (), constant_arrays: Mapping[str, Any] = {},
    ) -> Program:  # fmt: skip
        if constant_arrays:
            raise NotImplementedError("hal-core sets no constant memory from outside")
        options = (*compiler_options, *(self._fast if fast_math else ()))
        text = prelude + src
        if keep:
            folder = mkdtemp()
            Path(folder, f"kernel.{self._ending}").write_text(text, encoding="utf-8")
            print("*** compiler output in", folder)  # as grunnur says it
        try:
            source = hal.Source(None, text, language=self._language, options=options)
            return Program(text, device.device.compile(source))
        except hal.CompileError as error:
            raise base.AdapterCompilationError(error, text) from error

    def deactivate(self) -> None:
        """Do nothing: hal-core makes a context current where it is used."""


def _bytes_of(array: Any) -> Any:
    return array.reshape(-1).view(np.uint8)


class Memory(base.BufferAdapter):
    kernel_arg = size = offset = _OWN

    def __init__(self, buffer: hal.Buffer) -> None:
        self.buffer, self.size, self.offset = buffer, buffer.nbytes, buffer.offset
        self.kernel_arg = self
        self._typed: dict[Any, hal.Buffer] = {}

    def as_(self, dtype: hal.DType) -> hal.Buffer:
        """Return the same bytes as elements of `dtype`."""
        found = self._typed.get(dtype)
        if found is None:
            found = self._typed[dtype] = self.buffer.view(dtype=dtype)
        return found

    def get_sub_region(self, origin: int, size: int) -> Memory:
        return Memory(self.buffer.view(size, offset=origin))

    def _first(self, nbytes: int) -> hal.Buffer:
        return self.buffer if nbytes == self.size else self.buffer.view(nbytes)

    def set(self, queue: Any, source: Any, *, sync: bool = False) -> None:
        if isinstance(source, base.BufferAdapter):
            source = source.kernel_arg
            event = self._first(source.size).copy_from(source.buffer, queue=queue.queue)
        else:
            event = self._first(source.nbytes).copyin(_bytes_of(source), queue=queue.queue)
        if sync:
            event.wait()

    def get(self, queue: Any, host_array: Any, *, async_: bool = False) -> None:
        event = self._first(host_array.nbytes).copyout(_bytes_of(host_array), queue=queue.queue)
        if not async_:
            event.wait()


class Queue(base.QueueAdapter):
    def __init__(self, queue: hal.Queue) -> None:
        self.queue = queue

    def synchronize(self) -> None:
        self.queue.synchronize()


class Program(base.ProgramAdapter):
    source = ""

    def __init__(self, source: str, programs: Mapping[str, hal.Program]) -> None:
        self.source, self._programs = source, programs

    def __getattr__(self, name: str) -> Kernel:
        kernel = Kernel(self, self._programs[name])
        setattr(self, name, kernel)  # the next time Python finds it without this method
        return kernel

    def set_constant_buffer(self, *_: Any) -> None:
        raise NotImplementedError("hal-core sets no constant memory from outside")


class Kernel(base.KernelAdapter):
    program_adapter = max_total_local_size = _OWN

    def __init__(self, owner: Program, program: hal.Program) -> None:
        self.program_adapter, self.program = owner, program
        largest = program.info.max_block_threads
        self.max_total_local_size = largest or program.device.info.limits.max_block_threads

    def prepare(self, global_size: Sequence[int], local_size: Any = None) -> Prepared:
        # hal-core would round up to whole blocks where none are said.
        block = local_size or [
            gcd(n, most) for n, most in zip(global_size, (64, 4, 1), strict=False)
        ]
        return Prepared(self.program, tuple(global_size), tuple(block))


class Prepared(base.PreparedKernelAdapter):
    def __init__(self, program: hal.Program, threads: Any, block: Any) -> None:
        self._program, self._threads, self._block = program, threads, block
        params = program.signature.params
        self._dtypes = [param.dtype if param.is_pointer else None for param in params]

    def __call__(self, queue: Any, *args: Any, cu_dynamic_local_mem: int = 0) -> Any:
        given = [
            arg.kernel_arg.as_(dtype) if dtype is not None else np.asarray(arg)[()]
            for arg, dtype in zip(args, self._dtypes, strict=True)
        ]
        return self._program(
            *given, threads=self._threads, block=self._block, shared=cu_dynamic_local_mem,
            queue=queue.queue,
        )  # fmt: skip


for _api_id in _api.all_api_ids():
    _api._ALL_API_ADAPTER_FACTORIES[_api_id] = API(_api_id)
