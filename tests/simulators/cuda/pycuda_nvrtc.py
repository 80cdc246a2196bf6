"""PyCUDA compiles by NVRTC to PTX where it would run nvcc, once this is imported.

Also a pytest plugin, for PyCUDA's own tests: `python -m pytest -p pycuda_nvrtc test_gpuarray.py`.
"""

from __future__ import annotations

import pycuda.compiler
from cuda.bindings import nvrtc

ARCHITECTURE = "compute_80"
# Asked for by PyCUDA's headers and tests; nothing of them is used that NVRTC does not know.
EMPTY = ("surface_functions.h", "stdio.h")


def _checked(answer: tuple[object, ...]) -> object:
    if answer[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"NVRTC: {answer[0]}")
    return answer[1] if len(answer) > 1 else None


def compile_to_ptx(source: str, options: list[str]) -> bytes:
    """Of nvcc's options those that change the meaning are kept: -I, -D and the mathematics."""
    names, texts = [name.encode() for name in EMPTY], [b""] * len(EMPTY)
    program = _checked(
        nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", len(EMPTY), texts, names)
    )
    kept = [option for option in options if option.startswith(("-I", "-D", "--use_fast_math"))]
    flags = [option.encode() for option in (f"--gpu-architecture={ARCHITECTURE}", *kept)]
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = b" " * int(_checked(nvrtc.nvrtcGetProgramLogSize(program)))  # type: ignore[call-overload]
            _checked(nvrtc.nvrtcGetProgramLog(program, log))
            raise pycuda.driver.CompileError(log.decode(errors="replace"), ["nvrtc", *options])
        ptx = b" " * int(_checked(nvrtc.nvrtcGetPTXSize(program)))  # type: ignore[call-overload]
        _checked(nvrtc.nvrtcGetPTX(program, ptx))
        return ptx
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _compile_plain(
    source: str, options: list[str], keep: bool, nvcc: str, cache: object, target: str = "cubin"
) -> bytes:
    return compile_to_ptx(source, options)


pycuda.compiler.compile_plain = _compile_plain
