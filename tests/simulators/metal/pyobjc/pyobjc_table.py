"""The selectors and constants of pyobjc-framework-Metal, read from the wheel that Macs install.

The wheel is downloaded once, into the folder of SIM_METAL_BUILD or one of this user. Its
`_metadata.py` calls `objc.registerMetaDataForSelector` for each selector; here it runs with a
recorder in the place of `objc`, and what it says is kept as JSON.
"""

import functools
import json
import re
import subprocess
import sys
import types
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cxx

WHEEL = "pyobjc-framework-Metal==12.2.2"
PLATFORM = "macosx_10_13_universal2"


class NoWheel(Exception):
    """The wheel cannot be downloaded."""


class Table(NamedTuple):
    selectors: dict[str, dict[str, Any]]  # "commit" -> {"retval": ..., "arguments": {"2": ...}}
    constants: dict[str, int]  # "MTLCommandBufferStatusError" -> 5


@functools.cache
def table():
    """Raises: NoWheel."""
    with cxx.building(cxx.kept("metal")) as folder:
        path = folder / "table.json"
        if not path.exists():
            path.write_text(json.dumps(_read(_wheel(folder))), encoding="utf-8")
        return Table(*json.loads(path.read_text(encoding="utf-8")))


def _wheel(folder):
    pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:")
    where = ("--platform", PLATFORM, "--python-version", "3.12", "--dest", str(folder))
    done = subprocess.run([*pip, *where, WHEEL], capture_output=True, text=True, check=False)
    found = sorted(folder.glob("pyobjc_framework_[mM]etal-*.whl"))
    if not found:
        raise NoWheel(f"pip cannot download {WHEEL}: {done.stderr.strip()}")
    return found[-1]


class _Recorder(types.ModuleType):
    """Stands for `objc` while `_metadata.py` runs; other calls than that of a selector are none."""

    arch = "arm64"

    def __init__(self):
        super().__init__("objc")
        self.selectors = {}

    def registerMetaDataForSelector(self, owner, name, facts):
        self.selectors[name.decode()] = {"class": owner.decode(), **_plain(facts)}

    def __getattr__(self, name):
        return lambda *_, **__: None


def _plain(facts):
    """Turn bytes into text and numbers of arguments into words, as JSON has them."""
    if isinstance(facts, dict):
        return {str(key): _plain(value) for key, value in facts.items()}
    return facts.decode() if isinstance(facts, bytes) else facts


def _read(wheel):
    text = zipfile.ZipFile(wheel).read("Metal/_metadata.py").decode()
    recorder, names = _Recorder(), {}
    before = sys.modules.get("objc")
    sys.modules["objc"] = recorder
    try:
        exec(compile(text, "_metadata.py", "exec"), names)
    finally:
        del sys.modules["objc"]
        if before is not None:
            sys.modules["objc"] = before
    constants = {name: int(value) for name, value in re.findall(r"\$(\w+)@(-?\d+)", names["enums"])}
    return recorder.selectors, constants


if __name__ == "__main__":
    read = table()
    print(len(read.selectors), "selectors,", len(read.constants), "constants")
