"""Memory of an OpenCL device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.allocator import LRUAllocator
from hal_core.errors import InvalidArgument, OutOfMemory
from hal_opencl import driver, images
from hal_opencl.driver import cl, inner

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec
    from hal_core.device.base import Compiled
    from hal_opencl.device import OpenCLDevice

Opaque = tuple[cl.Buffer, int]  # memory, byte offset: a view at any offset needs no sub-buffer


def copied_twice(dest: Opaque, src: Opaque, nbytes: int) -> bool:
    """Tell whether a copy needs memory between its ends, as OpenCL refuses ranges that overlap.

    It refuses images of different formats, too.
    """
    if dest[0] == src[0]:
        return abs(dest[1] - src[1]) < nbytes
    return isinstance(src[0], cl.Image) and isinstance(dest[0], cl.Image)


def enqueue_copy(
    commands: cl.CommandQueue, dest: Opaque, src: Opaque, nbytes: int, kept: list[cl.Event]
) -> cl.Event:
    """Queue a copy within a context; return its event.

    `kept` gets the event of the command before it, if the copy takes two.
    Raises: cl.Error.
    """
    if copied_twice(dest, src, nbytes):
        between = cl.Buffer(commands.context, cl.mem_flags.READ_WRITE, nbytes), 0
        kept.append(enqueue_copy(commands, between, src, nbytes, kept))
        src = between
    (to, start), (source, offset) = dest, src
    if isinstance(to, cl.Image):
        place = images.place_of(to)
        return inner._enqueue_copy_buffer_to_image(commands, source, to, offset, *place)
    if isinstance(source, cl.Image):
        place = images.place_of(source)
        return inner._enqueue_copy_image_to_buffer(commands, source, to, *place, start)
    return inner._enqueue_copy_buffer(commands, source, to, nbytes, offset, start)


class OpenCLAllocator(LRUAllocator[Opaque]):
    """Memory of one OpenCL device. An opaque is (memory, byte offset).

    `host` is CL_MEM_ALLOC_HOST_PTR. `external_ptr` is an integer `cl_mem` of this device's context:
    it is retained while the buffer lives and never freed.

    Order: copies to and from the host wait; fills and copies on the device are queued. Each returns
    the command's event, which a profile's clock reads.
    """

    honours = frozenset({"nolru", "zero", "host", "external_ptr", "image"})
    null = (None, 0)
    device: OpenCLDevice

    def _alloc(self, nbytes: int, options: BufferSpec) -> Opaque:
        info = self.device.info
        if info.kind == "cpu" and self._held > info.memory_nbytes:
            # Linux grants more memory than there is, and kills the process that uses it.
            raise OutOfMemory("allocate", "all memory is in use", got=nbytes, device=info.name)
        # Drivers allocate at the first use, when running out of memory is a fault (in PoCL the end
        # of the process). Memory of the host is allocated at once, and is all that a processor has.
        at_once = options.host or info.kind == "cpu"
        flags = cl.mem_flags.READ_WRITE | (cl.mem_flags.ALLOC_HOST_PTR if at_once else 0)
        with driver.check("allocate", info.name):
            memory: Any
            if options.image is None:
                memory = cl.Buffer(self.device.context, flags, nbytes)
            else:
                memory = images.make(self.device, options.image, flags)
            if not at_once:
                cl.enqueue_migrate_mem_objects(
                    self.device.commands, [memory], flags=cl.mem_migration_flags.CONTENT_UNDEFINED
                )
        return memory, 0

    def _free(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
        # Queued commands hold references of their own.
        with driver.check("free", self.device.name):
            opaque[0].release()

    def _wrap(self, pointer: int, nbytes: int) -> Opaque:
        with driver.check("external_ptr", self.device.name):
            memory: Any = None
            if driver.may_be_memory(pointer, self.device.context):
                memory = cl.MemoryObject.from_int_ptr(pointer, True)
            if memory is None:
                problem, got = "the address is not that of a memory object (cl_mem)", hex(pointer)
            elif not isinstance(memory, cl.Buffer):
                problem, got = "the memory object is an image", type(memory).__name__
            elif memory.context != self.device.context:
                problem, got = "the memory object belongs to another context", hex(pointer)
            elif memory.size < nbytes:
                problem, got = "the memory object is too small", f"{memory.size} bytes"
            else:  # the whole of a sub-buffer: none has a part, and graphs see what both share
                whole: Any = memory.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
                return whole or memory, memory.offset
        raise InvalidArgument(
            "external_ptr", problem, got=got, limit=f"needs {nbytes} bytes",
            device=self.device.name, fix="Give a pyopencl.Buffer(device.context, ...) of at least "
            "that size. Buffer.from_numpy copies memory of the host.",
        )  # fmt: skip

    def _offset(self, opaque: Opaque, nbytes: int, offset: int) -> Opaque:
        return opaque[0], opaque[1] + offset

    def _copyin(self, dest: Opaque, src: memoryview) -> Any:
        with driver.check("copyin", self.device.name):
            self.device.wait_for_last()
            write = images.write if isinstance(dest[0], cl.Image) else driver.enqueue_write
            return write(self.device.commands, dest[0], src, dest[1], None, True)

    def _copyout(self, dest: memoryview, src: Opaque) -> Any:
        with driver.check("copyout", self.device.name):
            self.device.wait_for_last()
            read = images.read if isinstance(src[0], cl.Image) else driver.enqueue_read
            return read(self.device.commands, src[0], dest, src[1], None, True)

    def _transfer(self, dest: Opaque, src: Opaque, nbytes: int, src_device: Compiled) -> Any:
        if src_device is not self.device:
            return False  # each device has a context of its own
        with driver.check("copy_from", self.device.name):
            return self.device.queued(enqueue_copy, self.device.commands, dest, src, nbytes, [])

    def _fill(self, dest: Opaque, nbytes: int, pattern: bytes) -> Any:
        if isinstance(dest[0], cl.Image):
            return super()._fill(dest, nbytes, pattern)
        # OpenCL fills with elements of every dtype's size, at multiples of that size.
        with driver.check("fill", self.device.name):
            fill, queue = cl.enqueue_fill_buffer, self.device.commands
            return self.device.queued(fill, queue, dest[0], pattern, dest[1], nbytes)

    def _place(self, opaque: Opaque) -> tuple[object, int]:
        return opaque
