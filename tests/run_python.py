"""Run code in a Python of its own."""

import os
import subprocess
import sys
import textwrap


def run(code, *arguments, cwd=None, env=os.environ, **variables):
    """Run a text or a file, in which a warning is an error; `env` stands for the environment."""
    given = ["-c", textwrap.dedent(code)] if isinstance(code, str) else [str(code)]
    return subprocess.run(
        [sys.executable, "-W", "error", *given, *arguments],
        cwd=cwd, env={**env, **variables}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def ask(family, turns=1):
    """Return code that prints why a family has no device, and its state."""
    return f"""
for turn in range({turns}):
    try:
        hal.Device["{family}"]
    except hal.HalError as error:
        print(type(error).__name__, error)
print(hal.Device.states()["{family}"])
"""


def printed(code, *arguments, **options):
    """Return what a text or a file prints, which ends well and says nothing on stderr."""
    done = run(code, *arguments, **options)
    if done.returncode or done.stderr:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
