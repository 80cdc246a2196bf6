"""Facts of the processor on macOS. Source: sysctlbyname(3), `sysctl machdep.cpu hw.optional`."""

from __future__ import annotations

import ctypes

_FEATURES = ("machdep.cpu.features", "machdep.cpu.leaf7_features")  # of Intel's processors
_MODEL = ("hw.cpufamily", "hw.cpusubfamily", "machdep.cpu.stepping")


def facts(machine: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the processor's title (empty: unknown), its model, and its features."""
    model = "/".join(str(int.from_bytes(_ask(name)[:4], "little")) for name in _MODEL)
    if machine == "aarch64":
        return _text("machdep.cpu.brand_string"), model, ("asimd",)  # Apple's all have it
    words = " ".join(map(_text, _FEATURES)).lower().split()
    # Apple writes AVX1.0, where other systems write avx.
    return (
        _text("machdep.cpu.brand_string"),
        model,
        tuple(w.replace("avx1.0", "avx") for w in words),
    )


def _text(name: str) -> str:
    return _ask(name).rstrip(b"\0").decode("utf-8", "replace")


def _ask(name: str) -> bytes:
    """Return the value of that name; empty where this Mac has none."""
    answer = ctypes.create_string_buffer(4096)
    nbytes = ctypes.c_size_t(len(answer))
    call = ctypes.CDLL(None).sysctlbyname
    if call(name.encode(), answer, ctypes.byref(nbytes), None, ctypes.c_size_t(0)):
        return b""
    return answer.raw[: nbytes.value]
