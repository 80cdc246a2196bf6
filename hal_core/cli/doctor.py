"""`hal doctor`: find what is wrong with the installed plugins and the compile cache.

Each plugin is probed in a process of its own, as it may print, hang, exit or crash. A probe writes
its answer to a file, so nothing that a plugin prints can be taken for the answer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from hal_core import cache, discovery
from hal_core.cli import output
from hal_core.discovery import EntryPoint
from hal_core.errors import HalError
from hal_core.hookspecs import Check
from hal_core.registry import Device
from hal_core.registry.installed import Plugins, origin, state_of
from hal_core.registry.plugin import as_checks

if TYPE_CHECKING:
    from rich.console import Console

HELP = "find what is wrong with the installed plugins"
SOUND = ("ready", "no hardware", "disabled")  # every other state is a fault

_OUTPUT_NBYTES = 4000  # the end of a probe's output, whose last lines are shown

# With the path of this process: plugins are searched there, and `-c` alone changes it.
_PROBE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from hal_core.cli.doctor import probe
probe(*sys.argv[2:])
"""


class Finding(NamedTuple):
    """The state of one plugin, one damaged file, or the compile cache."""

    name: str  # family, extension, file or "compile cache"
    kind: str  # "device", "extension", "file" or "cache"
    state: str  # one of SOUND, "broken", "incompatible" or "in conflict"
    origin: str
    why: str = ""
    distribution: str = ""  # name and version, if it is a plugin's
    devices: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def is_sound(self) -> bool:
        """True for a state of SOUND, unless a check of a ready plugin has failed."""
        faulty = self.state == "ready" and not all(check.ok for check in self.checks)
        return self.state in SOUND and not faulty

    @property
    def verdict(self) -> str:
        """The state, or "ready, with faults"."""
        return self.state if self.is_sound or self.state != "ready" else "ready, with faults"

    @property
    def summary(self) -> str:
        """One line: the first fault, else the devices, else the details of the checks."""
        failed = next((check for check in self.checks if not check.ok), None)
        if not self.why and failed is not None:
            return f"{failed.title}: {failed.detail}"
        said = self.why or ", ".join(self.devices)
        return said or "; ".join(check.detail for check in self.checks)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    def seconds(text: str) -> float:
        with contextlib.suppress(ValueError):
            if 0 < float(text) < float("inf"):
                return float(text)
        raise argparse.ArgumentTypeError(f"expected seconds, more than 0 (got {text!r})")

    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every check")
    limit = "seconds that the probe of a plugin may take; 30 when left out"
    parser.add_argument("--time-limit", type=seconds, default=30, metavar="SECONDS", help=limit)


def run(options: argparse.Namespace) -> int:
    findings = [*examine(options.time_limit), examine_cache()]
    if options.json:
        rows = [
            {**one._asdict(), "checks": [check._asdict() for check in one.checks]}
            for one in findings
        ]
        print(json.dumps(rows, indent=2))
    else:
        show(findings, options.verbose)
    return 0 if all(one.is_sound for one in findings) else 1


def examine(time_limit: float) -> list[Finding]:
    """Examine every installed plugin and every damaged `entry_points.txt`.

    Units: seconds, for each probe; all of them run at once.
    """
    plugins = Plugins(None, lambda backend: None)  # lists what is installed, and loads nothing
    pending: list[Finding | _Probe] = []
    for family in plugins.all_families():
        try:
            # Nothing but an entry point serves a family here, as nobody registers an object.
            entry = cast(EntryPoint, plugins.choose(family))
        except HalError as error:
            where = "; ".join(origin(entry) for entry in plugins.entry_points(family))
            state = plugins.state(family)
            pending.append(Finding(family, "device", state, where, str(error)))
        else:
            pending.append(_Probe(family, "device", entry))
    for entry in plugins.extension_points():
        if plugins.is_disabled(entry):
            why = "HAL_DISABLE names it."
            pending.append(Finding(entry.name, "extension", "disabled", origin(entry), why))
        else:
            pending.append(_Probe(entry.name, "extension", entry))
    found = [one.wait(time_limit) if isinstance(one, _Probe) else one for one in pending]
    for entry in plugins.misnamed():
        why = "A family is letters, digits and _, and neither GPU nor DEFAULT."
        found.append(Finding(entry.name, "device", "broken", origin(entry), why))
    for file, problem in discovery.scan(thorough=True).damaged.items():
        found.append(Finding(file, "file", "broken", file, f"The file {problem}."))
    return found


def examine_cache() -> Finding:
    """Examine the folder of compiled kernels, without writing to it."""
    folder = cache.folder()
    if not folder:
        why = "HAL_CCACHE=0, or there is no home folder: every process compiles its kernels anew."
        return Finding("compile cache", "cache", "disabled", "", why)
    present = folder
    while not os.path.lexists(present) and os.path.dirname(present) != present:
        present = os.path.dirname(present)  # the first kernel makes the folders below
    writable = os.path.isdir(present) and os.access(present, os.W_OK | os.X_OK)
    found = cache.statistics()
    used, limit = output.size(found.nbytes), output.size(cache.LIMIT.read())
    detail = f"{found.entries} entries, {used} of at most {limit}"
    hint = "Set HAL_CACHE_DIR to a folder that is writable, or HAL_CCACHE=0 to go without."
    checks = (Check("writable", writable, detail, hint),)
    return Finding("compile cache", "cache", "ready", folder, checks=checks)


