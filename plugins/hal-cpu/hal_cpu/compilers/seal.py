"""A seal behind an object, for what is loaded: machine code that is damaged, or that this processor
lacks instructions for, would end the process.

object | mark | features of the processor that it was compiled for | checksum of all, 32 bytes
"""

from __future__ import annotations

import hashlib
import re
from functools import cache

from hal_core.errors import CompileError
from hal_cpu import processor

MARK = b"\nhal-cpu 1\n"
_NBYTES = 32  # of a SHA-256
# Features that compilers have instructions for. Others come with a system or a virtual machine.
_INSTRUCTIONS = re.compile(
    r"(abm|adx|aes|amx|asimd|atomics|avx|bmi|crc32|f16c|fma|fp|gfni|lzcnt|movbe|pclmul|popcnt|sha|"
    r"sm[34]|sme|s?sse|sve|vaes|vpclmul|xop)\w*"
)


def sealed(image: bytes) -> bytes:
    """Return an object followed by its seal."""
    body = image + MARK + " ".join(_features()).encode()
    return body + hashlib.sha256(body).digest()


def check(image: bytes, operation: str) -> None:
    """Raise CompileError unless the seal is whole and this processor has all features."""
    body, mark, features = image[:-_NBYTES].rpartition(MARK)
    lacking = set(features.decode(errors="replace").split()).difference(_features())
    if not mark or hashlib.sha256(body + mark + features).digest() != image[-_NBYTES:]:
        problem = "the binary is damaged: its checksum does not match"
    elif lacking:
        problem = f"made for a processor with {', '.join(sorted(lacking))}, which this one lacks"
    else:
        return
    fix = "Compile the kernel again from its source, on this machine."
    raise CompileError(operation, problem, device="CPU", fix=fix)


@cache
def _features() -> list[str]:
    return [flag for flag in processor.cpu_flags() if _INSTRUCTIONS.fullmatch(flag)]
