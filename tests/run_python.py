"""Run code in a Python of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def run(
    code: str | Path, *arguments: str, cwd: Path | None = None,
    env: Mapping[str, str] = os.environ, **variables: str,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run a text or a file, in which a warning is an error; `env` stands for the environment."""
    given = ["-c", textwrap.dedent(code)] if isinstance(code, str) else [str(code)]
    return subprocess.run(
        [sys.executable, "-W", "error", *given, *arguments],
        cwd=cwd, env={**env, **variables}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def printed(code: str | Path, *arguments: str, **options: Any) -> str:
    """Return what a text or a file prints, which ends well and says nothing on stderr."""
    done = run(code, *arguments, **options)
    if done.returncode or done.stderr:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
