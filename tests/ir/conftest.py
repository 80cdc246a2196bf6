"""The tests of this folder build kernels by hand, or take them and oracles of other folders."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("render", "fuzz", "interpreter"))]
