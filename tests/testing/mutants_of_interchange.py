"""Mutants that export or import the wrong memory, or copy when they should share."""

from mutants import around, mutant

import hal_core.buffer as buffers
from hal_core.buffer import Buffer, capsule, dlpack, files
from hal_testing.fake.allocator import FakeAllocator


@mutant("B9", "interchange", capsule, "make")
def exports_do_not_keep_their_memory(inner, pointer, size, dtype, device, owner, **how):
    owner[:] = 0  # as memory that is used again
    return inner(pointer, size, dtype, device, None, **how)


@mutant("B9", "interchange", Buffer, "__dlpack__")
def exports_go_to_any_device(inner, self, *, dl_device=None, **options):
    return inner(self, dl_device=dl_device and (1, 0), **options)


@mutant("B9", "interchange", dlpack, "take")
def arrays_are_taken_though_a_copy_is_refused(inner, cls, obj, device, copy):
    return inner(cls, obj, device, None)


@mutant("B12", "interchange")
def any_memory_is_called_the_host_s():
    FakeAllocator._host_sees = lambda self, options: True  # type: ignore[method-assign]


@mutant("B9 B12", "interchange", FakeAllocator, "_as_buffer")
def pinned_memory_is_shown_from_where_the_base_begins(inner, self, opaque, nbytes):
    return inner(self, opaque._replace(offset=0), nbytes)


@mutant("B9", "interchange")
def memory_is_shown_while_work_is_queued():
    for module in (buffers, dlpack):

        @around(module, "in_place")
        def in_place(inner, buffer, operation):
            return inner(buffer, operation, is_new=True)


@mutant("F3", "buffer", files, "_write_at")
def a_file_keeps_its_bytes_where_a_piece_ends(inner, file, memory, at):
    return inner(file, memory[:-1] or memory, at) + (len(memory) > 1)
