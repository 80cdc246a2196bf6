"""R21 on a real device: an extension that adds a compiler to the CPU, and one that observes."""

from __future__ import annotations

from pathlib import Path

import pytest

import hal_core as hal
from hal_core.compiler import CompilerPair
from hal_core.device.backend import Backend
from hal_core.device.plugin import Extension
from hal_core.hookspecs import hookimpl
from hal_core.source import Source
from hal_cpu import plugin
from hal_cpu.compiler import llvm_renderer
from hal_cpu.compilers.llvm import LLVMCompiler
from hal_cpu.device import CPUDevice, describe


class ThriceCompiler(LLVMCompiler):
    """LLVM with one number of the text changed."""

    def __init__(self) -> None:
        super().__init__()
        self.identity = f"thrice {self.identity}"

    def _compile(self, source: Source) -> bytes:
        text = source.text.replace("33333", "44444")
        return super()._compile(
            hal.Source(source.name, text, source.signature, language="llvm", rendered=True)
        )


class Adds:
    hal_api = (1, 0)

    @hookimpl
    def hal_make_compilers(self, device: hal.Compiled) -> list[CompilerPair]:
        if device.family != "CPU":
            return []
        return [CompilerPair("thrice", "llvm", llvm_renderer, ThriceCompiler)]


class Watches:
    hal_api = (1, 0)

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    @hookimpl
    def hal_device_opened(self, device: hal.Compiled) -> None:
        self.seen.append(("opened", device.name))

    @hookimpl
    def hal_compiled(self, device: hal.Compiled, program: hal.Program, cached: bool) -> None:
        self.seen.append(("compiled", program.name, program.pair, cached))

    @hookimpl
    def hal_device_closed(self, device: hal.Compiled) -> None:
        self.seen.append(("closed", device.name))


@hal.kernel
def three(x: hal.Ptr[hal.int32]):
    x[hal.global_idx(0)] = 33333


def test_R21_extensions_of_the_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HAL_CACHE_DIR", str(tmp_path))
    watches = Watches()
    backend = Backend(plugin, "CPU", "tests")
    for number, extension in enumerate((Adds(), watches)):
        backend.attach(Extension(extension, f"extension {number}", "tests"))
    device = backend.open(0, describe("CPU"))
    assert isinstance(device, CPUDevice)
    assert [pair.name for pair in device.compilers][-1] == "thrice"
    results = {}
    for name in ("llvm", "thrice"):
        monkeypatch.setenv("CPU_CC", name)
        x = hal.zeros(4, hal.int32, device)
        device.compile(three.lower())(x, grid=1, block=4)
        results[name] = x.numpy().tolist()
    assert results == {"llvm": [33333] * 4, "thrice": [44444] * 4}
    monkeypatch.delenv("CPU_CC")
    assert device.compile(three).pair == "llvm"  # the owner's go first
    device.close()
    assert watches.seen == [
        ("opened", "CPU"), ("compiled", "three", "llvm", False),
        ("compiled", "three", "thrice", False), ("compiled", "three", "llvm", True),
        ("closed", "CPU"),
    ]  # fmt: skip
