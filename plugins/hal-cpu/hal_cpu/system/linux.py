"""Facts of the processor on Linux. Source: proc(5), getauxval(3), <asm/hwcap.h>."""

from __future__ import annotations

import ctypes

from hal_core.concurrency import suppress

# Bits of two words that the kernel gives every process on aarch64, lowest first.
_HWCAP = (
    "fp", "asimd", "evtstrm", "aes", "pmull", "sha1", "sha2", "crc32", "atomics", "fphp", "asimdhp",
    "cpuid", "asimdrdm", "jscvt", "fcma", "lrcpc", "dcpop", "sha3", "sm3", "sm4", "asimddp",
    "sha512", "sve", "asimdfhm", "dit", "uscat", "ilrcpc", "flagm", "ssbs", "sb", "paca", "pacg",
)  # fmt: skip
_HWCAP2 = (
    "dcpodp", "sve2", "sveaes", "svepmull", "svebitperm", "svesha3", "svesm4", "flagm2", "frint",
    "svei8mm", "svef32mm", "svef64mm", "svebf16", "i8mm", "bf16", "dgh", "rng", "bti", "mte",
)  # fmt: skip
_AT_HWCAP, _AT_HWCAP2 = 16, 26

# What tells one model from another.
_MODEL = {
    "x86-64": ("vendor_id", "cpu family", "model", "stepping"),
    "aarch64": ("cpu implementer", "cpu variant", "cpu part", "cpu revision"),
}


def facts(machine: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the processor's title (empty: unknown), its model, and its features."""
    found = _first(read("/proc/cpuinfo"))
    model = "/".join(found[key] for key in _MODEL.get(machine, ()) if key in found)
    if machine == "aarch64":
        # The file is the machine's own: under an emulator it tells of another processor.
        part = found.get("cpu part")
        title = found.get("model name", f"Arm processor, part {part}") if part else ""
        return title, model, _arm_features()
    return found.get("model name", ""), model, tuple(found.get("flags", "").split())


def read(path: str) -> str:
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""


def _first(text: str) -> dict[str, str]:
    """Read the facts of the first processor in the text of /proc/cpuinfo."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if not colon:
            if found:
                break
            continue
        found.setdefault(key.strip().lower(), value.strip())
    return found


def _arm_features() -> tuple[str, ...]:
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.restype = ctypes.c_ulong
    getauxval.argtypes = (ctypes.c_ulong,)
    return features_of(getauxval(_AT_HWCAP), getauxval(_AT_HWCAP2))


def features_of(first: int, second: int) -> tuple[str, ...]:
    """Name the bits of the two words; one that is newer than the tables has its number."""
    return tuple(
        names[bit] if bit < len(names) else f"{word}.{bit}"
        for word, value, names in (("hwcap", first, _HWCAP), ("hwcap2", second, _HWCAP2))
        for bit in range(value.bit_length())
        if value >> bit & 1
    )
