"""Fakes that hand over other memory than they were asked for, or in another way."""

from __future__ import annotations

from typing import Any

from mutants import around, mutant

from hal_core import capsule
from hal_core.dlpack import DLPack


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
