"""Kernels from text: the front end reads a function's source, so the text must be a file."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from types import ModuleType

_numbers = count()
IMPORTS = "import math\n\nimport hal_core as hal\n\n"


def load(folder: Path, text: str) -> ModuleType:
    """A module of its own with this text."""
    name = f"kernels_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    module = ModuleType(name)
    module.__file__ = str(path)
    exec(compile(text, str(path), "exec", dont_inherit=True), module.__dict__)
    return module