def show(findings: list[Finding], verbose: bool) -> None:
    """Print a table, a line for each finding, and below it the faults or everything."""
    from rich.text import Text

    console = output.console(soft_wrap=True)
    if all(one.kind == "cache" for one in findings):
        console.print("No plugin is installed. Try: python -m pip install hal-cpu")
    table = output.table(("name", "state", "from", "what was found"))
    for one in findings:
        row = (one.name, one.verdict, one.distribution, one.summary)
        style = "red" if not one.is_sound else "green" if one.state == "ready" else "yellow"
        table.add_row(*(Text(cell) for cell in row), style=style)
    console.print(table)
    for one in findings:
        if verbose or not one.is_sound:
            show_details(console, one, verbose)
    faults = sum(not one.is_sound for one in findings)
    if faults:
        console.print(f"\n{faults} to mend.")
    elif not verbose:
        console.print("\nNothing to mend. `hal doctor -v` shows every check.")


def show_details(console: Console, one: Finding, verbose: bool) -> None:
    """Print one finding in full; of its checks those that failed, or all."""
    console.print(f"\n{one.name}: {one.verdict}", style="bold")
    where = one.origin if one.kind != "file" else ""  # a file's name is its origin
    for line in filter(None, (where, *one.devices, one.why)):
        console.print(f"    {line}")
    for check in one.checks:
        if verbose or not check.ok:
            said = f"{check.title}: {'ok' if check.ok else 'FAILED'} {check.detail}".rstrip()
            hint = "" if check.ok or not check.hint else f" -> {check.hint}"
            console.print(f"    {said}{hint}")


class _Probe:
    """A child process that examines one plugin."""

    def __init__(self, name: str, kind: str, entry: EntryPoint) -> None:
        version = f"{entry.distribution.name} {entry.distribution.version}"
        self.finding = Finding(name, kind, "broken", origin(entry), distribution=version)
        self.started = time.monotonic()
        self.folder = tempfile.TemporaryDirectory(prefix="hal-doctor-")
        self.answer = os.path.join(self.folder.name, "answer.json")
        # A file, not a pipe: a grandchild that lives on would hold a pipe open.
        self.output: IO[bytes] = open(os.path.join(self.folder.name, "output"), "w+b")  # noqa: SIM115  # closed in wait
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-X", "faulthandler", "-c", _PROBE, json.dumps(sys.path)),
                *(kind, name, self.finding.origin, self.answer),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that one signal reaches what the plugin starts, too
        )

    def wait(self, time_limit: float) -> Finding:
        """Return the finding that the probe answered, or how the probe ended without an answer."""
        try:
            ending = self._ending(time_limit)
            end = self.output.seek(0, os.SEEK_END)
            self.output.seek(max(0, end - _OUTPUT_NBYTES))
            lines = self.output.read().decode(errors="replace").split("\n")
            said = " | ".join([line.strip()[:200] for line in lines if line.strip()][-4:])
            said = f" It said: {said}" if said else ""
            with open(self.answer, encoding="utf-8") as file:
                answer: dict[str, Any] = json.load(file)
        except (OSError, ValueError):
            return self.finding._replace(why=f"No answer: the probe {ending}.{said}")
        finally:
            self.output.close()
            self.folder.cleanup()
        answer["devices"] = tuple(answer["devices"])
        answer["checks"] = tuple(Check(*check) for check in answer["checks"])
        finding = self.finding._replace(**answer)
        if ending != "ended":
            return finding._replace(state="broken", why=f"The probe answered, then {ending}.{said}")
        return finding

    def _ending(self, time_limit: float) -> str:
        """Wait for the process, kill it when its time is over, and say how it ended."""
        left = self.started + time_limit - time.monotonic()
        try:
            code = self.process.wait(max(left, 0.01))
        except subprocess.TimeoutExpired:
            return f"did not end within {time_limit:g} s"
        finally:
            with contextlib.suppress(OSError):  # also ends processes that the plugin has started
                if hasattr(os, "killpg"):
                    os.killpg(self.process.pid, signal.SIGKILL)
                else:
                    self.process.kill()
            self.process.wait()
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}" if code else "ended"


# -- in the child


def probe(kind: str, name: str, where: str, answer: str) -> None:
    """Examine one plugin and write what was found to the file `answer`."""
    try:
        found = probe_extension(name, where) if kind == "extension" else probe_family(name)
    except HalError as error:
        found = {"state": state_of(error), "why": str(error)}
    with open(answer + ".part", "w", encoding="utf-8") as file:
        json.dump({"devices": [], "checks": [], **found}, file)
    os.replace(answer + ".part", answer)  # a probe that dies here has written no answer


def probe_family(family: str) -> dict[str, object]:
    """Run a backend's own checks and open each of its devices."""
    checks = list(Device.backend(family).doctor())
    try:
        infos = Device.devices(family)
    except HalError as error:
        return {"state": state_of(error), "why": str(error), "checks": checks}
    refused = []
    # One that is busy or refused must not hide the others.
    for info in infos:
        try:
            Device[info.name].close()
            checks.append(Check(f"{info.name} opens", True))
        except HalError as error:
            refused.append(str(error))
            checks.append(Check(f"{info.name} opens", False, str(error)))
    state = "broken" if len(refused) == len(infos) else "ready"
    devices = [f"{info.name}: {info.title}" for info in infos]
    return {"state": state, "why": " ".join(refused), "devices": devices, "checks": checks}


def probe_extension(name: str, where: str) -> dict[str, object]:
    """Load an extension and run its checks."""
    plugins = Plugins(None, lambda backend: None)
    for entry in plugins.extension_points():
        if (entry.name, origin(entry)) == (name, where):
            found = plugins.extension(entry).manager.hook.hal_doctor(family=name)
            return {"state": "ready", "checks": as_checks(found)}
    return {"state": "broken", "why": "Its entry point was not found again."}
