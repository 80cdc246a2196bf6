"""AMD's disassembler and a decoder made from AMD's tables by others give instructions one name.

The engine of the software runtime carries out what AMD's disassembler says.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal_hip import hiprtc
from hal_hip.render import HIPRenderer

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "render"))

from everything import KINDS, every

TARGET = "gfx906"
LINE = re.compile(r"^\s+(?P<name>[a-z]\w+).*// [0-9A-F]{12}: (?P<words>[0-9A-F ]+)", re.M)
GONE = {"v_mac_f32", "buffer_wbinvl1_vol"}  # of gfx906; the tables are of processors without them


def instructions() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each instruction of kernels with every operation."""
    renderer = HIPRenderer()
    for kernel in map(every, KINDS):
        options = (f"--gpu-architecture={TARGET}", *renderer.options(kernel))
        code = hiprtc.compile(renderer.render(kernel), options)
        for found in LINE.finditer(hiprtc.disassemble(code, TARGET)):
            words = found["words"].split()
            yield found["name"], b"".join(int(word, 16).to_bytes(4, "little") for word in words)


def plain(name: str) -> str:
    """Return a mnemonic without the form of its encoding."""
    return re.sub("_(e32|e64|sdwa|dpp)$", "", name.lower())


@pytest.mark.usefixtures("library")
def test_another_decoder_gives_each_instruction_the_same_name() -> None:
    decoder = pytest.importorskip(
        "tinygrad.renderer.amd", reason="the other decoder is not installed (pip install tinygrad)"
    )
    compared: dict[str, set[str]] = {}
    for name, content in dict.fromkeys(instructions()):
        try:
            other = decoder.decode_inst(content, "cdna").op_name
        except ValueError as error:
            other = str(error)
        compared.setdefault(plain(name), set()).add(plain(other))
    assert len(compared) > 150
    different = {name: found for name, found in compared.items() if found != {name}}
    assert set(different) == GONE, different
