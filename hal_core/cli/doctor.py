"""`hal doctor`: find what is wrong with plugins, settings and the compile cache.

Each plugin is probed in a process of its own, as it may print, hang, exit or crash. A probe writes
its answer to a file, so nothing that a plugin prints can be taken for the answer.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import DEVNULL, STDOUT, TimeoutExpired, call
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple, cast

from hal_core import config, discovery
from hal_core.cli import output
from hal_core.compiler import cache
from hal_core.device import Device
from hal_core.device.installed import Plugins, origin, state_of
from hal_core.device.names import KNOWN
from hal_core.device.plugin import as_checks
from hal_core.discovery import EntryPoint
from hal_core.errors import HalError
from hal_core.hookspecs import Check

if TYPE_CHECKING:
    from hal_core.device.base import Compiled

HELP = "Find what is wrong with plugins, settings and the compile cache."
SOUND = ("ready", "no hardware", "disabled")  # every other verdict is a fault

# With the path of this process: plugins are searched there, and `-c` alone changes it.
_PROBE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from hal_core.cli.doctor import probe
probe(*sys.argv[2:])
"""


class Finding(NamedTuple):
    """The state of one plugin, one damaged file, one wrong setting, or the compile cache."""

    name: str  # family, extension, file, setting, "default device" or "compile cache"
    kind: str  # "device", "extension", "file", "setting" or "cache"
    state: str  # one of SOUND, "broken", "incompatible" or "in conflict"; "" before the probe
    origin: str
    why: str = ""
    distribution: str = ""  # name and version, if it is a plugin's
    devices: Sequence[str] = ()
    checks: Sequence[Check] = ()

    @property
    def verdict(self) -> str:
        """The state, or "ready, with faults" when a check of a ready plugin has failed."""
        faulty = self.state == "ready" and not all(check.ok for check in self.checks)
        return "ready, with faults" if faulty else self.state

    @property
    def is_sound(self) -> bool:
        return self.verdict in SOUND

    @property
    def summary(self) -> str:
        """One line: the first fault, else the devices, else the details of the checks."""
        faults = [f"{check.title}: {check.detail}" for check in self.checks if not check.ok]
        details = "; ".join(check.detail for check in self.checks)
        return self.why or next(iter(faults), "") or ", ".join(self.devices) or details


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = "Examine only this backend, device or extension, such as OPENCL or CUDA:1."
    parser.add_argument("names", nargs="*", metavar="NAME", help=names)
    parser.add_argument("--json", action="store_true", help="Print JSON, for programs to read.")
    parser.add_argument("-v", "--verbose", action="store_true", help="Show every check.")
    limit = "Give each plugin this many seconds to answer; 30 when left out."
    parser.add_argument("--time-limit", type=_seconds, default=30, metavar="SECONDS", help=limit)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds, more than 0 (got {text!r})")
    return seconds


def run(options: argparse.Namespace) -> int:
    findings = examine(options.time_limit, options.names)
    # Of the core, where they keep every device from opening; a probe looks at those of its plugin.
    wrong = config.wrong(config.SETTINGS) | config.misspelt()
    findings += [Finding(name, "setting", "broken", "", why) for name, why in wrong.items()]
    if not options.names:
        findings.append(examine_cache())
    if options.json:
        rows = [
            {**one._asdict(), "checks": [check._asdict() for check in one.checks]}
            for one in findings
        ]
        output.write_json(rows, options)
    else:
        show(findings, options.verbose)
    return 0 if all(one.is_sound for one in findings) else 1


def examine(time_limit: float, names: Sequence[str] = ()) -> list[Finding]:
    """Examine every installed plugin and every damaged `entry_points.txt`; or these plugins alone.

    Units: seconds, for each probe; all of them run at once.
    Raises: UnknownDevice for a name that no plugin has.
    """
    plugins = Plugins(None, lambda backend: None)  # lists what is installed, and loads nothing
    found = before_probes(plugins)
    if names:
        wanted = sorted({name.upper().partition(":") for name in names})
        for family in sorted({name[0] for name in wanted} - {one.name.upper() for one in found}):
            plugins.choose(family)  # raises, with the names that are near
        every, found = found, []
        for family, at, index in wanted:
            same = [one for one in every if one.name.upper() == family]
            found += [one._replace(name=one.name + at + index) for one in same]
    with ThreadPoolExecutor(len(found) or 1) as threads:
        found = list(threads.map(lambda one: one if one.state else probed(one, time_limit), found))
    if names:
        return found
    for entry in plugins.misnamed():
        why = "A family is letters, digits and _, and neither GPU nor DEFAULT."
        found.append(Finding(entry.name, "device", "broken", origin(entry), why))
    for file, problem in discovery.scan(thorough=True).damaged.items():
        found.append(Finding(file, "file", "broken", file, f"The file {problem}."))
    return found


