"""The distributions of this repository, and what their pyproject.toml files ask for."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out"
BACKENDS = ("cpu", "cuda", "hip", "metal", "opencl", "ray")
DISTRIBUTIONS = (
    "hal-core", "hal-kernel", "hal-streams", "hal-testing", *(f"hal-{name}" for name in BACKENDS),
)  # fmt: skip
LOCAL = tuple(name for name in DISTRIBUTIONS if name != "hal-ray")  # Ray is 80 MB and more


def folder_of(name: str) -> Path:
    return ROOT if name == "hal-core" else ROOT / "plugins" / name


def _project(name: str) -> dict[str, Any]:
    text = (folder_of(name) / "pyproject.toml").read_text(encoding="utf-8")
    return dict(tomllib.loads(text)["project"])


def dependencies(name: str) -> list[str]:
    return list(_project(name)["dependencies"])


def version() -> str:
    """Return the version that all distributions share."""
    return str(_project("hal-core")["version"])


def needed(names: Iterable[str]) -> list[str]:
    """List these distributions, behind those of the repository that they need."""
    found = dict[str, None]()
    for name in names:
        every = (one.partition(">=")[0] for one in dependencies(name))
        ours = [one for one in every if one.startswith("hal-")]
        found |= dict.fromkeys([*needed(ours), name])
    return list(found)


def lowest(*names: str, into: Path) -> str:
    """Write pip's constraints: the lowest version of all that distributions ask of others."""
    bounds = [
        one.partition(">=") for name in needed(names) for one in _project(name)["dependencies"]
    ]
    lines = [
        f"{name}=={version.partition(',')[0]}\n"
        for name, _, version in bounds
        if not name.startswith("hal-")
    ]
    path = into.resolve() / "lowest.txt"
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)
