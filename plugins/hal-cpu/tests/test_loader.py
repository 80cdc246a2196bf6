"""Objects of real compilers run; damaged ones are refused, never crash (P1, P12)."""

import ctypes
import gc
import random
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from every_section import EVERYTHING
from in_threads import results
from mapped import mappings, rights_at

from hal_core.errors import CompileError
from hal_cpu import driver, loader, processor
from hal_cpu.compilers.llvm import llvm_lock
from hal_cpu.loader import elf, engine

pytestmark = pytest.mark.arm


NATIVE = "-march=native" if processor.machine() == "x86-64" else "-mcpu=cortex-a76"


BOTH = pytest.mark.parametrize("load", [loader.load, engine.load], ids=["elf", "llvmlite"])


def refusal(image, *entries, load=loader.load):
    with pytest.raises(CompileError) as caught:
        load(image, "kernel", *(entries or ("kernel",)))
    assert str(caught.value).startswith("load kernel: ")
    return str(caught.value)


@BOTH
@pytest.mark.parametrize(
    "options",
    [(), ("-O0",), ("-O3", NATIVE), ("-fcommon", "-g"), ("-fno-builtin", "-Os"),
     ("-ffunction-sections", "-fdata-sections"), ("-fno-plt",), ("-fvisibility=hidden",)],
)  # fmt: skip
def test_every_section_and_symbol_kind(load, c_object, options):
    code = load(c_object(EVERYTHING, *options), "kernel", "kernel")
    run = ctypes.CFUNCTYPE(None)(code.entry)
    out = (ctypes.c_double * 7)()
    run(out)
    run(out)
    assert list(out) == pytest.approx([2.718281828 + 2, 2, 6, ord("a"), 1, 4, 1])


@pytest.mark.parametrize("where", ["static char big", "char big", "const char big"])
def test_alignment_to_a_page_is_honoured_and_above_refused(c_object, where):
    text = (
        where + "[64] __attribute__((aligned(%d)));"
        "void kernel(unsigned long *out) { const volatile char *p = big; *out = (unsigned long)p; }"
    )
    for nbytes in (64, driver.PAGE):
        code = loader.load(c_object(text % nbytes, "-fcommon"), "kernel", "kernel")
        out = ctypes.c_ulong()
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.entry)(ctypes.byref(out))
        assert out.value and out.value % nbytes == 0
    for nbytes in (2 * driver.PAGE, 1 << 16, 1 << 20):
        said = refusal(c_object(text % nbytes, "-fcommon"))
        assert f"aligned to {nbytes} bytes, the limit is {driver.PAGE}" in said


@BOTH
def test_two_loads_share_no_data(load, c_object):
    image = c_object(EVERYTHING)
    first, second = (load(image, "kernel", "kernel") for _ in range(2))
    out = (ctypes.c_double * 7)()
    for code in (first, first, second):
        ctypes.CFUNCTYPE(None)(code.entry)(out)
    assert out[1] == 1.0


@BOTH
def test_P12_no_page_is_writable_and_executable(load, c_object):
    load(c_object(EVERYTHING), "kernel", "kernel")  # LLVM makes pages of its own
    was = {low for low, _, r in mappings() if "w" in r and "x" in r}
    code = load(c_object(EVERYTHING), "kernel", "kernel")
    assert rights_at(code.entry) == "r-xp"
    assert [low for low, _, r in mappings() if "w" in r and "x" in r and low not in was] == []


def test_P12_each_part_has_rights_of_its_own(c_object):
    code = loader.load(c_object(EVERYTHING), "kernel", "kernel")
    end = code.address + driver.pages(code.nbytes)
    # A part may be shown as one with memory of the same rights beside it.
    parts = [rights for low, high, rights in mappings() if low < end and code.address < high]
    # qemu-user shows pages that may only be read as executable ones.
    assert parts in (["r-xp", "r--p", "rw-p"], ["r-xp", "rw-p"])


@BOTH
def test_P10_pages_go_with_the_code(load, c_object):
    code = load(c_object(EVERYTHING), "kernel", "kernel")
    entry = code.entry
    assert "x" in rights_at(entry)
    del code
    gc.collect()
    assert "x" not in rights_at(entry)


@BOTH
def test_P10_loading_again_and_again_grows_nothing(load, c_object):
    image = c_object(EVERYTHING)
    load(image, "kernel", "kernel")
    before = len(mappings())
    for _ in range(150):
        load(image, "kernel", "kernel")
    assert len(mappings()) <= before + 20  # malloc may take some for itself


@BOTH
def test_P1_the_named_entry_not_the_first(load, c_object):
    image = c_object("int first(void) { return 1; } int second(void) { return 2; }")
    code = load(image, "kernel", "second")
    assert ctypes.CFUNCTYPE(ctypes.c_int)(code.entry)() == 2
    code = load(image, "kernel", "absent", "first")
    assert ctypes.CFUNCTYPE(ctypes.c_int)(code.entry)() == 1


