"""The device and its memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.allocator import LRUAllocator
from hal_core.device.base import Compiled, DeviceInfo, Limits
from hal_core.errors import HalError
from hal_wgpu import driver

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec

KINDS = {"DiscreteGPU": "gpu", "IntegratedGPU": "gpu", "CPU": "cpu"}
WORD = 4  # bytes: what WebGPU copies are made of


def describe(family: str) -> list[DeviceInfo]:
    """Facts of every adapter, none of them opened."""
    return [_describe(family, *numbered) for numbered in enumerate(driver.adapters())]


def _describe(family: str, index: int, adapter: Any) -> DeviceInfo:
    limits, info = adapter.limits, adapter.info
    largest = min(limits["max-buffer-size"], limits["max-storage-buffer-binding-size"])
    timing = {"timing"} if "timestamp-query" in adapter.features else set()
    return DeviceInfo(
        name=f"{family}:{index}" if index else family,
        kind=KINDS.get(info["adapter_type"], "accelerator"),
        title=info["device"],
        memory_nbytes=limits["max-buffer-size"],  # WebGPU does not tell how much there is
        arch=info["backend_type"],
        compute_units=1,  # nor this
        host_visible=False,
        limits=Limits(
            max_block=tuple(limits[f"max-compute-workgroup-size-{axis}"] for axis in "xyz"),
            max_block_threads=limits["max-compute-invocations-per-workgroup"],
            max_grid=(limits["max-compute-workgroups-per-dimension"],) * 3,
            shared_nbytes=limits["max-compute-workgroup-storage-size"],
            view_alignment=limits["min-storage-buffer-offset-alignment"],
            max_alloc_nbytes=largest // 256 * 256,
        ),
        capabilities=frozenset({"float_atomics", "disassemble"} | timing),
        vendor={"adapter": dict(info), "features": sorted(adapter.features)},
    )


class WGPUDevice(Compiled):
    """Order: one queue, in the order of the calls."""

    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info)
        self.gpu = driver.open_device(self.index, name)
        self.commands = self.gpu.queue
        # Around calls that only make sense together. Not taken by what a collection may call.
        self.lock = threading.RLock()
        self.spare = self.make_buffer(16)  # what a kernel gets for an empty buffer
        self.identity = f"hal-wgpu 1 {driver.version()} {sorted(self.gpu.adapter.info.items())}"

    def make_buffer(self, nbytes: int) -> Any:
        usage = driver.library().BufferUsage
        every = usage.STORAGE | usage.UNIFORM | usage.COPY_SRC | usage.COPY_DST
        with driver.calling("create_buffer", self.name):
            return self.gpu.create_buffer(size=nbytes, usage=every)

    def _synchronize(self, timeout: float | None) -> bool:
        if timeout is None:
            self._wait()
            return True
        raised: list[Exception] = []

        def wait() -> None:
            try:
                self._wait()
            except HalError as error:
                raised.append(error)

        # wgpu-py's waits take no time limit, so a thread waits that can be left behind.
        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        waiting.join(timeout)
        if raised:
            raise raised[0]
        return not waiting.is_alive()

    def _wait(self) -> None:
        # wgpu 0.32's on_submitted_work_done_sync raises a TypeError; a read comes behind all work.
        with driver.calling("read_buffer", self.name):
            self.commands.read_buffer(self.spare, 0, WORD)

    def _close(self) -> None:
        self.gpu.destroy()


class Block(NamedTuple):
    """A place in device memory."""

    buffer: Any  # a GPUBuffer; None for an empty one
    offset: int


class WGPUAllocator(LRUAllocator[Block]):
    """Memory behind handles: a view's is its base's, with an offset.

    WebGPU copies whole words. What is at the edges of other copies is read and written back.
    """

    honours = frozenset({"nolru", "zero"})  # of BufferSpec; other fields are refused
    fresh_is_zero = True
    null = Block(None, 0)
    device: WGPUDevice

    def _alloc(self, nbytes: int, options: BufferSpec) -> Block:
        return Block(self.device.make_buffer(nbytes), 0)

    def _free(self, opaque: Block, nbytes: int, options: BufferSpec) -> None:
        opaque.buffer.destroy()  # behind the work that was queued

    def _offset(self, opaque: Block, nbytes: int, offset: int) -> Block:
        return opaque._replace(offset=opaque.offset + offset)

    def _copyin(self, dest: Block, src: memoryview) -> None:
        start, lead, nbytes = _words(dest.offset, src.nbytes)
        with self.device.lock, driver.calling("write_buffer", self.device.name):
            if lead or nbytes != src.nbytes:
                words = bytearray(self._read(dest.buffer, start, nbytes))
                words[lead : lead + src.nbytes] = src
                src = memoryview(words)
            self.device.commands.write_buffer(dest.buffer, start, src)

    def _copyout(self, dest: memoryview, src: Block) -> None:
        start, lead, nbytes = _words(src.offset, dest.nbytes)
        with driver.calling("read_buffer", self.device.name):
            dest[:] = self._read(src.buffer, start, nbytes)[lead : lead + dest.nbytes]

    def _read(self, buffer: Any, start: int, nbytes: int) -> memoryview:
        return memoryview(self.device.commands.read_buffer(buffer, start, nbytes)).cast("B")

    def _transfer(self, dest: Block, src: Block, nbytes: int, src_device: Compiled) -> bool:
        words = not (dest.offset % WORD or src.offset % WORD or nbytes % WORD)
        if src_device is not self.device or src.buffer is dest.buffer or not words:
            return False  # by way of the host
        with driver.calling("copy_buffer_to_buffer", self.device.name):
            encoder = self.device.gpu.create_command_encoder()
            encoder.copy_buffer_to_buffer(*src, *dest, nbytes)
            self.device.commands.submit([encoder.finish()])
        return True


def _words(offset: int, nbytes: int) -> tuple[int, int, int]:
    """The words around some bytes: where they begin, how many bytes before, how many in all."""
    lead = offset % WORD
    return offset - lead, lead, -(-(lead + nbytes) // WORD) * WORD
