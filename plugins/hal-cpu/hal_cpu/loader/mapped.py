"""Load an ELF object into pages of our own, with no linker and no LLVM.

One private region holds everything, in three parts that each have rights of their own, so that no
page is ever writable and executable at once:

    read, execute     code of all sections, then a stub for each call that leaves the region, as a
                      library may be too far away for the call instruction
    read              constants, then the offset table: addresses that code reads from memory
    read, write       variables, then common symbols

Doing this here costs 0.3 ms; LLVM's loader costs its import, 0.2 s, in every process that finds
its kernel in the compile cache.
"""

from __future__ import annotations

import struct

from hal_core.errors import CompileError
from hal_cpu import driver, processor
from hal_cpu.loader import elf, relocations
from hal_cpu.loader.elf import BadObject, Object, Patch, Symbol
from hal_cpu.loader.relocations import SLOT, STUB, TABLE, Rule

_STUB_NBYTES = 16
_MAX_NBYTES = 1 << 28
_TABLE_NAME = "_GLOBAL_OFFSET_TABLE_"  # a symbol that no library defines: it means the offset table

# The parts of the region, and what each may be used for.
_CODE, _CONSTANT, _WRITABLE = range(3)
_RIGHTS = (driver.READ | driver.EXECUTE, driver.READ, driver.READ | driver.WRITE)


class Code:
    """Machine code in memory, and the address of its entry.

    Owns: its pages, as long as the object lives; whoever runs the code holds the object.
    """

    __slots__ = ("_unmap", "address", "entry", "functions", "nbytes")

    def __init__(self, address: int, nbytes: int) -> None:
        self.address, self.nbytes = address, nbytes
        self.entry = 0
        self.functions: dict[str, int] = {}
        self._unmap = driver.unmap_pages  # at exit the module may be cleared already

    def __del__(self) -> None:
        if hasattr(self, "_unmap"):  # else Ctrl-C came ahead of it
            self._unmap(self.address, self.nbytes)

    def address_of(self, name: str) -> int:
        return self.functions.get(name, 0)

    def __repr__(self) -> str:
        return f"<Code {self.nbytes} bytes at {self.address:#x}>"


def load(image: bytes, name: str, *entries: str) -> Code:
    """Load an object; the entry is the first of `entries` that it defines. Errors say `name`.

    Raises: CompileError naming the cause: bytes that are no object of this machine, symbols that
    no library has, thread-local storage, no such entry.
    """
    try:
        return _Loading(image, processor.machine(), entries).code
    except (BadObject, driver.Refused) as error:
        raise CompileError(f"load {name}", str(error), device="CPU") from None


class _Loading:
    """The steps of one load; each relies on the ones before it."""

    def __init__(self, image: bytes, machine: str, entries: tuple[str, ...]) -> None:
        self.machine = machine
        self.object: Object = elf.read(image, machine)
        part_of = assign_parts(self.object)
        entry = find_entry(self.object, part_of, entries)
        self.patches = known_patches(self.object, part_of, machine)
        self.externals = resolve(self.object, {patch.symbol for patch, _ in self.patches})
        # Offsets in the region:
        self.sections: dict[int, int] = {}  # section -> its first byte
        self.commons: dict[int, int] = {}  # common symbol -> its memory
        self.stubs: dict[int, int] = {}  # symbol -> a jump to it
        self.table = 0
        self.slots: dict[int, int] = {}  # symbol -> the word of the table that holds its address
        self.parts: list[tuple[int, int]] = []  # start and end of each part
        self._lay_out(part_of)
        self.code = self._fill(entry)

    def _lay_out(self, part_of: dict[int, int]) -> None:
        """Give every section, stub, slot and common symbol its offset in the region."""
        end = 0
        for part in (_CODE, _CONSTANT, _WRITABLE):
            start = end = driver.pages(end)
            for index in (index for index, own in part_of.items() if own == part):
                section = self.object.sections[index]
                self.sections[index] = end = _align(end, section.alignment)
                end += section.nbytes
            end = _align(end, _STUB_NBYTES)
            if part == _CODE:
                end = self._reserve(STUB, self.stubs, end, _STUB_NBYTES)
            elif part == _CONSTANT:
                self.table = end
                end = self._reserve(SLOT, self.slots, end, 8)
            else:
                for number, symbol in enumerate(self.object.symbols):
                    if symbol.section == elf.COMMON:
                        self.commons[number] = end = _align(end, symbol.value or 1)
                        end += symbol.nbytes
            self.parts.append((start, end))
        if end > _MAX_NBYTES:
            raise BadObject(f"needs {end} bytes of memory, the limit is {_MAX_NBYTES}")

    def _reserve(self, target: str, places: dict[int, int], end: int, nbytes: int) -> int:
        """Reserve a place for each symbol that a rule reaches through `target`; return the end."""
        for patch, rule in self.patches:
            needed = rule.target == target and patch.symbol not in places
            if needed and (target == SLOT or patch.symbol in self.externals):
                places[patch.symbol] = end
                end += nbytes
        return end

    def _fill(self, entry: Symbol) -> Code:
        """Map the region, write sections, stubs and slots, then set the rights of each part."""
        nbytes = max(self.parts[-1][1], 1)
        code = Code(driver.map_pages(nbytes), nbytes)
        start = code.address
        memory = driver.memory_at(code.address, nbytes)
        for index, offset in self.sections.items():
            data = self.object.sections[index].data
            memory[offset : offset + len(data)] = data
        for number, offset in self.stubs.items():
            jump = relocations.STUBS[self.machine]
            jump += struct.pack("<Q", self.externals[number])
            memory[offset : offset + len(jump)] = jump
        for number, offset in self.slots.items():
            struct.pack_into("<Q", memory, offset, self._address(number, start) & (2**64 - 1))
        for patch, rule in self.patches:
            if rule.target == SLOT:
                target = start + self.slots[patch.symbol]
            elif rule.target == TABLE:
                target = start + self.table
            elif rule.target == STUB and patch.symbol in self.stubs:
                target = start + self.stubs[patch.symbol]
            else:
                target = self._address(patch.symbol, start)
            offset = self.sections[patch.section] + patch.offset
            relocations.apply(rule, memory, offset, target + patch.addend, start + offset)
        memory.release()
        for (low, high), rights in zip(self.parts, _RIGHTS, strict=True):
            driver.protect_pages(start + low, high - low, rights)
        low, high = self.parts[_CODE]
        driver.flush_instructions(start + low, high - low)
        code.entry = start + self.sections[entry.section] + entry.value
        code.functions = {
            symbol.name: start + self.sections[symbol.section] + symbol.value
            for symbol in self.object.symbols
            if symbol.type == elf.FUNCTION and symbol.section in self.sections
        }
        return code

    def _address(self, number: int, start: int) -> int:
        """Return the address of a symbol, in the region that begins at `start` or outside."""
        if number in self.externals:
            return self.externals[number]
        if number in self.commons:
            return start + self.commons[number]
        symbol = self.object.symbols[number]
        if symbol.section == elf.ABSOLUTE:
            return symbol.value
        offset = self.sections.get(symbol.section)
        if offset is None:
            raise BadObject(f"refers to {symbol.name!r} in a section that is not loaded")
        return start + offset + symbol.value


