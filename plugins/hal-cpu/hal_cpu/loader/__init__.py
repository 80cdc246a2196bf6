"""From an ELF object to callable code, with no linker and no LLVM.

One private region holds everything: code with its call stubs, then constants with the offset
table, then writable data; each part gets its own rights, so no page is ever writable and
executable at once. Doing this here costs 0.3 ms; LLVM's loader costs its import, 0.2 s, in
every process that finds its kernel in the compile cache.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from hal_core.errors import CompileError, HalError
from hal_cpu import driver, processor
from hal_cpu.loader import elf, relocations
from hal_cpu.loader.elf import BadObject, Object, Patch, Symbol
from hal_cpu.loader.relocations import SLOT, STUB, TABLE, Rule

_STUB_NBYTES = 16
_MAX_NBYTES = 1 << 28
_TABLE_NAME = "_GLOBAL_OFFSET_TABLE_"  # a symbol nobody defines: relocations mean the table

# What each part of the region may be used for, in the order they lie in.
_CODE, _CONSTANT, _WRITABLE = range(3)
_RIGHTS = (driver.READ | driver.EXECUTE, driver.READ, driver.READ | driver.WRITE)


class Code:
    """Machine code in memory, and the address of its entry.

    Owns: its pages, until nobody refers to it; whoever runs the code holds the object.
    """

    __slots__ = ("_unmap", "address", "entry", "nbytes")

    def __init__(self, address: int, nbytes: int) -> None:
        self._unmap = driver.unmap_pages  # at interpreter exit the module may be gone first
        self.address, self.nbytes = address, nbytes
        self.entry = 0

    def __del__(self) -> None:
        self._unmap(self.address, self.nbytes)

    def __repr__(self) -> str:
        return f"<Code {self.nbytes} bytes at {self.address:#x}>"


def load(image: bytes, name: str, *entries: str) -> Code:
    """Load an object; the entry is the first of `entries` that it defines. `name` is for errors.

    Raises: CompileError naming the cause: bytes that are no object of this machine, symbols that
    nobody has, thread-local storage, no such entry.
    """
    try:
        return _Loading(image, processor.machine(), entries).code
    except BadObject as error:
        raise CompileError(f"load {name}", str(error), device="CPU") from None
    except HalError as error:
        raise CompileError(f"load {name}", error.problem, device="CPU") from None


class _Layout(NamedTuple):
    """Offsets in the region."""

    sections: dict[int, int]
    commons: dict[int, int]  # symbol -> its memory
    stubs: dict[int, int]  # symbol -> a jump to it
    slots: dict[int, int]  # symbol -> the word that holds its address
    table: int
    parts: list[tuple[int, int]]  # start and end of code, constants, writable data


class _Loading:
    """The steps of one load; each relies on the ones before it."""

    def __init__(self, image: bytes, machine: str, entries: tuple[str, ...]) -> None:
        self.machine = machine
        self.rules = relocations.RULES[machine]
        self.object: Object = elf.read(image, machine)
        kept = _kept_sections(self.object)
        self.patches = [
            patch
            for patch in self.object.patches
            if patch.section in kept and patch.type != relocations.NONE
        ]
        entry = _find_entry(self.object, kept, entries)
        self.used = [self._rule(patch) for patch in self.patches]
        self.externals = _resolve(self.object, {patch.symbol for patch in self.patches})
        self.layout = self._lay_out(kept)
        self._fill(entry)

    def _rule(self, patch: Patch) -> Rule:
        """The patch's rule, after checking that it stays inside its section."""
        rule = self.rules.get(patch.type)
        if rule is None:
            raise BadObject(f"relocation type {patch.type} of {self.machine} is not known here")
        if patch.offset + rule.nbytes > len(self.object.sections[patch.section].data):
            raise BadObject(f"damaged: relocation {rule.name} lies outside its section")
        return rule

    def _lay_out(self, kept: dict[int, int]) -> _Layout:
        offsets: dict[int, int] = {}
        commons: dict[int, int] = {}
        stubs: dict[int, int] = {}
        slots: dict[int, int] = {}
        parts, end, table = [], 0, 0
        for part in (_CODE, _CONSTANT, _WRITABLE):
            start = end = driver.pages(end)
            for index in (index for index, where in kept.items() if where == part):
                section = self.object.sections[index]
                offsets[index] = end = _align(end, section.alignment)
                end += section.nbytes
            end = _align(end, _STUB_NBYTES)
            if part == _CODE:
                end = self._number(STUB, stubs, end, _STUB_NBYTES)
            elif part == _CONSTANT:
                table = end
                end = self._number(SLOT, slots, end, 8)
            else:
                for number, symbol in enumerate(self.object.symbols):
                    if symbol.section == elf.COMMON:
                        commons[number] = end = _align(end, symbol.value or 1)
                        end += symbol.nbytes
            parts.append((start, end))
        if end > _MAX_NBYTES:
            raise BadObject(f"needs {end} bytes of memory, the limit is {_MAX_NBYTES}")
        return _Layout(offsets, commons, stubs, slots, table, parts)

    def _number(self, target: str, places: dict[int, int], end: int, nbytes: int) -> int:
        """One place for each symbol that a rule reaches through `target`."""
        for patch, rule in zip(self.patches, self.used, strict=True):
            needed = rule.target == target and patch.symbol not in places
            if needed and (target == SLOT or patch.symbol in self.externals):
                places[patch.symbol] = end
                end += nbytes
        return end

    def _fill(self, entry: Symbol) -> None:
        layout = self.layout
        nbytes = max(layout.parts[-1][1], 1)
        self.code = code = Code(driver.map_pages(nbytes), nbytes)
        memory = driver.memory_at(code.address, nbytes)
        for index, offset in layout.sections.items():
            data = self.object.sections[index].data
            memory[offset : offset + len(data)] = data
        for number, offset in layout.stubs.items():
            jump = relocations.STUBS[self.machine]
            jump += struct.pack("<Q", self.externals[number])
            memory[offset : offset + len(jump)] = jump
        for number, offset in layout.slots.items():
            struct.pack_into("<Q", memory, offset, self._address(number) & (2**64 - 1))
        for patch, rule in zip(self.patches, self.used, strict=True):
            offset = layout.sections[patch.section] + patch.offset
            target = self._target(rule, patch.symbol) + patch.addend
            relocations.apply(rule, memory, offset, target, code.address + offset)
        memory.release()
        for (start, end), rights in zip(layout.parts, _RIGHTS, strict=True):
            driver.protect_pages(code.address + start, end - start, rights)
        start, end = layout.parts[_CODE]
        driver.flush_instructions(code.address + start, end - start)
        code.entry = code.address + layout.sections[entry.section] + entry.value

    def _target(self, rule: Rule, symbol: int) -> int:
        if rule.target == SLOT:
            return self.code.address + self.layout.slots[symbol]
        if rule.target == TABLE:
            return self.code.address + self.layout.table
        if rule.target == STUB and symbol in self.layout.stubs:
            return self.code.address + self.layout.stubs[symbol]
        return self._address(symbol)

    def _address(self, number: int) -> int:
        """Where a symbol is, in this region or outside."""
        if number in self.externals:
            return self.externals[number]
        if number in self.layout.commons:
            return self.code.address + self.layout.commons[number]
        symbol = self.object.symbols[number]
        if symbol.section == elf.ABSOLUTE:
            return symbol.value
        offset = self.layout.sections.get(symbol.section)
        if offset is None:
            raise BadObject(f"refers to {symbol.name!r} in a section that is not loaded")
        return self.code.address + offset + symbol.value


