"""PTX: assembled by NVIDIA's ptxas. The driver in software runs it: tests/simulators/cuda."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest
from builder import Builder
from everything import everything
from samples import SAMPLES
from slices import usual

from hal_core.dtypes import float32, float64
from hal_core.errors import Unsupported
from hal_cuda.render import PTXRenderer

# -- NVIDIA's assembler


def _ptxas():
    """On the path, or in the wheel `nvidia-cuda-nvcc-cu12`."""
    found = importlib.util.find_spec("nvidia")
    places = found.submodule_search_locations if found else None
    in_wheel = (path for place in places or () for path in Path(place).glob("*/bin/ptxas"))
    return shutil.which("ptxas") or next(map(str, in_wheel), None)


PTXAS = _ptxas()
needs_ptxas = pytest.mark.skipif(
    PTXAS is None, reason="ptxas is not installed (pip install nvidia-cuda-nvcc-cu12)"
)


def assemble(kernel, target, folder):
    """What ptxas says of registers and memory. Any warning is a failure."""
    text = PTXRenderer(target).render(kernel)
    path = folder / "kernel.ptx"
    path.write_text(text)
    command = [str(PTXAS), "-v", "--warning-as-error", "-arch", target, str(path)]
    done = subprocess.run(
        [*command, "-o", str(folder / "kernel.cubin")], capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stderr}\n{text}"
    return done.stderr


@needs_ptxas
@pytest.mark.parametrize("target", usual(["sm_80", "sm_90"], "sm_80"))
@pytest.mark.parametrize("kernel", everything(), ids=lambda kernel: str(kernel.name))
def test_every_operation_is_assembled(target, kernel, tmp_path):
    assert f"Compiling entry function '{kernel.name}'" in assemble(kernel, target, tmp_path)


@needs_ptxas
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_need_no_local_memory(name, tmp_path):
    kernel = SAMPLES[name].lower()
    said = assemble(kernel, "sm_80", tmp_path)
    assert "0 bytes stack frame, 0 bytes spill stores" in said
    assert f"{kernel.shared_nbytes} bytes smem" in said or not kernel.shared_nbytes


@needs_ptxas
@pytest.mark.parametrize("name", ["add", "mov", "tid", "entry", "reg", "b32", "_a", "global_"])
def test_a_kernel_may_take_a_word_of_ptx(name, tmp_path):
    b = Builder(name, "add: float32*, u32: int32")
    b.store("add", b.params["u32"], b.const(1, float32))
    assemble(b.kernel(), "sm_80", tmp_path)


@needs_ptxas
def test_names_together_are_no_word_of_ptx(tmp_path):
    b = Builder("WARP", "SZ: float32*, x: float32")
    b.store("SZ", b.index(), b.params["x"])
    assemble(b.kernel(), "sm_80", tmp_path)


@pytest.mark.parametrize("name", ["_", "WARP_SZ"])
def test_names_that_ptx_cannot_take(name):
    with pytest.raises(Unsupported, match="Rename the kernel"):
        PTXRenderer().render(Builder(name, "").kernel())


@pytest.mark.parametrize("contract", [False, True])
def test_ptxas_may_fuse_where_the_kernel_allows_it(contract):
    """mul.rn and add.rn are never fused; without .rn they may be."""
    b = Builder("fused", "r: float32*, x: float64")
    x = b.cast(b.params["x"], float32)
    b.store("r", b.index(), b.op("SUB", b.op("MUL", x, x), x))
    text = PTXRenderer().render(b.kernel(contract=contract))
    assert ("mul.f32" in text, "sub.f32" in text) == (contract, contract)
    assert ("mul.rn.f32" in text, "sub.rn.f32" in text) == (not contract, not contract)


def test_math_is_in_the_text():
    """There is no library to link with."""
    b = Builder("math", "r: float64*, x: float64")
    for op in ("EXP", "SIN", "FMOD", "POW"):
        operands = [b.params["x"]] * (2 if op in ("FMOD", "POW") else 1)
        b.store("r", b.index(), b.add(op, float64, *operands))
    text = PTXRenderer().render(b.kernel())
    assert "call" not in text and ".extern" not in text
    assert "approx" not in text and "ftz" not in text
