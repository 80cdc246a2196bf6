"""List the packages that sessions install from PyPI besides the distributions."""

from __future__ import annotations

import shutil

# Where the machine has no C and C++ compilers, zig's build the drivers in software.
COMPILERS = () if shutil.which("g++") and shutil.which("clang") else ("ziglang",)
# pip is listed because uv's environments have none; tests fetch packages with it.
TEST = (
    "pytest>=8.4", "pytest-timeout>=2.3", "pytest-xdist>=3.7", "hypothesis>=6.100",
    "ml_dtypes>=0.5", "cloudpickle>=3.0", "pip", *COMPILERS,
)  # fmt: skip
# An OpenCL platform for machines that have none; it has no wheels for other systems.
POCL = "pocl-binary-distribution; sys_platform == 'linux' and platform_machine == 'x86_64'"
# Compilers that take what the renderers write: CUDA C, PTX; two with front ends of their own.
TEXT = ("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvcc-cu12", "loopy>=2025.1", "tinygrad>=0.14")
CLUSTERS = ("distributed", "mpi4py>=4", "mpich")  # of docs/clusters.md
DEMO = ("pillow>=10", "scikit-learn>=1.4", "scipy>=1.11", "safetensors>=0.4")
TYPES = ("pytest>=8.2", "mypy>=1.11", "pyright[nodejs]>=1.1.380", "ruff>=0.6")
PEERS = ("tinygrad", "pyopencl", "numba", "ml_dtypes>=0.5")  # of the speed table
