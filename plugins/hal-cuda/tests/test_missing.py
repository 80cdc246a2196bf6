"""Where something is missing: one answer that says what, and what to install."""

from __future__ import annotations

import subprocess
import sys

HIDE = """
import sys
class Nobody:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Nobody())
"""

ASK = """
import hal_core as hal
try:
    hal.Device["CUDA"]
except hal.HalError as error:
    print(type(error).__name__, error)
print(hal.Device.states()["CUDA"])
"""


def _run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/nonexistent", **environment},
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def test_R10_without_the_bindings_it_says_what_to_install() -> None:
    said = _run(HIDE.format(hidden=["cuda"]) + ASK)
    assert "DeviceUnavailable" in said and "python -m pip install cuda-bindings" in said
    assert said.endswith("no hardware\n")


def test_R10_without_pycuda_it_says_what_to_install() -> None:
    said = _run(HIDE.format(hidden=["pycuda"]) + ASK, HAL_CUDA_DRIVER="pycuda")
    assert "DeviceUnavailable" in said and "pip install hal-cuda[pycuda]" in said


def test_another_binding_is_refused_with_the_names_of_both() -> None:
    said = _run(ASK, HAL_CUDA_DRIVER="cupy")
    assert "InvalidArgument" in said and "cuda-bindings or pycuda" in said


def test_importing_the_plugin_loads_neither_binding_nor_compiler() -> None:
    # A start-up file of cuda-bindings 12 may have imported something of it before.
    code = "import sys; before = set(sys.modules); import hal_cuda; "
    code += "print([m for m in set(sys.modules) - before if m.split('.')[0] in "
    assert _run(code + "('cuda', 'pycuda', 'numpy', 'ctypes')])") == "[]\n"
