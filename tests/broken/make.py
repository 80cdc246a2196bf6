"""Writes the projects of distributions that are broken in different ways: `make.py FOLDER`.

Prints the folder of each. They build like anybody's; what is wrong with them shows on use.
"""

import sys
from pathlib import Path

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0"

[project.entry-points."{group}"]
{entry} = "{module}:plugin"

[tool.hatch.build.targets.wheel]
packages = ["{module}"]
"""

WHOLE = """\
from hal_core.hookspecs import hookimpl


class Plugin:
    hal_api = {version}

    @hookimpl
    def hal_enumerate(self, family):
        return []

    @hookimpl
    def hal_open_device(self, family, index, info):
        raise RuntimeError("never asked")


plugin = Plugin()
"""

# distribution -> (entry point, source, state that doctor gives, text that it says)
BROKEN = {
    "hal-raises": ("RAISES", "import no_such_vendor_package", "broken", "no_such_vendor_package"),
    "hal-exits": ("EXITS", "raise SystemExit('bye')", "broken", "SystemExit: bye"),
    "hal-crashes": ("CRASHES", "import ctypes\nctypes.string_at(0)", "broken", "SIGSEGV"),
    "hal-hangs": ("HANGS", "import time\ntime.sleep(3600)", "broken", "did not end within"),
    "hal-old": ("OLD", WHOLE.format(version="(0, 1)"), "incompatible", "plugin API 0.1"),
    "hal-number": ("NUMBER", "plugin = 42", "broken", "no plugin object"),
    "hal-twin-a": ("TWIN", WHOLE.format(version="(1, 0)"), "in conflict", "HAL_PREFER"),
    "hal-twin-b": ("TWIN", WHOLE.format(version="(1, 0)"), "in conflict", "HAL_PREFER"),
    "hal-watch": ("watch", "raise OSError('no socket')", "broken", "no socket"),
    "hal-damaged": ("DAMAGED", WHOLE.format(version="(1, 0)"), "broken", "not UTF-8"),
}
EXTENSIONS = ("hal-watch",)


def make(folder):
    for name, (entry, source, _, _) in BROKEN.items():
        module = name.replace("-", "_")
        (folder / name / module).mkdir(parents=True)
        (folder / name / module / "__init__.py").write_text(source + "\n")
        group = "hal.extensions" if name in EXTENSIONS else "hal.devices"
        text = PROJECT.format(name=name, group=group, entry=entry, module=module)
        (folder / name / "pyproject.toml").write_text(text)
        print(folder / name)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
