"""Fakes that hand over other memory than they were asked for, or in another way."""

from __future__ import annotations

from typing import Any

from mutants import around, mutant

from hal_core.buffer import Buffer, capsule
from hal_core.buffer.arrays import Interchange
from hal_core.buffer.dlpack import DLPack
from hal_core.testing.fake.device import FakeAllocator


@mutant("B9", "interchange")
def exports_copy_though_a_copy_is_refused() -> None:
    @around(DLPack, "_on_host")
    def on_host(inner: Any, self: Any, newest: Any, copy: Any) -> Any:
        return inner(self, newest, None)


@mutant("B9", "interchange")
def exports_begin_where_the_base_does() -> None:
    @around(DLPack, "_on_host")
    def on_host(inner: Any, self: Any, newest: Any, copy: Any) -> Any:
        return inner(self if self.base is None else self.base, newest, copy)


@mutant("B9", "interchange")
def exports_are_kept_by_nobody() -> None:
    @around(capsule, "make")
    def make(
        inner: Any, pointer: int, size: int, dtype: Any, device: Any, owner: Any, **how: Any
    ) -> Any:
        owner[:] = 0  # as memory that is used again
        return inner(pointer, size, dtype, device, None, **how)


@mutant("B9", "interchange")
def exports_go_to_any_device() -> None:
    @around(DLPack, "__dlpack__")
    def export(inner: Any, self: Any, *, dl_device: Any = None, **options: Any) -> Any:
        return inner(self, dl_device=dl_device and (1, 0), **options)


@mutant("B9", "interchange")
def arrays_are_taken_though_a_copy_is_refused() -> None:
    DLPack.from_dlpack = classmethod(  # type: ignore[method-assign, assignment]
        lambda cls, obj, device=None, *, copy=None, inner=DLPack.from_dlpack.__func__: inner(  # type: ignore[attr-defined]
            cls, obj, device, copy=None
        )
    )


@mutant("B12", "interchange")
def any_memory_is_called_the_host_s() -> None:
    FakeAllocator._host_sees = lambda self, options: True  # type: ignore[method-assign]


@mutant("B9", "interchange")
def pinned_memory_is_shown_as_a_copy() -> None:
    copies: list[bytearray] = []

    @around(FakeAllocator, "_as_buffer")
    def as_buffer(inner: Any, self: Any, opaque: Any, nbytes: int) -> Any:
        copies.append(bytearray(inner(self, opaque, nbytes)))
        return memoryview(copies[-1])


@mutant("B9 B12", "interchange")
def pinned_memory_is_shown_from_where_the_base_begins() -> None:
    @around(FakeAllocator, "_as_buffer")
    def as_buffer(inner: Any, self: Any, opaque: Any, nbytes: int) -> Any:
        return inner(self, opaque._replace(offset=0), nbytes)


@mutant("B9", "interchange")
def pinned_memory_is_shown_while_work_is_queued() -> None:
    @around(Interchange, "_in_place")
    def in_place(inner: Any, self: Any, operation: str) -> Any:
        self._device.allocator.host_ordered = True
        try:
            return inner(self, operation)
        finally:
            del self._device.allocator.host_ordered


@mutant("B9", "interchange")
def arrays_of_pinned_memory_keep_nothing() -> None:
    Buffer._share = lambda self: None  # type: ignore[method-assign]


@mutant("B9", "interchange")
def arrays_on_the_host_are_copies_of_pinned_memory() -> None:
    @around(DLPack, "_in_host_memory")
    def in_host_memory(inner: Any, self: Any, stream: Any, newest: Any, copy: Any) -> Any:
        return self._on_host(newest, None)
