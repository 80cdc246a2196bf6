"""The bits that relocations write.

Code of this machine runs (test_loader), on an Arm processor too; aarch64 objects come from LLVM's
cross compiler.
"""

import struct

import pytest

from hal_cpu import driver
from hal_cpu.loader import elf, mapped, relocations
from hal_cpu.loader.elf import BadObject

pytestmark = pytest.mark.arm

AARCH64_IR = """
target triple = "aarch64-unknown-linux-gnu"
@environ = external global ptr
declare double @exp(double)
define double @kernel(double %x, ptr %out) {
  store volatile ptr @environ, ptr %out
  %r = call double @exp(double %x)
  %s = fadd double %r, %x
  ret double %s
}
"""


@pytest.fixture(scope="module")
def aarch64_object():
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(
        opt=2, reloc="pic", codemodel="small"
    )
    return machine.emit_object(llvm.parse_assembly(AARCH64_IR))


def test_aarch64_stubs_and_slots_hold_the_addresses(aarch64_object):
    loading = mapped._Loading(aarch64_object, "aarch64", ("kernel",))
    memory = driver.memory_at(loading.code.address, loading.code.nbytes)
    names = {number: symbol.name for number, symbol in enumerate(loading.object.symbols)}
    ((stub, place),) = loading.stubs.items()
    assert names[stub] == "exp"
    load, jump, address = struct.unpack_from("<IIQ", memory, place)
    assert (load, jump) == (0x58000050, 0xD61F0200)  # ldr x16, .+8; br x16
    assert address == driver.symbol_address("exp")
    slots = {names[number]: place for number, place in loading.slots.items()}
    (value,) = struct.unpack_from("<Q", memory, slots["environ"])
    assert value == driver.symbol_address("environ")


def test_an_aarch64_object_is_foreign_elsewhere(aarch64_object):
    with pytest.raises(BadObject, match="another machine"):
        elf.read(aarch64_object, "x86-64")


RULES = [rule for rules in relocations.RULES.values() for rule in rules.values()]


NEAR = [rule for rule in RULES if rule.nbytes == 4 and not rule.name.endswith("LO12_NC")]
SCALED = [rule for rule in RULES if rule.name.endswith("LO12_NC")]


@pytest.mark.parametrize("rule", NEAR, ids=lambda rule: rule.name)
@pytest.mark.parametrize("target", [1 << 45, -(1 << 45)])
def test_a_target_out_of_reach_is_refused(rule, target):
    data = bytearray(4)
    with pytest.raises(BadObject, match="-fPIC"):
        relocations.apply(rule, memoryview(data), 0, target, 0)
    assert data == bytes(4)


@pytest.mark.parametrize("rule", SCALED, ids=lambda rule: rule.name)
def test_low_bits_must_be_aligned_to_the_access(rule):
    data = bytearray(4)
    relocations.apply(rule, memoryview(data), 0, 0x7FF0, 0)
    assert data != bytes(4)
    if "LDST8_" not in rule.name and "ADD_" not in rule.name:
        with pytest.raises(BadObject, match="-fPIC"):
            relocations.apply(rule, memoryview(data), 0, 0x7FF1, 0)


@pytest.mark.parametrize(
    ("name", "word", "target", "place", "patched"),
    [  # as clang's assembler encodes `bl .+0x1000`, `b .-0x1000`, ...
        ("R_AARCH64_CALL26", 0x94000000, 0x2000, 0x1000, 0x94000400),
        ("R_AARCH64_JUMP26", 0x14000000, 0x1000, 0x2000, 0x17FFFC00),
        ("R_AARCH64_ADR_PREL_PG_HI21", 0x90000000, 0x5432, 0x1000, 0x90000020),
        ("R_AARCH64_ADD_ABS_LO12_NC", 0x91000000, 0x5432, 0, 0x9110C800),
        ("R_AARCH64_LDST8_ABS_LO12_NC", 0x39400000, 0x5432, 0, 0x3950C800),
        ("R_AARCH64_LDST16_ABS_LO12_NC", 0x79400000, 0x5432, 0, 0x79486400),
        ("R_AARCH64_LDST32_ABS_LO12_NC", 0xB9400000, 0x5434, 0, 0xB9443400),
        ("R_AARCH64_ADR_GOT_PAGE", 0x90000000, 0x5432, 0x1000, 0x90000020),
        ("R_AARCH64_LD64_GOT_LO12_NC", 0xF9400000, 0x5438, 0, 0xF9421C00),
        ("R_AARCH64_LDST64_ABS_LO12_NC", 0xF9400000, 0x5438, 0, 0xF9421C00),
        ("R_AARCH64_LDST128_ABS_LO12_NC", 0x3DC00000, 0x5430, 0, 0x3DC10C00),
        ("R_AARCH64_CONDBR19", 0x54000000, 0x1040, 0x1000, 0x54000200),
        ("R_AARCH64_TSTBR14", 0x36000000, 0x0FFC, 0x1000, 0x3607FFE0),
        ("R_AARCH64_ADR_PREL_LO21", 0x10000000, 0x1005, 0x1000, 0x30000020),
    ],
)
def test_aarch64_encodings(name, word, target, place, patched):
    rule = next(rule for rule in RULES if rule.name == name)
    data = bytearray(struct.pack("<I", word))
    relocations.apply(rule, memoryview(data), 0, target, place)
    assert f"{struct.unpack('<I', data)[0]:#x}" == f"{patched:#x}"
