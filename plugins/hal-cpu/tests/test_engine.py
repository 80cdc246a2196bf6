"""LLVM's engine as the loader: the default on macOS and Windows, on request on Linux."""

import gc
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import llvmlite
import pytest
from ctrl_c import Place, Scene, play
from unregistered import open_device

import hal_core as hal
from hal_cpu.compilers.llvm import LLVMCompiler
from hal_cpu.loader import engine
from hal_cpu.loader.engine import EngineCode
from hal_cpu.loader.mapped import Code

pytestmark = pytest.mark.arm


@hal.kernel
def once(y: hal.Ptr[hal.int32]):
    y[hal.global_idx(0)] = 1


def test_the_loader_is_chosen_when_the_device_opens(monkeypatch):
    kinds = []
    for chosen in ("llvmlite", "elf"):
        device = open_device(HAL_CPU_LOADER=chosen)
        monkeypatch.setenv("HAL_CPU_LOADER", "nonsense")  # read once
        kinds.append(type(device.compile(once).code))
        device.close()
    assert kinds == [EngineCode, Code]


def test_ctrl_c_never_comes_within_llvmlite():
    """It frees an object twice if Ctrl-C comes as it closes it, and the process ends."""
    text = "define void @nothing(ptr %a, ptr %b, i64 %c, i64 %d) {\n  ret void\n}\n"
    source = hal.Source("nothing", text, "", language="llvm", rendered=True)
    compiler, kept = LLVMCompiler(), list[EngineCode]()

    def work():
        kept.append(engine.load(compiler.compile(source), "nothing", "nothing"))

    work()
    home = Path(llvmlite.__file__).parent
    assert play(Scene(work, lambda _: None), Place(-1, (str(home),))).seen == 0


def test_an_engine_is_closed_once_wherever_ctrl_c_comes():
    class Half:
        """An object of llvmlite that Ctrl-C ends in `close`."""

        closed = 0

        def close(self):
            Half.closed += 1
            raise KeyboardInterrupt

        def __del__(self):
            with suppress(KeyboardInterrupt):
                self.close()

    with pytest.raises(KeyboardInterrupt):
        engine._drop(Half())
    gc.collect()
    assert Half.closed == 1


def test_another_loader_is_refused_when_the_device_opens():
    with pytest.raises(hal.InvalidArgument, match="expected elf or llvmlite"):
        open_device(HAL_CPU_LOADER="dlopen")


@pytest.mark.full
def test_the_engine_keeps_the_contract():
    """The kit's chapter about code; `nox -s conformance` runs all of them."""
    command = [sys.executable, "-m", "hal_core", "check", "CPU", "--pair", "llvm"]
    command += ["--require-device", "--chapter", "program"]
    done = subprocess.run(
        command,
        env=os.environ | {"HAL_CPU_LOADER": "llvmlite"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
