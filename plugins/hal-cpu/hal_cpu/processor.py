"""Facts of the processor, and the share of it and of its memory that this process may use.

Source: cgroups(7).
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache

from hal_core.concurrency import suppress
from hal_cpu.system import linux

MACHINES = {  # system, as Python names it -> its processors that kernels run on
    "linux": ("x86-64", "aarch64"),
    "darwin": ("x86-64", "aarch64"),
    "win32": ("x86-64",),
}


@cache
def machine() -> str:
    """Return `x86-64`, `aarch64`, or the system's own word."""
    name = platform.machine().lower()
    return {"amd64": "x86-64", "x86_64": "x86-64", "arm64": "aarch64"}.get(name, name)


def is_linux() -> bool:
    return sys.platform == "linux"


def is_windows() -> bool:
    return sys.platform == "win32"


def object_format() -> str:
    """Return the form of the objects that compilers make: Mach-O on macOS, else ELF.

    Also on Windows: kernels are loaded without a linker, and LLVM's engine knows ELF best.
    """
    return "macho" if sys.platform == "darwin" else "elf"


def system() -> str:
    return f"{platform.system()} on {platform.machine()}"


@cache
def _facts() -> tuple[str, str, tuple[str, ...]]:
    """Return the processor's title (empty: unknown), its model, and its features."""
    if sys.platform == "win32":
        from hal_cpu.system import windows as system
    elif sys.platform == "darwin":
        from hal_cpu.system import macos as system
    else:
        system = linux
    return system.facts(machine())


def cpu_title() -> str:
    return _facts()[0] or f"{machine()} processor"


def cpu_flags() -> tuple[str, ...]:
    """Return the processor's features, sorted: `avx2`, `fma`, ..."""
    return tuple(sorted(set(_facts()[2])))


def has_half() -> bool:
    """Return whether the processor converts between float16 and float32 by itself."""
    return machine() == "aarch64" or "f16c" in cpu_flags()


def has_fma() -> bool:
    """Return whether the processor multiplies and adds in one instruction."""
    return machine() == "aarch64" or "fma" in cpu_flags()


def vector_registers() -> tuple[int, int]:
    """Return the number of vector registers, and the bytes of each."""
    if machine() == "aarch64":
        return 32, 16
    return (32, 64) if "avx512f" in cpu_flags() else (16, 32)


def cpu_identity() -> str:
    """Return a text that differs where `native` means something else to a compiler."""
    return f"{machine()} {_facts()[1]} {' '.join(cpu_flags())}"


def cpu_arch() -> str:
    """Return the machine and its widest vectors, for people: `x86-64 avx512f`."""
    flags = cpu_flags()
    best = next((name for name in ("avx512f", "avx2", "avx", "sve", "asimd") if name in flags), "")
    return f"{machine()} {best}".strip()


# -- the share of this process


def _cgroup_files(controller: str, name_v1: str, name_v2: str, root: str = "") -> list[str]:
    """Read a setting in every cgroup that this process is in, from its own up to the root's."""
    texts = []
    for line in linux.read(f"{root}/proc/self/cgroup").splitlines():
        # number:controllers:path; version 2 has the number 0 and no controllers.
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not controllers:
            base, name = f"{root}/sys/fs/cgroup", name_v2
        elif controller in controllers.split(","):
            base, name = f"{root}/sys/fs/cgroup/{controllers}", name_v1
            if not os.path.isdir(base):
                base = f"{root}/sys/fs/cgroup/{controller}"
        else:
            continue
        while True:
            text = linux.read(f"{base}{path}/{name}").strip()
            if text:
                texts.append(text)
            if path in ("", "/"):
                break
            path = os.path.dirname(path)
            path = "" if path == "/" else path
    return texts


def _affinity() -> int:
    """Count the processors that this process may run on; 0: the system does not say."""
    if sys.platform == "win32":
        from hal_cpu.system import windows

        return windows.affinity()
    with suppress(AttributeError, OSError):  # macOS has none
        return len(os.sched_getaffinity(0))
    return 0


def usable_cores(root: str = "") -> int:
    """Count the cores of the affinity mask, at most a cgroup's quota (v1 and v2)."""
    cores = _affinity() or os.cpu_count() or 1
    # Version 2 has "200000 100000" in one file, version 1 a file for each.
    quotas = _cgroup_files("cpu", "cpu.cfs_quota_us", "cpu.max", root)
    periods = _cgroup_files("cpu", "cpu.cfs_period_us", "cpu.max", root)
    for first, second in zip(quotas, periods, strict=False):
        quota, period = first.split()[0], second.split()[-1]
        if quota.isdigit() and period.isdigit() and int(period):  # else "max" or "-1": no quota
            cores = min(cores, -(-int(quota) // int(period)))
    return max(1, cores)


def usable_memory(root: str = "") -> int:
    """Return the machine's bytes of memory, at most a cgroup's limit (v1 and v2)."""
    if sys.platform == "win32":
        from hal_cpu.system import windows

        total = windows.memory_nbytes()
    else:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for text in _cgroup_files("memory", "memory.limit_in_bytes", "memory.max", root):
        if text.isdigit():
            total = min(total, int(text))
    return total