def _align(offset: int, alignment: int) -> int:
    if alignment > driver.PAGE:  # which is what the region itself is aligned to
        raise BadObject(f"has data aligned to {alignment} bytes, the limit is {driver.PAGE}")
    return (offset + alignment - 1) // alignment * alignment


def _kept_sections(obj: Object) -> dict[int, int]:
    """The sections that are loaded, and the part of the region each belongs to."""
    kept = {}
    for index, section in enumerate(obj.sections):
        if not section.flags & elf.ALLOC or section.type == elf.NOTE:
            continue
        if section.name.startswith(".eh_frame"):  # for unwinding, which nobody does here
            continue
        if section.flags & elf.TLS:
            raise BadObject(f"uses thread-local storage ({section.name}), which is not supported")
        if section.type in elf.INITIALISERS or section.name.startswith((".ctors", ".dtors")):
            raise BadObject(f"has initialisers ({section.name}), which are not supported")
        if section.type not in (elf.PROGBITS, elf.NOBITS):
            raise BadObject(f"section {section.name!r} has the unknown type {section.type}")
        executes, writes = section.flags & elf.EXECUTE, section.flags & elf.WRITE
        if executes and writes:
            raise BadObject(f"section {section.name!r} is writable and executable")
        constant = not writes or section.name.startswith(".data.rel.ro")
        kept[index] = _CODE if executes else _CONSTANT if constant else _WRITABLE
    for symbol in obj.symbols:
        if symbol.type == elf.THREAD_LOCAL:
            raise BadObject(f"uses thread-local storage ({symbol.name}), which is not supported")
    return kept


def _find_entry(obj: Object, kept: dict[int, int], names: tuple[str, ...]) -> Symbol:
    """The function to launch. Raises: BadObject naming what the object does define."""
    defined = {
        symbol.name: symbol
        for symbol in obj.symbols
        if symbol.section != elf.UNDEFINED and symbol.binding != elf.LOCAL
    }
    symbol = next((defined[name] for name in names if name in defined), None)
    if symbol is None:
        functions = sorted(n for n, s in defined.items() if s.type == elf.FUNCTION)
        raise BadObject(f"has no entry {names[0]!r}; it defines {', '.join(functions) or 'none'}")
    if symbol.type != elf.FUNCTION or kept.get(symbol.section) != _CODE:
        raise BadObject(f"the entry {symbol.name!r} is not a function")
    if symbol.value >= obj.sections[symbol.section].nbytes:
        raise BadObject(f"damaged: the entry {symbol.name!r} lies outside its section")
    return symbol


def _resolve(obj: Object, used: set[int]) -> dict[int, int]:
    """Addresses of the used symbols that the object leaves open. Weak ones may be missing."""
    found, missing = {}, []
    for number in sorted(used):
        symbol = obj.symbols[number]
        if symbol.type == elf.INDIRECT:
            raise BadObject(f"symbol {symbol.name!r} is resolved by code, which is not supported")
        if symbol.section != elf.UNDEFINED or symbol.name in ("", _TABLE_NAME):
            continue
        address = driver.symbol_address(symbol.name)
        if address is None and symbol.binding != elf.WEAK:
            missing.append(symbol.name)
        found[number] = address or 0
    if missing:
        raise BadObject(f"unresolved symbols: {', '.join(missing)}")
    return found
