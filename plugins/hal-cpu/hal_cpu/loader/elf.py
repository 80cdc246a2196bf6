"""Read ELF relocatable objects, as gcc, clang, zig and LLVM write them with `-c`.

A file may be damaged: every offset and index is checked before it is used, so that the loader
meets consistent data only.

Source: System V ABI, chapter 4 (object files), as in elf(5).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

MACHINES = {"x86-64": 62, "aarch64": 183}  # e_machine

PROGBITS, SYMTAB, RELA, NOTE, NOBITS, REL = 1, 2, 4, 7, 8, 9  # section types
INITIALISERS = (14, 15, 16)  # .init_array, .fini_array, .preinit_array
WRITE, ALLOC, EXECUTE, TLS = 0x1, 0x2, 0x4, 0x400  # section flags
UNDEFINED, RESERVED, ABSOLUTE, COMMON = 0, 0xFF00, 0xFFF1, 0xFFF2  # section indices
FUNCTION, THREAD_LOCAL, INDIRECT = 2, 6, 10  # symbol types
LOCAL, WEAK = 0, 2  # symbol bindings

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")  # the two halves of r_info: type, then symbol

_RELOCATABLE = 1
_LITTLE_ENDIAN_64 = b"\x7fELF\x02\x01\x01"
_MAX_NBYTES = 1 << 28


class BadObject(ValueError):
    """An object that cannot be loaded; the text says why."""


class Section(NamedTuple):
    """A section; `data` is empty for one without bytes in the file (`.bss`)."""

    name: str
    type: int
    flags: int
    data: memoryview
    nbytes: int
    alignment: int
    link: int
    info: int


class Symbol(NamedTuple):
    """A name for a place in a section, or one that another library defines."""

    name: str
    type: int
    binding: int
    section: int  # index, or one of the constants above
    value: int
    nbytes: int


class Patch(NamedTuple):
    """A relocation: a place whose bytes depend on addresses."""

    section: int  # the section that it lies in
    offset: int
    type: int
    symbol: int
    addend: int


class Object(NamedTuple):
    """A whole object."""

    sections: list[Section]
    symbols: list[Symbol]
    patches: list[Patch]


def read(image: bytes, machine: str) -> Object:
    """Read an object for `machine`. Raises: BadObject."""
    view = memoryview(image)
    ident = bytes(view[:16])
    header = _unpack(_HEADER, view, 0, "the header")
    _, kind, number, _, _, _, place, *_, entry_nbytes, count, names = header
    if not ident.startswith(b"\x7fELF"):
        raise BadObject("not an ELF object")
    wanted = MACHINES.get(machine)
    if not ident.startswith(_LITTLE_ENDIAN_64) or number != wanted:
        raise BadObject(f"made for another machine (ELF machine {number}; this is {machine})")
    if kind != _RELOCATABLE:
        raise BadObject(f"not a relocatable object (ELF type {kind}): compile with -c")
    if entry_nbytes != _SECTION.size or not count:
        raise BadObject("damaged: no section table")
    rows = [
        _unpack(_SECTION, view, place + index * _SECTION.size, "the section table")
        for index in range(count)
    ]
    sections = _read_sections(view, rows, names)
    tables = [index for index, section in enumerate(sections) if section.type == SYMTAB]
    if len(tables) != 1:
        raise BadObject(f"{len(tables)} symbol tables, one expected")
    symbols = _read_symbols(sections, sections[tables[0]])
    return Object(sections, symbols, _read_patches(sections, tables[0], len(symbols)))


def _read_sections(view: memoryview, rows: list[tuple[int, ...]], names: int) -> list[Section]:
    bare = []
    for name, kind, flags, _, offset, nbytes, link, info, alignment, _ in rows:
        data = view[:0] if kind in (0, NOBITS) else _slice(view, offset, nbytes, "a section")
        if flags & ALLOC:
            if alignment & (alignment - 1):
                raise BadObject(f"damaged: a section's alignment is {alignment}")
            if nbytes > _MAX_NBYTES:
                raise BadObject(f"a section has {nbytes} bytes, the limit is {_MAX_NBYTES}")
        bare.append((name, Section("", kind, flags, data, nbytes, alignment or 1, link, info)))
    if names >= len(bare):
        raise BadObject("damaged: no section names")
    table = bytes(bare[names][1].data)
    return [section._replace(name=_text(table, name)) for name, section in bare]


def _read_symbols(sections: list[Section], table: Section) -> list[Symbol]:
    if table.link >= len(sections):
        raise BadObject("damaged: no symbol names")
    names = bytes(sections[table.link].data)
    symbols = []
    for name, info, _, section, value, nbytes in _rows(_SYMBOL, table):
        symbol = Symbol(_text(names, name), info & 15, info >> 4, section, value, nbytes)
        if section < RESERVED:
            if section >= len(sections):
                raise BadObject(f"damaged: symbol {symbol.name!r} lies in no section")
            if section != UNDEFINED and value > sections[section].nbytes:
                raise BadObject(f"damaged: symbol {symbol.name!r} lies outside its section")
        elif section not in (ABSOLUTE, COMMON):
            raise BadObject(f"symbol {symbol.name!r} has section index {section:#x}")
        elif section == COMMON and (nbytes > _MAX_NBYTES or value & (value - 1)):
            raise BadObject(f"damaged: common symbol {symbol.name!r}")
        symbols.append(symbol)
    return symbols


def _read_patches(sections: list[Section], symbols: int, count: int) -> list[Patch]:
    patches = []
    for table in sections:
        if table.type not in (RELA, REL):
            continue
        if table.info >= len(sections):
            raise BadObject("damaged: relocations of no section")
        if not sections[table.info].flags & ALLOC:
            continue  # debug information
        if table.type == REL or table.link != symbols:
            raise BadObject(f"damaged: relocation table {table.name!r}")
        for offset, kind, symbol, addend in _rows(_RELOCATION, table):
            if symbol >= count:
                raise BadObject(f"damaged: a relocation names symbol {symbol} of {count}")
            patches.append(Patch(table.info, offset, kind, symbol, addend))
    return patches


def _rows(form: struct.Struct, table: Section) -> list[tuple[int, ...]]:
    """Unpack all entries of a table."""
    if len(table.data) % form.size:
        raise BadObject(f"damaged: table {table.name!r} ends inside an entry")
    return list(form.iter_unpack(table.data)) if table.data else []


def _unpack(form: struct.Struct, view: memoryview, offset: int, what: str) -> tuple[int, ...]:
    return form.unpack(_slice(view, offset, form.size, what))


def _slice(view: memoryview, offset: int, nbytes: int, what: str) -> memoryview:
    """Return a part of the file; `what` names it where the file is too short."""
    if offset + nbytes > len(view):
        raise BadObject(f"truncated: {what} ends at byte {offset + nbytes} of {len(view)}")
    return view[offset : offset + nbytes]


def _text(table: bytes, start: int) -> str:
    """Return the name that begins at `start` and ends with a zero byte."""
    end = table.find(b"\0", start)
    if start >= max(len(table), 1) or (end < 0 and table):
        raise BadObject("damaged: a name lies outside the name table")
    return table[start:end].decode("utf-8", "replace")