def before_probes(plugins: Plugins) -> list[Finding]:
    """Return what is known of every plugin, and of the default device, before its probe."""
    found = []
    for family in plugins.all_families():
        try:
            # Nothing but an entry point serves a family here, as nobody registers an object.
            found.append(pending(family, "device", cast(EntryPoint, plugins.choose(family))))
        except HalError as error:
            where = "; ".join(origin(entry) for entry in plugins.entry_points(family))
            found.append(Finding(family, "device", plugins.state(family), where, str(error)))
    for entry in plugins.extension_points():
        one = pending(entry.name, "extension", entry)
        if plugins.is_disabled(entry):
            one = one._replace(state="disabled", why="HAL_DISABLE names it.")
        found.append(one)
    families = sorted({*plugins.all_families(), *KNOWN})
    asked = [f"{family}=1" for family in families if os.environ.get(family) == "1"]
    if name := os.environ.get(config.DEVICE.name):
        asked.insert(0, f"{config.DEVICE.name}={name}")
    if asked:
        found.append(Finding("default device", "setting", "", ", ".join(asked)))
    return found


def pending(name: str, kind: str, entry: EntryPoint) -> Finding:
    """Return what is known of a plugin before its probe."""
    version = f"{entry.distribution.name} {entry.distribution.version}"
    return Finding(name, kind, "", origin(entry), distribution=version)


def probed(plugin: Finding, time_limit: float) -> Finding:
    """Examine a plugin in a child process; return its answer, or how it ended without one."""
    with TemporaryDirectory(prefix="hal-doctor-") as folder:
        answer, printed = Path(folder, "answer.json"), Path(folder, "printed")
        command = [sys.executable, "-X", "faulthandler", "-c", _PROBE, json.dumps(sys.path)]
        command += [plugin.kind, plugin.name, plugin.origin, str(answer)]
        # A wrong setting is a fault of its own, and would hide those of the plugin.
        wrong = config.wrong(config.SETTINGS)
        environment = {name: text for name, text in os.environ.items() if name not in wrong}
        # A file, not a pipe: a process that the plugin starts would hold a pipe open.
        with printed.open("wb") as file:
            try:
                code = call(
                    command, stdin=DEVNULL, stdout=file, stderr=STDOUT, timeout=time_limit,
                    env=environment,
                )  # fmt: skip
                ending = f"ended with exit code {code}" if code else "ended"
                if code < 0:
                    ending = f"was killed by {signal.Signals(-code).name}"
            except TimeoutExpired:
                ending = f"did not end within {time_limit:g} s"
        lines = printed.read_text(encoding="utf-8", errors="replace").split("\n")
        said = " | ".join([line.strip()[:200] for line in lines if line.strip()][-4:])
        said = f"{ending}. It said: {said}" if said else f"{ending}."
        try:
            fields = json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return plugin._replace(state="broken", why=f"No answer: the probe {said}")
    if ending != "ended":
        fields |= {"state": "broken", "why": f"The probe answered, then {said}"}
    fields["checks"] = [Check(*check) for check in fields["checks"]]
    return plugin._replace(**fields)


def examine_cache() -> Finding:
    """Examine the folder of compiled kernels, without writing to it."""
    if any(name in config.wrong(config.SETTINGS) for name in ("HAL_CCACHE", "HAL_CACHE_LIMIT")):
        return Finding("compile cache", "cache", "disabled", "", "Its settings are wrong.")
    folder = cache.folder()
    if not folder:
        why = "HAL_CCACHE=0, or there is no home folder: every process compiles its kernels anew."
        return Finding("compile cache", "cache", "disabled", "", why)
    present = folder
    while not os.path.lexists(present) and os.path.dirname(present) != present:
        present = os.path.dirname(present)  # the first kernel makes the folders below
    writable = os.path.isdir(present) and os.access(present, os.W_OK | os.X_OK)
    found = cache.statistics()
    used, limit = config.size(found.nbytes), config.size(config.CACHE_LIMIT.read())
    detail = f"{found.entries} entries, {used} of at most {limit}"
    hint = "Set HAL_CACHE_DIR to a folder that is writable, or HAL_CCACHE=0 to go without."
    checks = (Check("writable", writable, detail, hint),)
    return Finding("compile cache", "cache", "ready", folder, checks=checks)


