"""The tests of this folder build kernels by hand, with the renderers' builder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "render")]
