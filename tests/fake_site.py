"""A site-packages folder made for one test: fake distributions, whole or damaged."""

import atexit
import functools
import itertools
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

from forked import Programs

import hal_core

_numbers = itertools.count()

# A backend with nothing behind it: two devices that can be opened and closed.
PLUGIN = """
from hal_core.hookspecs import hookimpl

class Plugin:
    hal_api = (1, 0)
    kinds = ("accelerator", "accelerator")
    capabilities = frozenset()

    def __init__(self):
        self.opened = []

    @hookimpl
    def hal_enumerate(self, family):
        from hal_core.hookspecs import DeviceInfo
        from hal_core.geometry import Limits
        return [
            DeviceInfo(
                name=f"{family}:{index}" if index else family, kind=kind, title=f"Fake {kind}",
                memory_nbytes=1 << 20, arch="fake", compute_units=1, host_visible=False,
                limits=Limits((1, 1, 1), 1, (1, 1, 1), 0, 1, 1 << 20),
                capabilities=self.capabilities,
            )
            for index, kind in enumerate(self.kinds)
        ]

    @hookimpl
    def hal_open_device(self, family, index, info):
        from hal_core.device.base import Compiled
        self.opened.append(info.name)
        return Compiled(info.name, info)

plugin = Plugin()
"""


@functools.cache
def _path_without_distributions():
    """`sys.path` with every installed package, and no metadata that says so."""
    kept = []
    for place in map(Path, sys.path):
        names = os.listdir(place) if place.is_dir() else []
        if not any(name.endswith((".dist-info", ".egg-info")) for name in names):
            kept.append(str(place))
            continue
        packages = Path(_packages.name, str(len(kept)))
        packages.mkdir()
        kept.append(str(packages))
        for name in names:
            if not name.endswith((".dist-info", ".egg-info", ".pth")):
                (packages / name).symlink_to(place / name)
    checkout = Path(hal_core.__file__).parents[1]
    return [str(checkout), *kept] if (checkout / "pyproject.toml").exists() else kept


_packages = TemporaryDirectory(prefix="hal-packages-")


def unique(stem):
    """A module name no other test uses, so that `sys.modules` keeps tests apart."""
    return f"{stem}_{next(_numbers)}"


class FakeSite:
    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __str__(self):
        return str(self.folder)

    def module(self, name, source):
        (self.folder / f"{name}.py").write_text(textwrap.dedent(source))
        return name

    def distribution(
        self, name, entry_points=None, version="1.0", metadata=True, suffix="dist-info"
    ):
        folder = self.folder / f"{name}-{version}.{suffix}"
        folder.mkdir()
        if metadata:
            file = "METADATA" if suffix == "dist-info" else "PKG-INFO"
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            (folder / file).write_text(text)
        if entry_points is not None:
            data = entry_points.encode() if isinstance(entry_points, str) else entry_points
            (folder / "entry_points.txt").write_bytes(data)
        return folder

    def backend(self, family, source=PLUGIN, distribution="", group="hal.devices"):
        """A distribution whose plugin is `source`; gives the name of its module.

        `source` may start with `# more` to be appended to the plugin above.
        """
        if source.startswith("# more"):
            source = PLUGIN + textwrap.dedent(source)
        name = self.module(unique("fake_plugin"), source)
        self.distribution(
            distribution or f"hal_{family.lower()}", f"[{group}]\n{family} = {name}:plugin\n"
        )
        return name

    def run(self, code, *flags, env=None, fresh=False):
        """`code` in a process that has this folder, and no other distribution, to find.

        It has imported the core already, unless it is to be `fresh` or has flags.
        """
        start = f"import sys; sys.path[:] = {[str(self), *_path_without_distributions()]!r}\n"
        code, env = textwrap.dedent(code), _no_settings() | (env or {})
        if not (fresh or flags or sys.platform == "win32"):
            return _programs().run(f"{start}hal_core.discovery.rescan()\n{code}", env)
        command = [sys.executable, "-W", "error", *flags, "-c", start + code]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)


def _no_settings():
    return {key: text for key, text in os.environ.items() if not key.startswith("HAL_")}


@functools.cache
def _programs():
    head = "import hal_core.cli.devices, hal_core.cli.doctor, hal_core.device.base\n"
    made = Programs(head, "-W", "error", env=_no_settings())
    atexit.register(made.__exit__)
    return made