def _align(offset: int, alignment: int) -> int:
    if alignment > driver.PAGE:  # the region itself is aligned to a page
        raise BadObject(f"has data aligned to {alignment} bytes, the limit is {driver.PAGE}")
    return (offset + alignment - 1) // alignment * alignment


def assign_parts(obj: Object) -> dict[int, int]:
    """Return the sections that are loaded, each with the part of the region it belongs to."""
    part_of = {}
    for index, section in enumerate(obj.sections):
        if not section.flags & elf.ALLOC or section.type == elf.NOTE:
            continue
        if section.name.startswith(".eh_frame"):  # for unwinding: kernels throw nothing
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
        part_of[index] = _CODE if executes else _CONSTANT if constant else _WRITABLE
    for symbol in obj.symbols:
        if symbol.type == elf.THREAD_LOCAL:
            raise BadObject(f"uses thread-local storage ({symbol.name}), which is not supported")
    return part_of


def find_entry(obj: Object, part_of: dict[int, int], names: tuple[str, ...]) -> Symbol:
    """Return the function to launch. Raises: BadObject naming what the object does define."""
    defined = {
        symbol.name: symbol
        for symbol in obj.symbols
        if symbol.section != elf.UNDEFINED and symbol.binding != elf.LOCAL
    }
    symbol = next((defined[name] for name in names if name in defined), None)
    if symbol is None:
        functions = sorted(n for n, s in defined.items() if s.type == elf.FUNCTION)
        raise BadObject(f"has no entry {names[0]!r}; it defines {', '.join(functions) or 'none'}")
    if symbol.type != elf.FUNCTION or part_of.get(symbol.section) != _CODE:
        raise BadObject(f"the entry {symbol.name!r} is not a function")
    if symbol.value >= obj.sections[symbol.section].nbytes:
        raise BadObject(f"damaged: the entry {symbol.name!r} lies outside its section")
    return symbol


def known_patches(obj: Object, part_of: dict[int, int], machine: str) -> list[tuple[Patch, Rule]]:
    """Return the relocations of the loaded sections, each with its rule."""
    found = []
    for patch in obj.patches:
        if patch.section not in part_of or patch.type == relocations.NONE:
            continue
        rule = relocations.RULES[machine].get(patch.type)
        if rule is None:
            raise BadObject(f"relocation type {patch.type} of {machine} is not known here")
        if patch.offset + rule.nbytes > len(obj.sections[patch.section].data):
            raise BadObject(f"damaged: relocation {rule.name} lies outside its section")
        found.append((patch, rule))
    return found


def resolve(obj: Object, used: set[int]) -> dict[int, int]:
    """Return the addresses of used symbols that libraries define. Weak ones may be missing."""
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
