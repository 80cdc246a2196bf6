"""Memory of a device by its address, and pinned memory of the host."""

from __future__ import annotations

import ctypes
import sys
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from hal_core.allocator import LRUAllocator
from hal_core.errors import (
    DeviceFault,
    HalError,
    InvalidArgument,
    InvalidState,
    OutOfMemory,
    Unsupported,
)
from hal_streams import driver
from hal_streams.device import StreamDevice, keeping
from hal_streams.images import Array, is_direct, linear
from hal_streams.sharing import STRAYS_KEPT
from hal_streams.staging import LARGE_NBYTES, Staging

if TYPE_CHECKING:
    from collections.abc import Callable

    from hal_core.allocator import AllocatorStatistics, BufferSpec, Image
    from hal_core.device.base import Compiled

_DEFAULTS = 0, 2  # streams: the default one, and that of each thread
_FILL_NBYTES = 64 << 10  # of a wide pattern, sent from the host and then doubled on the device


class StreamAllocator(LRUAllocator[Any]):
    """Memory of one device. An opaque is a device address, or the `Array` of an image.

    `host` is pinned host memory, which kernels reach over the bus. `external_ptr` is an address of
    this device's memory that another library allocated. A subclass adds `exports`, `dlpack_types`
    and `dlpack_stream` if other libraries know the memory by them.

    Order: allocations, frees, copies and fills are queued on the device's stream. A copy from
    pageable memory returns when its bytes may change, a copy to the host when the data is there.
    Owns: the context, after the device was closed, as long as exported memory is in use.
    """

    honours = frozenset({"nolru", "zero", "host", "external_ptr"})
    null = 0
    wraps_addresses = True
    dlpack_types: tuple[int, int] | None = None  # DLPack's: of device memory, of pinned memory
    another_context_fix = "Let both libraries use one context."  # for memory out of reach
    device: StreamDevice

    def __init__(self, device: StreamDevice) -> None:
        super().__init__(device)
        if "images" in device.info.capabilities:
            self.honours |= {"image"}
        if self.dlpack_types:
            self.dlpack_device = self.dlpack_types[0], device.index
            self.dlpack_pinned = self.dlpack_types[1], 0  # which counts as device 0's
        self.pool: Any = None  # of our own: others share the device's default pool
        if device.info.vendor["memory_pools_supported"]:
            with device.check("allocate"):
                self.pool = device.api.make_pool(device.index, self.cache_limit)
        self._shared_with: set[int] = set()  # devices that the pool's memory was opened to
        self._staging = Staging(device)
        self._pinned: set[int] = set()  # addresses of pinned blocks
        self._device_closed = False
        self._keeps_context = False  # it is closed; its context stays for memory in use

    def _alloc(self, nbytes: int, options: BufferSpec) -> Any:
        device, api = self.device, self.device.api
        device.sharing.release()
        try:
            with device.own("allocate"):
                if options.host or options.image or self.pool is None:
                    with api.relaxed():
                        return self._alloc_at_once(nbytes, options)
                try:
                    return api.allocate(nbytes, device.stream, self.pool)
                except driver.Refused as error:
                    if error.code != driver.NO_MEMORY:
                        raise
                # Source: cuMemPoolTrimTo. Freed memory counts as used until a wait has seen the
                # end of the work before it.
                with api.relaxed():
                    api.wait(device.stream)
                api.trim_pool(self.pool)
                return api.allocate(nbytes, device.stream, self.pool)
        except OutOfMemory as error:
            problem = error.problem
            with suppress(HalError), device.own("allocate"):
                free, total = api.memory_info()
                problem += f"; the driver has {free} bytes free of {total}"
            raise OutOfMemory("allocate", problem, got=nbytes, device=device.name) from None

    def _free(self, opaque: Any, nbytes: int, options: BufferSpec) -> None:
        device, closed, lost = self.device, self._device_closed, False
        if options.host:
            self._pinned.discard(opaque)  # first: the freed address may go to another thread
        if closed and not self._keeps_context:
            return  # the context was lost, and its memory with it
        try:
            with device.visit("free"), ExitStack() as steps:
                if options.host or options.image or closed or self.pool is None:
                    steps.enter_context(device.api.relaxed())
                if options.host:
                    # Called at the end of the block, after the wait: queued work may use it.
                    steps.callback(device.api.free_host, opaque)
                    if not closed:
                        device.api.wait(device.stream)
                elif options.image:
                    device.api.free_array(opaque)
                elif closed:  # there is no stream any more
                    device.api.free(opaque, None, False)
                else:
                    device.api.free(opaque, device.stream, self.pool is not None)
        except DeviceFault:
            lost = True  # the context, with its memory; the next wait raises
        if closed and (lost or not (self._live or self._dropped)):
            self.release_context()

    def _wrap(self, pointer: int, nbytes: int) -> int:
        device = self.device
        device.sharing.release()
        with device.own("external_ptr"):
            index, of_host, context = device.api.owner_of(pointer)
        if of_host or (index == device.index and context in (0, int(device.context))):
            return pointer
        problem = f"no memory that the {device.family} driver knows"
        fix = "Give a device address, such as int(gpuarray.gpudata)."
        if index == device.index:
            problem = "memory of another context of this device, out of reach of our kernels"
            fix = self.another_context_fix
        elif index >= 0:
            there = f"{device.family}:{index}" if index else device.family
            problem = f"memory of another device, {there}"
            fix = "Make the buffer there and copy it: here.copy_from(there)."
        raise InvalidArgument(
            "external_ptr", problem, got=hex(pointer), device=device.name, fix=fix
        )

    def _offset(self, opaque: int, nbytes: int, offset: int) -> int:
        return opaque + offset

    def _copyin(self, dest: Any, src: memoryview) -> None:
        device, api = self.device, self.device.api
        if isinstance(dest, Array):
            return self._write_array("copyin", dest, src.nbytes, lambda at: self._copyin(at, src))
        if src.nbytes > LARGE_NBYTES:
            with device.own("copyin"), api.relaxed():
                if not api.is_done(device.stream):
                    return self._staging.copy_in(dest, src)
                held = api.readable(src)
                api.copy_in(dest, held, src.nbytes, device.stream)
                return api.wait(device.stream)
        sent = bytes(src)
        try:
            device.call("copyin", device.api.copy_in, dest, sent, len(sent), device.stream)
        finally:
            self._staging.hold(sent)
        return None

    def _copyout(self, dest: memoryview, src: Any) -> None:
        device = self.device
        if isinstance(src, Array):
            between = linear(device, dest.nbytes)
            copy = device.api.copy
            device.call("copyout", copy, between._buf, src, dest.nbytes, device.stream)
            return self._copyout(dest, between._buf)
        device.call("copyout", device.api.copy_out, dest, src, dest.nbytes, device.stream)
        return device.call("copyout", device.api.wait, device.stream)

    def _transfer(self, dest: Any, src: Any, nbytes: int, src_device: Compiled) -> bool:
        device, api = self.device, self.device.api
        if src_device is device:
            if not is_direct(dest, src, nbytes):
                return False  # the driver copies overlapping ranges in no defined order
            device.call("copy_from", api.copy, dest, src, nbytes, device.stream)
            return True
        if not isinstance(src_device, type(device)) or Array in (type(dest), type(src)):
            return False
        source: Any = src_device.allocator
        try:  # the copy runs after earlier work of both devices and before their later work
            with src_device.own("copy_from"), src_device.events(1) as (written,):
                api.record(written, src_device.stream)
                with device.own("copy_from"), device.events(1) as (copied,):
                    source.share_with(device.index)
                    api.wait_for(device.stream, written)
                    contexts = device.context, src_device.context
                    api.copy_peer(dest, contexts[0], src, contexts[1], nbytes, device.stream)
                    api.record(copied, device.stream)
                    api.use(src_device.context)
                    api.wait_for(src_device.stream, copied)
        except InvalidArgument:  # such as pinned memory of a third context
            return False
        except HalError:
            src_device._check_open("copy_from")  # another thread may have closed it
            raise
        return True

    def _fill(self, dest: Any, nbytes: int, pattern: bytes) -> Any:
        if isinstance(dest, Array):
            write = partial(self._fill, nbytes=nbytes, pattern=pattern)
            return self._write_array("fill", dest, nbytes, write)
        return self.fill_on(self.device.stream, dest, nbytes, pattern, self._copyin)

    def _as_buffer(self, opaque: int, nbytes: int) -> memoryview:
        return memoryview((ctypes.c_ubyte * nbytes).from_address(opaque)).cast("B")

    def _host_sees(self, options: BufferSpec) -> bool:
        return options.host and options.external_ptr is None

    def _order_consumer(self, stream: Any) -> bool:
        if not self.device.join_queues():
            return False
        if stream in (None, self.dlpack_stream):
            return True  # it waits for our stream in any case
        if type(stream) is not int or not 0 < stream < 1 << 64:
            return False
        device, api = self.device, self.device.api
        try:
            with device.own("__dlpack__"):
                captured = api.is_capturing(stream)
                if not captured:
                    mark = device.marks.record(device.stream)
                    api.wait_for(stream, mark.handle)
        except InvalidArgument:  # no stream that the driver knows
            return False
        if captured:
            raise InvalidState(
                "__dlpack__", "the consumer's stream is captured, and cannot wait for work before",
                got=stream, device=device.name, fix="Share the memory before the capture begins.",
            )  # fmt: skip
        return True

    def _lend(self, stream: Any, lease: object) -> object:
        device = self.device
        device.sharing.reclaim(STRAYS_KEPT)
        # -1: the consumer asks for no order, and so makes its own.
        if lease is None or stream in (None, self.dlpack_stream, -1):
            return lease
        followed = None
        if type(stream) is int and 0 <= stream < 1 << 64:
            # The legacy stream waits for the default stream of each thread, which is another one
            # in each, and for every stream that is not independent of it.
            with suppress(HalError), device.own("__dlpack__"):
                if stream in _DEFAULTS or not device.api.is_independent(stream):
                    followed = self.dlpack_stream
        return device.sharing.lend(followed, lease)

    def _release(self, owner: object, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_exiting():
            self.device.sharing.hold(owner)

    def free_cache(self) -> None:
        device = self.device
        if not self._device_closed:
            device.release_done()  # queues release memory only when asked
            device.sharing.reclaim()
        super().free_cache()
        if not self._device_closed:
            with device.visit("free"), device.api.relaxed():
                self._staging.free_idle()
                device.pinned.free_idle()
        pool = self.pool  # which another thread may destroy, if it closes the device
        if pool is not None:
            with driver.check("free", device.name, opened=device):
                device.api.trim_pool(pool)

    def statistics(self) -> AllocatorStatistics:
        if not self._device_closed:
            self.device.release_done()  # queues release memory only when asked
        return super().statistics()

    def close(self) -> None:
        try:
            self._staging.close()
        finally:
            super().close()

    def _write_array(
        self, operation: str, dest: Array, nbytes: int, write: Callable[[int], object]
    ) -> None:
        """Copy to an array from a range of memory that `write` fills."""
        device, between = self.device, linear(self.device, nbytes)
        write(between._buf)
        device.call(operation, device.api.copy, dest, between._buf, nbytes, device.stream)

    def _alloc_at_once(self, nbytes: int, options: BufferSpec) -> Any:
        """Allocate in no stream's order: pinned memory, images, or any where there are no pools."""
        if options.image:
            return self._alloc_image(options, options.image)
        if not options.host:
            return self.device.api.allocate(nbytes, self.device.stream, None)
        address = self.device.api.allocate_host(nbytes)
        self._pinned.add(address)
        return address

    def _alloc_image(self, options: BufferSpec, image: Image) -> Array:
        device, count = self.device, len(image.shape) - 1
        if options.host:
            raise Unsupported(
                "allocate", "an image is memory of the device, not of the host", got=options,
                device=device.name, fix="Leave out host=True.",
            )  # fmt: skip
        axes = [f"maximum_surface{count}d_{name}" for name in ("width", "height", "depth")]
        image._size_within(tuple(device.info.vendor[name] for name in axes[:count]), device.name)
        return device.api.make_array(image)

    def fill_on(
        self, stream: Any, dest: int, nbytes: int, pattern: bytes,
        send: Callable[[int, memoryview], None],
    ) -> None:  # fmt: skip
        """Queue a fill on a stream, to which `send` copies from the host."""
        device = self.device
        # The driver fills with 1, 2 or 4 bytes; 8 bytes of equal halves, as of 0, can be 4.
        half = len(pattern) // 2
        if len(pattern) == 8 and pattern[:half] == pattern[half:]:
            pattern = pattern[:half]
        if len(pattern) < 8:
            fill, count = device.api.fill, nbytes // len(pattern)
            device.call("fill", fill, dest, pattern, count, stream)
            return
        # Wider than the driver fills: send a part, then double it with copies on the GPU.
        done = min(nbytes, _FILL_NBYTES)
        send(dest, memoryview(pattern * (done // len(pattern))))
        while done < nbytes:
            more = min(done, nbytes - done)
            device.call("fill", device.api.copy, dest + done, dest, more, stream)
            done += more

    # -- the end of the device

    def share_with(self, index: int) -> None:
        """Let another device copy from the pool without the host between them."""
        if self.pool is not None and index not in self._shared_with:
            self.device.api.share_pool(self.pool, self.device.index, index)
            self._shared_with.add(index)

    def destroy_pool(self) -> None:
        """Destroy the pool; memory in use is freed later, without it."""
        pool, self.pool = self.pool, None
        if pool is not None:
            self.device.api.destroy_pool(pool)

    def keep_context(self) -> bool:
        """Note that the device is closed; return whether memory in use still needs its context.

        In a lost context only pinned memory counts: an array of the host may lie over it.
        """
        lost = self.device.lost
        with self._lock:
            self._drain()
            self._device_closed = True
            self._keeps_context = bool(self._pinned if lost else self._live or self._dropped)
        if self._keeps_context:
            keeping.add(self)
        return self._keeps_context

    def release_context(self) -> None:
        """Release a closed device's context, and the memory in it, unless some is pinned."""
        if self._keeps_context and not self._pinned:
            self._keeps_context = False
            self.device.release_context()
