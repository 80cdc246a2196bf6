"""Read Mach-O objects, as LLVM and clang write them for macOS, and refuse what cannot be loaded.

LLVM's engine lays the sections out and patches them; it trusts what it reads. So every offset and
index that it uses is checked here first, and what it could not resolve or reach.

Source: <mach-o/loader.h>, <mach-o/nlist.h>, <mach-o/reloc.h> of Apple's SDK.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from hal_cpu.loader.elf import BadObject

MAGIC = b"\xcf\xfa\xed\xfe"  # 64 bits, little endian
MACHINES = {"x86-64": 0x0100_0007, "aarch64": 0x0100_000C}  # cputype

_HEADER = struct.Struct("<8I")
_COMMAND = struct.Struct("<II")
_SEGMENT = struct.Struct("<II16sQQQQiiII")
_SECTION = struct.Struct("<16s16sQQIIIIIIII")
_SYMBOL_TABLE = struct.Struct("<6I")
_SYMBOL = struct.Struct("<IBBHQ")
_RELOCATION = struct.Struct("<iI")

_OBJECT = 1  # filetype
_SEGMENT_64, _SYMTAB = 0x19, 2  # load commands
_NO_BYTES = (1, 12, 0x12)  # section types without bytes in the file
_INITIALISERS = (9, 10, 0x16)
_THREAD_LOCAL = range(0x11, 0x16)
_CODE = 0x8000_0000  # section flag
_STAB, _KIND, _EXTERNAL, _IN_SECTION = 0xE0, 0x0E, 0x01, 0x0E  # parts of a symbol's type

# Relocation types by what LLVM does with them: a pointer; a distance that is right whatever it
# refers to, by way of an offset table; a distance to a place within the object. A call is one of
# these: LLVM makes stubs for ELF only.
_POINTER, _ANY, _NEAR = "pointer", "any", "near"
_RELOCATIONS = {
    "x86-64": {0: _POINTER, 1: _NEAR, 2: _NEAR, 3: _ANY, 4: _ANY, 5: _NEAR, 6: _NEAR, 7: _NEAR,
               8: _NEAR},
    "aarch64": {0: _POINTER, 1: _NEAR, 2: _NEAR, 3: _NEAR, 4: _NEAR, 5: _ANY, 6: _ANY, 7: _ANY,
                10: _ANY},
}  # fmt: skip
_SUBTRACTOR = {"x86-64": 5, "aarch64": 1}  # the pointer after it may be short: it is a distance
_LONG = 3  # log2 of a pointer's bytes


class Section(NamedTuple):
    """A section, and where its relocations stand in the file."""

    name: str
    type: int
    is_code: bool
    nbytes: int
    relocations: tuple[int, int]  # the first one's place in the file, and their number


class Symbol(NamedTuple):
    """A name without the underscore that C compilers put before it."""

    name: str
    section: int  # counted from 1; 0: it lies in none
    is_external: bool
    is_undefined: bool  # another library defines it


class Object(NamedTuple):
    sections: list[Section]
    symbols: list[Symbol]


def read(image: bytes, machine: str) -> Object:
    """Read an object for `machine`, and check its relocations. Raises: BadObject."""
    _, number, _, kind, count, nbytes, _, _ = _unpack(_HEADER, image, 0, "the header")
    if number != MACHINES.get(machine):
        raise BadObject(f"made for another machine (Mach-O cputype {number}; this is {machine})")
    if kind != _OBJECT:
        raise BadObject(f"not a relocatable object (Mach-O filetype {kind}): compile with -c")
    sections: list[Section] = []
    symbols: list[Symbol] = []
    place = _HEADER.size
    for _ in range(count):
        command, length = _unpack(_COMMAND, image, place, "a load command")
        if length < _COMMAND.size or place + length > _HEADER.size + nbytes:
            raise BadObject("damaged: a load command has the wrong length")
        if command == _SEGMENT_64:
            sections += _read_sections(image, place, length)
        elif command == _SYMTAB:
            symbols += _read_symbols(image, place)
        place += length
    for symbol in symbols:
        if symbol.section > len(sections):
            raise BadObject(f"damaged: symbol {symbol.name!r} lies in no section")
    for section in sections:
        _check_relocations(image, section, symbols, len(sections), machine)
    return Object(sections, symbols)


def _read_sections(image: bytes, place: int, length: int) -> list[Section]:
    count = _unpack(_SEGMENT, image, place, "a segment")[9]
    if _SEGMENT.size + count * _SECTION.size > length:
        raise BadObject("damaged: a segment has more sections than fit it")
    found = []
    for index in range(count):
        row = _unpack(_SECTION, image, place + _SEGMENT.size + index * _SECTION.size, "a section")
        name, _, _, nbytes, offset, power, first, number, flags, *_ = row
        is_code = bool(flags & _CODE)
        section = Section(_text(name), flags & 0xFF, is_code, nbytes, (first, number))
        if section.type in _THREAD_LOCAL:
            raise BadObject(f"uses thread-local storage ({section.name}), which is not supported")
        if section.type in _INITIALISERS:
            raise BadObject(f"has initialisers ({section.name}), which are not supported")
        if power > 12:
            raise BadObject(f"has data aligned to 2**{power} bytes, the limit is 4096")
        if section.type not in _NO_BYTES and offset + nbytes > len(image):
            raise BadObject(f"truncated: a section ends at byte {offset + nbytes} of {len(image)}")
        found.append(section)
    return found


def _read_symbols(image: bytes, place: int) -> list[Symbol]:
    _, _, start, count, names, nbytes = _unpack(_SYMBOL_TABLE, image, place, "the symbol table")
    if max(start + count * _SYMBOL.size, names + nbytes) > len(image):
        raise BadObject("truncated: the symbol table ends after the file")
    table = image[names : names + nbytes]
    found = []
    for name, kind, section, _, value in _SYMBOL.iter_unpack(
        image[start : start + count * _SYMBOL.size]
    ):
        if name >= max(len(table), 1):
            raise BadObject("damaged: a name lies outside the name table")
        text = _text(table[name:])
        is_real = not kind & _STAB  # else a line for debuggers
        inside = is_real and kind & _KIND == _IN_SECTION
        # A value in an undefined symbol: a variable of so many bytes, which LLVM makes.
        undefined = is_real and kind & _EXTERNAL and not kind & _KIND and not value
        found.append(
            Symbol(
                text.removeprefix("_"),
                section if inside else 0,
                bool(kind & _EXTERNAL),
                bool(undefined),
            )
        )
    return found


def _check_relocations(
    image: bytes, section: Section, symbols: list[Symbol], sections: int, machine: str
) -> None:
    """Raise BadObject for a relocation that is damaged, unknown, or cannot reach its target."""
    known, before = _RELOCATIONS[machine], -1
    first, number = section.relocations
    for index in range(number):
        place = first + index * _RELOCATION.size
        offset, word = _unpack(_RELOCATION, image, place, "the relocations")
        target, power, is_symbol, kind = (
            word & 0xFFFFFF, word >> 25 & 3, word >> 27 & 1, word >> 28,
        )  # fmt: skip
        reach = known.get(kind)
        if reach is None:
            raise BadObject(f"relocation type {kind} of {machine} is not known here")
        if not 0 <= offset <= section.nbytes - (1 << power):
            raise BadObject(f"damaged: a relocation lies outside its section {section.name!r}")
        if kind == 10 and machine == "aarch64":  # `target` is a number
            continue
        if target >= len(symbols) if is_symbol else not 1 <= target <= sections:
            raise BadObject(f"damaged: a relocation names number {target}, which is not there")
        is_far = is_symbol and symbols[target].is_undefined
        is_short = reach == _POINTER and power != _LONG and before != _SUBTRACTOR[machine]
        if is_short or (reach == _NEAR and is_far):
            raise BadObject(
                f"relocation type {kind} cannot reach its target: compile with -mcmodel=large"
            )
        before = kind


def _unpack(form: struct.Struct, image: bytes, offset: int, what: str) -> tuple[Any, ...]:
    if offset + form.size > len(image):
        raise BadObject(f"truncated: {what} ends at byte {offset + form.size} of {len(image)}")
    return form.unpack_from(image, offset)


def _text(name: bytes) -> str:
    return name.partition(b"\0")[0].decode("utf-8", "replace")
