"""Run texts as programs, each in a fork of one process that has imported what they need."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# A child ends as any program does: its text runs in the main module, of whose globals it is one.
SERVER = """
import json, os, signal, sys
for line in sys.stdin:
    if not os.fork():
        signal.alarm(120)
        text, variables, *files = json.loads(line)
        os.environ.clear()
        os.environ.update(variables)
        for number, path in enumerate(files, 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
        exec(text)
        sys.exit()
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


class Programs:
    """A process that runs `head` and then forks; texts see the names that `head` defines."""

    def __init__(self, head, *flags, env=None):
        self._process = subprocess.Popen(
            [sys.executable, *flags, "-c", head + SERVER], env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, text, env=None, **variables):
        process = self._process
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, name) for name in ("stdout", "stderr")]
            variables = dict(os.environ if env is None else env) | variables
            given = (text, variables, *map(str, files))
            print(json.dumps(given), file=process.stdin, flush=True)
            code = int(process.stdout.readline())
            return subprocess.CompletedProcess(text, code, *(file.read_text() for file in files))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.communicate()


def collected_kit(optimize):
    """Return programs that begin where the conformance kit is collected."""
    head = (Path(__file__).parent / "testing" / "collected.py").read_text(encoding="utf-8")
    return Programs(head, env=os.environ | {"PYTHONOPTIMIZE": optimize})
