"""Run code in a Python of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def run(
    code: str | Path, *arguments: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a text or a file, in which a warning is an error."""
    given = ["-c", textwrap.dedent(code)] if isinstance(code, str) else [str(code)]
    return subprocess.run(
        [sys.executable, "-W", "error", *given, *arguments],
        cwd=cwd, env=os.environ | variables, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def printed(code: str | Path, *arguments: str, cwd: Path | None = None, **variables: str) -> str:
    """Return what a text or a file prints, which ends well and says nothing on stderr."""
    done = run(code, *arguments, cwd=cwd, **variables)
    if done.returncode or done.stderr:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
