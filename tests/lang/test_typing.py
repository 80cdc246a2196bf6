"""What type checkers accept in `typed_kernels.py` is a kernel too."""

from pathlib import Path

from kernel_files import load

from hal_kernel.ir.verify import verify


def test_typed_kernels_are_kernels(tmp_path):
    text = (Path(__file__).parent / "typed_kernels.py").read_text(encoding="utf-8")
    verify(load(tmp_path, text).everything.lower())
