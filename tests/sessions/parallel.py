"""Commands of a session that run at once."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox


def run(session: nox.Session, *commands: tuple[str, ...]) -> None:
    """Run commands at once, each of which uses one core; then show what each has printed."""

    def one(name: str, *rest: str) -> subprocess.CompletedProcess[str]:
        command = (str(Path(session.bin, name)), *rest)
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor() as pool:
        ran = [pool.submit(one, *command) for command in commands]
    failed = []
    for (name, *_), done in zip(commands, (one.result() for one in ran), strict=True):
        session.log(f"{name}: {(done.stdout + done.stderr).strip()}")
        failed += [name] if done.returncode else []
    if failed:
        session.error(f"failed: {', '.join(failed)}")
