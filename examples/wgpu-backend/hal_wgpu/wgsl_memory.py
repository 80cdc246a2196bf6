"""Loads, stores and atomics as WGSL.

Memory is made of words of 32 bits. Narrower elements share them, and as neighbours may belong to
other threads, words that are shared are changed by atomics.
"""

from __future__ import annotations

from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.uop import ATOMIC_OPS

from hal_core.dtypes import DType
from hal_wgpu import wgsl_values as values


def element(dtype: DType | None, *, packed: bool, atomic: bool = False) -> str:
    """What memory is an array of."""
    if packed and values.width(dtype) < 32:
        return "atomic<u32>"
    kind = values.local(dtype)
    if atomic:
        return "atomic<u32>" if kind == "f32" else f"atomic<{kind}>"
    return kind


class Accesses:
    """The part of a function's text that knows where elements are."""

    def __init__(self, kernel: Kernel) -> None:
        self.atomic = {uop.src[0] for uop in kernel.uops if uop.op in ATOMIC_OPS}
        self.names: dict[UOp, str] = {}
        self.stored: dict[str, str] = {}  # what each memory is an array of
        self.shared: list[str] = []
        self.lines: list[str] = []
        self.depth = 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def let(self, uop: UOp, text: str) -> None:
        self.names[uop] = f"v{len(self.names)}"
        self.line(f"let {self.names[uop]} = {text};")

    def _shared(self, uop: UOp) -> None:
        name, count = uop.arg
        self.names[uop] = memory = f"s{len(self.shared)}"
        self.stored[memory] = element(uop.dtype, packed=False, atomic=uop in self.atomic)
        kind = f"array<{self.stored[memory]}, {count}>"
        self.shared.append(f"var<workgroup> {memory}: {kind}; // {name}")

    def _place(self, uop: UOp, memory: str, index: str) -> str:
        """An element that has its word for itself."""
        base = f"(hal_values.{memory}_at >> 2u) + " if uop.src[0].op == "PARAM" else ""
        return f"{memory}[{base}u32({index})]"

    def _packed(self, uop: UOp, memory: str, index: str) -> tuple[str, str, int] | None:
        """The word, the shift and the bits of an element that shares its word."""
        bits = values.width(uop.src[0].dtype)
        if uop.src[0].op != "PARAM" or bits == 32:
            return None
        at = f"a{len(self.lines)}"
        self.line(f"let {at} = hal_values.{memory}_at + u32({index}) * {bits // 8}u;")
        return f"&{memory}[{at} >> 2u]", f"({at} & 3u) * 8u", bits

    def _load(self, uop: UOp, memory: str, index: str) -> None:
        if packed := self._packed(uop, memory, index):
            word, shift, bits = packed
            kind = values.local(uop.dtype)
            number = "u32" if kind == "bool" else kind
            text = f"extractBits({number}(atomicLoad({word})), {shift}, {bits}u)"
            return self.let(uop, f"{text} != 0u" if kind == "bool" else text)
        place = self._place(uop, memory, index)
        if self.stored[memory].startswith("atomic"):
            place = values.from_bits(uop.dtype, f"atomicLoad(&{place})")
        return self.let(uop, place)

    def _store(self, uop: UOp, memory: str, index: str, value: str) -> None:
        if packed := self._packed(uop, memory, index):
            word, shift, bits = packed
            mask = f"0x{(1 << bits) - 1:x}u"
            self.line(f"atomicAnd({word}, ~({mask} << ({shift})));")
            return self.line(f"atomicOr({word}, (u32({value}) & {mask}) << ({shift}));")
        place = self._place(uop, memory, index)
        if self.stored[memory].startswith("atomic"):
            return self.line(f"atomicStore(&{place}, {values.to_bits(uop.src[2].dtype, value)});")
        return self.line(f"{place} = {value};")

    def _atomic(self, uop: UOp, memory: str, index: str, value: str) -> None:
        place = self._place(uop, memory, index)
        if uop.arg == "ADD" and values.local(uop.dtype) == "f32":
            old = f"old{len(self.lines)}"
            self.line(f"var {old} = atomicLoad(&{place});")
            desired = values.to_bits(uop.dtype, f"bitcast<f32>({old}) + {value}")
            return self._exchange(uop, place, old, old, desired, "done.exchanged")
        text = f"atomic{uop.arg.capitalize()}(&{place}, {values.to_bits(uop.dtype, value)})"
        return self.let(uop, values.from_bits(uop.dtype, text))

    def _atomicload(self, uop: UOp, memory: str, index: str) -> None:
        self._load(_relaxed(uop), memory, index)

    def _atomicstore(self, uop: UOp, memory: str, index: str, value: str) -> None:
        self._store(_relaxed(uop), memory, index, value)

    def _cas(self, uop: UOp, memory: str, index: str, expected: str, desired: str) -> None:
        place, old = self._place(uop, memory, index), f"old{len(self.lines)}"
        self.line(f"var {old} = {expected};")
        until = f"done.exchanged || done.old_value != {expected}"
        self._exchange(uop, place, old, expected, desired, until)

    def _exchange(
        self, uop: UOp, place: str, old: str, expected: str, desired: str, until: str
    ) -> None:
        # WGSL's compare-exchange may fail for no reason.
        self.line("loop {")
        self.line(f"    let done = atomicCompareExchangeWeak(&{place}, {expected}, {desired});")
        self.line(f"    {old} = done.old_value;")
        self.line(f"    if ({until}) {{ break; }}")
        self.line("}")
        self.let(uop, values.from_bits(uop.dtype, old))


def _relaxed(uop: UOp) -> UOp:
    """Refuse an order, as a FENCE is refused: WGSL has neither."""
    if uop.arg != "relaxed":
        raise KeyError(uop.op)
    return uop