@BOTH
@pytest.mark.parametrize(
    ("text", "options", "cause"),
    [
        ("void other(void) {}", (), "has no entry 'kernel'; it defines other"),
        ("static void kernel(void) {} void (*p)(void) = kernel;", (), "has no entry 'kernel'"),
        ("int kernel = 3;", (), "the entry 'kernel' is not a function"),
        ("void nobody_has_this(int); void kernel(void) { nobody_has_this(1); }", (),
         "unresolved symbols: nobody_has_this"),
        ("extern int nor_this; int kernel(void) { return nor_this; }", (),
         "unresolved symbols: nor_this"),
        ("__thread int mine; int kernel(void) { return ++mine; }", (), "thread-local storage"),
        ("extern __thread int yours; int kernel(void) { return yours; }", (),
         "thread-local storage"),
        ("volatile int x; __attribute__((constructor)) void start(void) { x = 1; }"
         "void kernel(void) {}", (), "initialisers (."),
        ("static int chosen(void) { return 1; } static void *pick(void) { return chosen; }"
         "int f(void) __attribute__((ifunc(\"pick\"))); int kernel(void) { return f(); }", (),
         "resolved by code"),
        pytest.param(
            "int data[4]; int kernel(int i) { return data[i]; }", ("-fno-pic", "-fno-pie"),
            "compile with -fPIC", marks=pytest.mark.skipif(
                processor.machine() == "aarch64", reason="that code may lie anywhere on aarch64")),
    ],
)  # fmt: skip
def test_P1_refused_with_the_cause(load, c_object, text, options, cause):
    assert cause in refusal(c_object(text, *options), load=load)


WEAK = """
extern int maybe(void) __attribute__((weak));
int kernel(void) { return maybe ? maybe() : 7; }
"""


def test_P1_a_weak_symbol_may_be_missing(c_object):
    code = loader.load(c_object(WEAK), "kernel", "kernel")
    assert ctypes.CFUNCTYPE(ctypes.c_int)(code.entry)() == 7
    # LLVM ends the process at any symbol without an address, weak ones too.
    assert "unresolved symbols: maybe" in refusal(c_object(WEAK), load=engine.load)


def test_P10_an_engine_dropped_while_llvm_is_busy_is_closed_by_the_next_load(c_object):
    image = c_object(EVERYTHING)
    codes = [engine.load(image, "kernel", "kernel")]
    entry = codes[0].entry
    with llvm_lock:
        results(codes.clear, seconds=10)  # its finalizer must not wait for the lock
        assert "x" in rights_at(entry)
    kept = engine.load(c_object("int kernel(void) { return 1; }"), "kernel", "kernel")
    assert "x" not in rights_at(entry) or kept.entry >> 12 == entry >> 12


@BOTH
@pytest.mark.parametrize(
    ("image", "cause"),
    [(b"", "truncated: the header"), (b"\x7fELF", "truncated: the header"),
     (b"nonsense" * 20, "not an ELF object"), (b"MZ" + b"\0" * 100, "not an ELF object"),
     (b"\x7fELF\x02\x01\x01" + b"\0" * 57, "another machine (ELF machine 0")],
)  # fmt: skip
def test_P1_garbage(load, image, cause):
    assert cause in refusal(image, load=load)


@BOTH
def test_P1_foreign_objects(load, c_object):
    image = bytearray(c_object(EVERYTHING))
    struct.pack_into("<H", image, 18, 40)
    assert "another machine (ELF machine 40" in refusal(bytes(image), load=load)
    if processor.machine() == "x86-64":
        assert "another machine" in refusal(c_object("void kernel(void) {}", "-m32"), load=load)


@BOTH
def test_P1_a_shared_library_or_program_is_no_object(load):
    library = None
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libc.so" in line or "libc-2" in line:
            library = Path(line.split()[-1])
    assert library is not None
    assert "not a relocatable object (ELF type 3)" in refusal(library.read_bytes(), load=load)


@BOTH
def test_P1_every_truncation_is_refused(load, c_object):
    image = c_object("int kernel(int x) { return x + 1; }")
    for length in range(len(image)):
        refusal(image[:length], load=load)


def test_P1_damaged_objects_never_crash(c_object):
    """Any bytes, and those of the header, section, symbol and relocation tables."""
    good = c_object(EVERYTHING)
    (place,) = struct.unpack_from("<Q", good, 40)
    dice = random.Random(7)
    for turn in range(4000):
        image = bytearray(good)
        start, size = ((0, len(good)), (0, 400), (place, 400), (len(good) - place // 2, 400))[
            turn % 4
        ]
        for _ in range(dice.choice((1, 1, 2, 8))):
            offset = min(start + dice.randrange(size), len(image) - 1)
            image[offset] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        with suppress(CompileError):  # whatever else is raised, or a crash, fails the test
            code = loader.load(bytes(image), "kernel", "kernel")
            assert code.address <= code.entry < code.address + code.nbytes


@BOTH
def test_an_object_that_asks_for_too_much_memory(load, c_object):
    assert "the limit is" in refusal(
        c_object("char big[1L << 30]; void kernel(void) { big[0]++; }")
    )
    many = "".join(f"char b{i}[200 << 20];" for i in range(3))
    assert "the limit is" in refusal(c_object(many + "void kernel(void) {}"))


@BOTH
def test_relocations_stay_inside_their_section(load, c_object):
    image = bytearray(c_object('extern int puts(const char *); void kernel(void) { puts(""); }'))
    obj = elf.read(bytes(image), processor.machine())
    patch = next(p for p in obj.patches if obj.sections[p.section].flags & elf.EXECUTE)
    record = struct.pack("<QII", patch.offset, patch.type, patch.symbol)
    at = bytes(image).index(record)
    struct.pack_into("<Q", image, at, len(obj.sections[patch.section].data) - 3)
    assert "lies outside its section" in refusal(bytes(image), load=load)
    struct.pack_into("<Q", image, at, 2**64 - 1)
    assert "lies outside its section" in refusal(bytes(image), load=load)
    struct.pack_into("<QI", image, at, patch.offset, 250)
    assert "relocation type 250" in refusal(bytes(image), load=load)
