"""The device and its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.allocator import LRUAllocator
from hal_core.device import Compiled, DeviceInfo, Limits
from hal_core.testing.fake import driver
from hal_core.testing.fake.chip import LOST, TIMEOUT, Block

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec

MEMORY_NBYTES = 64 << 20
LIMITS = Limits(
    max_block=(1024, 1024, 64),
    max_block_threads=1024,
    max_grid=(2**31 - 1, 65535, 65535),
    shared_nbytes=32 << 10,
    view_alignment=16,
    max_alloc_nbytes=MEMORY_NBYTES,
)
CAPABILITIES = frozenset(
    {"fp16", "bf16", "fp64", "int64_atomics", "float_atomics", "timing", "disassemble", "pinned"}
)


def describe(family: str, count: int, **facts: Any) -> list[DeviceInfo]:
    """Facts of every device, none of them opened. Zero devices is a normal answer."""
    common = DeviceInfo(
        name=family,
        kind="accelerator",
        title="A pretended accelerator",
        memory_nbytes=MEMORY_NBYTES,
        arch="uops",
        compute_units=1,
        host_visible=False,
        limits=LIMITS,
        capabilities=CAPABILITIES,
    )._replace(**facts)
    names = [f"{family}:{index}" if index else family for index in range(count)]
    return [common._replace(name=name) for name in names]


class FakeDevice(Compiled):
    """Order: work is queued and done in the order of the calls."""

    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info)
        self.chip = driver.open_chip(info.memory_nbytes, name)

    def check(self, call: str, status: int) -> None:
        driver.check(call, status, self.name, self.chip.last_error)

    def _synchronize(self, timeout: float | None) -> bool:
        status = self.chip.wait(timeout)
        if status == TIMEOUT:
            return False
        self.check("wait", status)
        return True

    def _close(self) -> None:
        # The queue is idle, programs are unloaded; memory that is still out is freed later.
        self.check("close", self.chip.close())


class FakeAllocator(LRUAllocator[Block]):
    """Memory behind handles: a view's is its base's, with an offset. The host sees what is
    `host`."""

    honours = frozenset({"nolru", "zero", "host"})  # of BufferSpec; other fields are refused
    device: FakeDevice

    def _alloc(self, nbytes: int, options: BufferSpec) -> Block:
        status, block = self.device.chip.alloc(nbytes)
        self.device.check("alloc", status)
        return block

    def _free(self, opaque: Block, nbytes: int, options: BufferSpec) -> None:
        status = self.device.chip.free(opaque)
        if status != LOST:  # the memory went with the device; finalizers come here, and never raise
            self.device.check("free", status)

    def _offset(self, opaque: Block, nbytes: int, offset: int) -> Block:
        return opaque._replace(offset=opaque.offset + offset)

    def _host_sees(self, options: BufferSpec) -> bool:
        return options.host

    def _as_buffer(self, opaque: Block, nbytes: int) -> memoryview:
        status, memory = self.device.chip.map(opaque, nbytes)
        self.device.check("map", status)
        return memory

    def _copyin(self, dest: Block, src: memoryview) -> None:
        self.device.check("write", self.device.chip.write(dest, bytes(src)))

    def _copyout(self, dest: memoryview, src: Block) -> None:
        self.device.check("read", self.device.chip.read(dest, src))

    def _transfer(self, dest: Block, src: Any, nbytes: int, src_device: Compiled) -> bool:
        if src_device is not self.device:
            return False  # by way of the host
        self.device.check("copy", self.device.chip.copy(dest, src, nbytes))
        return True
