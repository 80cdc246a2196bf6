"""Load an object through LLVM's engine, where our own loader does not go.

LLVM trusts an object, so it is read and checked first. What it would do otherwise:

    a symbol that nothing defines        end the process
    an entry that is not there           give the address 0, which is then called
    thread-local storage                 give an address at which nothing lies
    a distance that is too long          cut it to the field's bits: code without -fPIC
    a call on x86-64, in an object       end the process: the memory manager of llvmlite, which puts
    without variables                    code and data side by side, counts no offset table for it
"""

from __future__ import annotations

import struct
import sys
from collections import deque
from typing import Any

from hal_core.errors import CompileError
from hal_cpu import driver, processor
from hal_cpu.compilers.llvm import import_llvm, llvm_lock
from hal_cpu.loader import elf, macho, mapped, relocations
from hal_cpu.loader.elf import BadObject
from hal_cpu.threads.job import call_in_thread

# Of an engine only the form of its objects counts, and so the underscore before their names.
_TRIPLES = {"elf": "{}-unknown-linux", "macho": "{}-apple-macosx"}
_TOO_SHORT = {"R_X86_64_32", "R_X86_64_32S", "R_AARCH64_ABS32"}  # for any address in LLVM's memory
_ARCHITECTURES = {"x86-64": "x86_64", "aarch64": "aarch64"}  # as LLVM spells them

_SECTION_TABLE, _SECTION_COUNT = (struct.Struct("<Q"), 40), (struct.Struct("<H"), 60)  # in ELF
_SECTION = struct.Struct("<IIQQQQIIQQ")


class EngineCode:
    """Machine code that an engine of LLVM holds, and the address of its entry.

    Owns: the engine, as long as the object lives; whoever runs the code holds the object.
    """

    __slots__ = ("_drop", "_engine", "entry")

    def __init__(self, engine: Any, entry: int) -> None:
        self._drop = _drop  # at exit the module may be cleared already
        self._engine, self.entry = engine, entry

    def __del__(self) -> None:
        self._drop(self._engine)

    def address_of(self, name: str) -> int:
        with llvm_lock:
            return int(self._engine.get_function_address(name))

    def __repr__(self) -> str:
        return f"<EngineCode at {self.entry:#x}>"


def load(image: bytes, name: str, *entries: str) -> EngineCode:
    """Load an object; the entry is the first of `entries` that it defines. Errors say `name`.

    Raises: CompileError naming the cause, as `mapped.load` does.
    """
    machine = processor.machine()
    is_macho = image.startswith(macho.MAGIC)
    try:
        check = _check_macho if is_macho else _check_elf
        entry, symbols = check(image, machine, entries)
    except BadObject as error:
        raise CompileError(f"load {name}", str(error), device="CPU") from None
    if not is_macho:
        image = _with_room(image, 8 * len(symbols))
    triple = _TRIPLES["macho" if is_macho else "elf"].format(_ARCHITECTURES[machine])
    underlined = {f"_{name}" if is_macho else name: symbols[name] for name in symbols}
    return call_in_thread(lambda: _load(image, triple, entry, underlined))  # as a compilation


def _load(image: bytes, triple: str, entry: str, symbols: dict[str, int]) -> EngineCode:
    with llvm_lock:
        _close_dropped()
        llvm = import_llvm()
        with llvm.parse_assembly("") as module:
            target = llvm.Target.from_triple(triple).create_target_machine(reloc="pic")
            module.triple, module.data_layout = triple, str(target.target_data)
            engine = llvm.create_mcjit_compiler(module, target, use_lmm=True)
        for symbol, address in symbols.items():
            llvm.add_symbol(symbol, address)
        with llvm.ObjectFileRef.from_data(image) as made:
            engine.add_object_file(made)
        engine.finalize_object()
        return EngineCode(engine, engine.get_function_address(entry))


# -- engines that are not needed any more

_dropped: deque[Any] = deque()
# By `id`. An engine that Ctrl-C has left here may be closed, and does not know it.
_closing: dict[int, Any] = {}


def _drop(
    engine: Any, dropped: deque[Any] = _dropped, lock: Any = llvm_lock,
    ending: Any = sys.is_finalizing,
) -> None:  # fmt: skip
    """Close the engine; where another thread is using LLVM, leave that to the next load."""
    if ending():
        return
    dropped.append(engine)
    if lock.acquire(blocking=False):  # a finalizer that waits could wait for ever
        try:
            _close_dropped()
        finally:
            lock.release()


def _close_dropped() -> None:
    """Close the engines that are not needed. The caller holds the lock."""
    while _dropped:
        engine = _dropped.popleft()
        # Its finalizer would close it again where Ctrl-C ends `close`.
        _closing[id(engine)] = engine
        engine.close()
        del _closing[id(engine)]


# -- what LLVM does not check


def _check_elf(image: bytes, machine: str, entries: tuple[str, ...]) -> tuple[str, dict[str, int]]:
    """Return the entry's name and the addresses of other libraries' symbols. Raises: BadObject."""
    found = elf.read(image, machine)
    part_of = mapped.assign_parts(found)
    entry = mapped.find_entry(found, part_of, entries)
    patches = mapped.known_patches(found, part_of, machine)
    externals = mapped.resolve(found, {patch.symbol for patch, _ in patches})
    for patch, rule in patches:
        is_far = rule.target == relocations.SYMBOL and patch.symbol in externals
        if rule.name in _TOO_SHORT or (is_far and rule.nbytes < 8):
            raise BadObject(f"relocation {rule.name} cannot reach its target: compile with -fPIC")
    return entry.name, _found(
        {found.symbols[number].name: externals[number] for number in externals}
    )


def _check_macho(
    image: bytes, machine: str, entries: tuple[str, ...]
) -> tuple[str, dict[str, int]]:
    """Do the same for a Mach-O object."""
    found = macho.read(image, machine)
    functions = {
        symbol.name
        for symbol in found.symbols
        if symbol.section and symbol.is_external and found.sections[symbol.section - 1].is_code
    }
    entry = next((name for name in entries if name in functions), None)
    if entry is None:
        raise BadObject(
            f"has no entry {entries[0]!r}; it defines {', '.join(sorted(functions)) or 'none'}"
        )
    used = {symbol.name for symbol in found.symbols if symbol.is_undefined}
    return entry, _found({name: driver.symbol_address(name) or 0 for name in sorted(used)})


def _found(symbols: dict[str, int]) -> dict[str, int]:
    missing = [name for name, address in symbols.items() if not address]
    if missing:
        raise BadObject(f"unresolved symbols: {', '.join(missing)}")
    return symbols


def _with_room(image: bytes, nbytes: int) -> bytes:
    """Add a section of variables to an ELF object, which has room for the offset table."""
    table, count = (form.unpack_from(image, at)[0] for form, at in (_SECTION_TABLE, _SECTION_COUNT))
    rows = image[table : table + count * _SECTION.size]
    room = _SECTION.pack(0, elf.NOBITS, elf.ALLOC | elf.WRITE, 0, 0, nbytes, 0, 0, 8, 0)
    made = bytearray(image + bytes(-len(image) % 8))
    (form, at), (count_form, count_at) = _SECTION_TABLE, _SECTION_COUNT
    form.pack_into(made, at, len(made))
    count_form.pack_into(made, count_at, count + 1)
    return bytes(made) + rows + room
