"""The Pythons that sessions run on."""

from __future__ import annotations

import subprocess
import sys

SUPPORTED = ("3.11", "3.12", "3.13")


def _runs(version: str) -> bool:
    """Tell whether a Python runs: pyenv has a `python3.x` on PATH also for inactive versions."""
    try:
        done = subprocess.run((f"python{version}", "-c", ""), capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


_CURRENT = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHONS = SUPPORTED if _CURRENT in SUPPORTED else (*SUPPORTED, _CURRENT)
FULL = "3.12" if _runs("3.12") else _CURRENT  # runs every test, lint and types
OTHERS = tuple(version for version in PYTHONS if version != FULL)
