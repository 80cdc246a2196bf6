"""Relocations as rows of data: for each type, the address that is meant and where its bits go.

A call of `exp` at offset 0x10 of code that lies at 0x7000, while `exp` has a stub at 0x7100:

    the object     e8 00 00 00 00    R_X86_64_PLT32 at 0x11, symbol exp, addend -4
    in memory      e8 eb 00 00 00    stub + addend - place = 0x7100 - 4 - 0x7011 = 0xeb

Source: System V ABI, AMD64 supplement, section 4.4; ELF for the Arm 64-bit architecture
(AAELF64), section 5.7. In their letters: S symbol, A addend, P place, G slot of the offset table,
GOT the table, L call stub.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from hal_cpu.loader.elf import BadObject

SYMBOL, STUB, SLOT, TABLE = "symbol", "stub", "slot", "table"  # the target
ZERO, PLACE, PAGE = "zero", "place", "page"  # the point that the distance is counted from

Field = Callable[[memoryview, int, int], None]  # (section's bytes, offset, value)


class Rule(NamedTuple):
    """One type of relocation."""

    name: str
    target: str
    base: str
    nbytes: int  # of the field
    put: Field  # raises struct.error for a value that does not fit


def _data(form: str) -> tuple[int, Field]:
    packed = struct.Struct(form)
    return packed.size, packed.pack_into


def _bits(value: int, width: int, shift: int) -> int:
    """Return a signed field of an instruction that counts in units of `1 << shift` bytes."""
    if value & ((1 << shift) - 1) or not -(1 << (width - 1)) <= value >> shift < 1 << (width - 1):
        raise struct.error
    return (value >> shift) & ((1 << width) - 1)


def _instruction(mask: int, encode: Callable[[int], int]) -> tuple[int, Field]:
    """Return a field that replaces the bits of `mask` in a 32-bit instruction."""

    def put(data: memoryview, offset: int, value: int) -> None:
        (word,) = struct.unpack_from("<I", data, offset)
        struct.pack_into("<I", data, offset, word & ~mask | encode(value))

    return 4, put


def _low12(shift: int) -> tuple[int, Field]:
    """Return the field of an address's low twelve bits, in units of the access's size."""

    def encode(value: int) -> int:
        if value & ((1 << shift) - 1):
            raise struct.error
        return (value & 0xFFF) >> shift << 10

    return _instruction(0xFFF << 10, encode)


def _split21(shift: int) -> tuple[int, Field]:
    """Return the field of ADR and ADRP: two low bits at bit 29, nineteen high ones at bit 5."""

    def encode(value: int) -> int:
        number = _bits(value, 21, shift)
        return (number & 3) << 29 | number >> 2 << 5

    return _instruction(3 << 29 | 0x7FFFF << 5, encode)


def _branch(width: int, position: int) -> tuple[int, Field]:
    mask = ((1 << width) - 1) << position
    return _instruction(mask, lambda value: _bits(value, width, 2) << position)


_X86_64 = {
    1: Rule("R_X86_64_64", SYMBOL, ZERO, *_data("<Q")),
    2: Rule("R_X86_64_PC32", SYMBOL, PLACE, *_data("<i")),
    4: Rule("R_X86_64_PLT32", STUB, PLACE, *_data("<i")),
    9: Rule("R_X86_64_GOTPCREL", SLOT, PLACE, *_data("<i")),
    10: Rule("R_X86_64_32", SYMBOL, ZERO, *_data("<I")),
    11: Rule("R_X86_64_32S", SYMBOL, ZERO, *_data("<i")),
    24: Rule("R_X86_64_PC64", SYMBOL, PLACE, *_data("<q")),
    26: Rule("R_X86_64_GOTPC32", TABLE, PLACE, *_data("<i")),
    28: Rule("R_X86_64_GOTPCREL64", SLOT, PLACE, *_data("<q")),
    29: Rule("R_X86_64_GOTPC64", TABLE, PLACE, *_data("<q")),
    41: Rule("R_X86_64_GOTPCRELX", SLOT, PLACE, *_data("<i")),
    42: Rule("R_X86_64_REX_GOTPCRELX", SLOT, PLACE, *_data("<i")),
}

_AARCH64 = {
    257: Rule("R_AARCH64_ABS64", SYMBOL, ZERO, *_data("<Q")),
    258: Rule("R_AARCH64_ABS32", SYMBOL, ZERO, *_data("<I")),
    260: Rule("R_AARCH64_PREL64", SYMBOL, PLACE, *_data("<q")),
    261: Rule("R_AARCH64_PREL32", SYMBOL, PLACE, *_data("<i")),
    273: Rule("R_AARCH64_LD_PREL_LO19", SYMBOL, PLACE, *_branch(19, 5)),
    274: Rule("R_AARCH64_ADR_PREL_LO21", SYMBOL, PLACE, *_split21(0)),
    275: Rule("R_AARCH64_ADR_PREL_PG_HI21", SYMBOL, PAGE, *_split21(12)),
    276: Rule("R_AARCH64_ADR_PREL_PG_HI21_NC", SYMBOL, PAGE, *_split21(12)),
    277: Rule("R_AARCH64_ADD_ABS_LO12_NC", SYMBOL, ZERO, *_low12(0)),
    278: Rule("R_AARCH64_LDST8_ABS_LO12_NC", SYMBOL, ZERO, *_low12(0)),
    279: Rule("R_AARCH64_TSTBR14", SYMBOL, PLACE, *_branch(14, 5)),
    280: Rule("R_AARCH64_CONDBR19", SYMBOL, PLACE, *_branch(19, 5)),
    282: Rule("R_AARCH64_JUMP26", STUB, PLACE, *_branch(26, 0)),
    283: Rule("R_AARCH64_CALL26", STUB, PLACE, *_branch(26, 0)),
    284: Rule("R_AARCH64_LDST16_ABS_LO12_NC", SYMBOL, ZERO, *_low12(1)),
    285: Rule("R_AARCH64_LDST32_ABS_LO12_NC", SYMBOL, ZERO, *_low12(2)),
    286: Rule("R_AARCH64_LDST64_ABS_LO12_NC", SYMBOL, ZERO, *_low12(3)),
    299: Rule("R_AARCH64_LDST128_ABS_LO12_NC", SYMBOL, ZERO, *_low12(4)),
    311: Rule("R_AARCH64_ADR_GOT_PAGE", SLOT, PAGE, *_split21(12)),
    312: Rule("R_AARCH64_LD64_GOT_LO12_NC", SLOT, ZERO, *_low12(3)),
    314: Rule("R_AARCH64_PLT32", STUB, PLACE, *_data("<i")),
}

RULES = {"x86-64": _X86_64, "aarch64": _AARCH64}
NONE = 0  # does nothing, on both machines

STUBS = {  # machine -> a jump to the address in the eight bytes that follow
    "x86-64": bytes.fromhex("ff2500000000"),  # jmp *0(%rip)
    "aarch64": bytes.fromhex("50000058 00021fd6"),  # ldr x16, .+8; br x16
}


def apply(rule: Rule, data: memoryview, offset: int, target: int, base: int) -> None:
    """Patch one place in `data`. `target` includes the addend; `base` is the place's own address.

    Raises: BadObject when the distance does not fit the field.
    """
    if rule.base == PLACE:
        value = target - base
    elif rule.base == PAGE:
        value = (target & ~0xFFF) - (base & ~0xFFF)
    else:
        value = target
    try:
        rule.put(data, offset, value)
    except struct.error:
        raise BadObject(
            f"relocation {rule.name} cannot reach its target: compile with -fPIC"
        ) from None
