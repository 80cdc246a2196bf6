"""The conformance kit, as users run it."""

from __future__ import annotations

import shutil

import nox

from sessions import drivers, tools, wheels
from sessions.distributions import LOCAL, OUT

# A device and the compiler that the kit asks for. With `engine`, LLVM loads the kernels, as on
# macOS and Windows. RAY is left out: it needs a cluster, and the session `ray` runs the kit on one
# that it starts, on two kinds of devices.
PAIRS = (
    "CPU-llvm", "CPU-clang", "CPU-gcc", "CPU-zig", "CPU-llvm-engine", "CUDA-nvrtc", "CUDA-ptx",
    "HIP-hiprtc", "METAL-system", "OPENCL-driver", "PYTHON-uops",
)  # fmt: skip
CORE_CHAPTERS = ("buffer", "view", "dtype", "program", "language")
# How the software CUDA driver may carry out the threads of a block.
_SCHEDULES = ("barrier", "lockstep")


def check_pair(session: nox.Session, pair: str) -> None:
    """Check a device with a compiler; it may need a driver in software, which is built."""
    device, compiler, *engine = pair.split("-")
    if compiler in ("clang", "gcc") and shutil.which(compiler) is None:
        session.skip(f"{compiler} is not installed")
    compilers = ("ziglang",) if compiler == "zig" else tools.COMPILERS
    folder = wheels.install(session, *LOCAL, tools=("pytest>=8.2", "pip", *compilers))
    if device == "OPENCL" and not drivers.opencl(session):
        session.skip("there is no OpenCL platform")
    env = drivers.in_software(session, device, folder)
    if device == "CUDA":
        check_cuda(session, env, "cuda-bindings", compiler, *session.posargs)
    else:
        env |= {"HAL_CPU_LOADER": "llvmlite"} if engine else {}
        _check(session, device, compiler, pair, *session.posargs, **env)


def check_cuda(
    session: nox.Session, env: dict[str, str], binding: str, compiler: str, *more: str
) -> None:
    """Check hal-cuda through a binding, with each schedule of the driver in software."""
    for schedule in _SCHEDULES:
        name = f"CUDA-{compiler}-{schedule}-{binding}"
        chosen = {"HAL_CUDA_DRIVER": binding, "SIM_CUDA_SCHEDULE": schedule}
        _check(session, "CUDA", compiler, name, *more, **env, **chosen)


def _check(
    session: nox.Session, device: str, compiler: str, name: str, *more: str, **env: str
) -> None:
    """Run `hal check`, with a report of that name in out/."""
    OUT.mkdir(exist_ok=True)
    report = ("--report", str(OUT / f"conformance-{name}.md"), "--require-device", *more)
    session.run("hal", "check", device, "--pair", compiler, *report, env=env)