def show(findings: list[Finding], verbose: bool) -> None:
    """Print a table, a line for each finding, and below it the faults or everything."""
    from rich.text import Text

    console = output.console(soft_wrap=True)
    if not any(one.kind in ("device", "extension", "file") for one in findings):
        console.print("No plugin is installed. Try: python -m pip install hal-cpu")
    table = output.table(("name", "state", "from", "what was found"))
    for one in findings:
        row = (one.name, one.verdict, one.distribution, one.summary)
        style = "red" if not one.is_sound else "green" if one.state == "ready" else "yellow"
        table.add_row(*(Text(cell) for cell in row), style=style)
    console.print(table)
    for one in findings:
        if not verbose and one.is_sound:
            continue
        console.print(f"\n{one.name}: {one.verdict}", style="bold")
        where = one.origin if one.kind != "file" else ""  # a file's name is its origin
        for line in filter(None, (where, *one.devices, one.why)):
            console.print(f"    {line}")
        for check in one.checks:
            if verbose or not check.ok:
                said = f"{check.title}: {'ok' if check.ok else 'FAILED'} {check.detail}".rstrip()
                hint = "" if check.ok or not check.hint else f" -> {check.hint}"
                console.print(f"    {said}{hint}")
    faults = sum(not one.is_sound for one in findings)
    if faults:
        console.print(f"\n{faults} to mend.")
    elif not verbose and any(one.kind == "device" for one in findings):
        console.print("\nNothing to mend. `hal doctor -v` shows every check.")


# -- in the child


def probe(kind: str, name: str, where: str, answer: str) -> None:
    """Examine one plugin and write what was found to the file `answer`."""
    try:
        probes = {"extension": probe_extension, "device": probe_family, "setting": probe_default}
        found = probes[kind](name, where)
    except HalError as error:
        # A default device that is asked for has to be there.
        state = "broken" if kind == "setting" else state_of(error)
        found = {"state": state, "why": str(error)}
    text = json.dumps({"devices": [], "checks": [], **found})
    Path(answer).write_text(text, encoding="utf-8")


def probe_family(name: str, where: str) -> dict[str, object]:
    """Run a backend's own checks, open the device or each of the family, look at its settings."""
    core, before = set(config.SETTINGS), config.misspelt()
    checks = list(Device.backend(name.partition(":")[0]).doctor())
    try:
        infos = (Device.info(name),) if ":" in name else Device.devices(name)
    except HalError as error:
        return {"state": state_of(error), "why": str(error), "checks": checks}
    settings = config.wrong(config.SETTINGS.keys() - core)
    for name in settings:
        del os.environ[name]  # or no device would open
    settings |= {name: why for name, why in config.misspelt().items() if name not in before}
    refused = []
    # One that is busy or refused must not hide the others.
    for info in infos:
        try:
            with Device[info.name] as device:
                checks.append(Check(f"{info.name} opens", True))
                settings |= wrong_compiler(device)
        except HalError as error:
            refused.append(str(error))
            checks.append(Check(f"{info.name} opens", False, str(error)))
    checks += [Check(name, False, why) for name, why in settings.items()]
    state = "broken" if len(refused) == len(infos) else "ready"
    devices = [f"{info.name}: {info.title}" for info in infos]
    return {"state": state, "why": " ".join(refused), "devices": devices, "checks": checks}


def wrong_compiler(device: Compiled) -> dict[str, str]:
    """Return what is wrong with the compiler that the environment asks for, if it asks for one."""
    if not any(name.startswith(f"{device.family}_") for name in os.environ):
        return {}
    from hal_core.compiler.selection import forced, select

    try:
        languages = {pair.name: pair.language for pair in device.compilers}
        name = forced(device.family, list(languages))
        if name is not None:
            renders = any(pair.renderer is not None for pair in device.compilers)
            select(device, None if renders else languages[name])
    except HalError as error:
        return {f"compiler of {device.name}": str(error)}
    return {}


def probe_default(name: str, where: str) -> dict[str, object]:
    """Look for the default device that the environment asks for."""
    info = Device.info(Device.DEFAULT)
    return {"state": "ready", "devices": [f"{info.name}: {info.title}"]}


def probe_extension(name: str, where: str) -> dict[str, object]:
    """Load an extension and run its checks."""
    plugins = Plugins(None, lambda backend: None)
    entries = plugins.extension_points()
    (entry,) = [entry for entry in entries if (entry.name, origin(entry)) == (name, where)]
    found = plugins.extension(entry).manager.hook.hal_doctor(family=name)
    return {"state": "ready", "checks": as_checks(found)}
