"""What `hal doctor` finds: the compile cache, and every plugin, probed in a process of its own.

A plugin may print, hang, exit or take its process down; the answer travels in a file, so none of
that is confused with one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from hal_core import cache, discovery
from hal_core.discovery import EntryPoint
from hal_core.errors import HalError
from hal_core.hookspecs import Check
from hal_core.registry import Device, answers
from hal_core.registry.installed import Plugins, origin, state_of

if TYPE_CHECKING:
    from rich.console import Console

SOUND = ("ready", "no hardware", "disabled")  # every other state is a fault to mend

_LAST_WORDS = 4000  # bytes of a probe's output that are looked at

_PROBE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from hal_core.cli.doctor import probe
probe(*sys.argv[2:])
"""


class Finding(NamedTuple):
    """One plugin, one damaged file, or the compile cache."""

    name: str  # family, extension, file or "compile cache"
    kind: str  # "device", "extension", "file" or "cache"
    state: str  # a word of SOUND, "broken", "incompatible" or "in conflict"
    origin: str
    why: str = ""
    distribution: str = ""  # name and version, where one is meant
    devices: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def is_sound(self) -> bool:
        faulty = self.state == "ready" and not all(check.ok for check in self.checks)
        return self.state in SOUND and not faulty

    @property
    def verdict(self) -> str:
        """The state, and whether a check says otherwise."""
        return self.state if self.is_sound or self.state != "ready" else "ready, with faults"

    @property
    def summary(self) -> str:
        """What fits a line: the first fault, else the devices, else how it stands."""
        failed = next((check for check in self.checks if not check.ok), None)
        if not self.why and failed is not None:
            return f"{failed.title}: {failed.detail}"
        said = self.why or ", ".join(self.devices)
        return said or "; ".join(check.detail for check in self.checks)


def examine(time_limit: float) -> list[Finding]:
    """Every installed plugin and every damaged `entry_points.txt`; probes run side by side.

    Units: seconds, for each probe.
    """
    plugins = Plugins(None, lambda backend: None)
    pending = [_examine_family(plugins, family) for family in plugins.all_families()]
    pending += [_examine_extension(plugins, entry) for entry in plugins.extension_points()]
    found = [one.wait(time_limit) if isinstance(one, _Probe) else one for one in pending]
    for entry in plugins.misnamed():
        why = "A family is letters, digits and _, and neither GPU nor DEFAULT."
        found.append(Finding(entry.name, "device", "broken", origin(entry), why))
    for file, problem in discovery.scan(thorough=True).damaged.items():
        found.append(Finding(file, "file", "broken", file, f"The file {problem}."))
    return found


def examine_cache() -> Finding:
    """Whether compiled kernels can be kept, without writing anything."""
    place = cache.folder()
    if not place:
        why = "HAL_CCACHE=0, or there is no home folder: every process compiles its kernels anew."
        return Finding("compile cache", "cache", "disabled", "", why)
    there = place
    while not os.path.lexists(there) and os.path.dirname(there) != there:
        there = os.path.dirname(there)  # it is made at the first kernel
    writable = os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)
    found = cache.statistics()
    used, limit = readable(found.nbytes), readable(cache.LIMIT.read())
    detail = f"{found.entries} entries, {used} of at most {limit}"
    hint = "Set HAL_CACHE_DIR to a folder that is writable, or HAL_CCACHE=0 to go without."
    checks = (Check("writable", writable, detail, hint),)
    return Finding("compile cache", "cache", "ready", place, checks=checks)


# -- what a person reads


def readable(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.3g} TiB"


def show(findings: list[Finding], verbose: bool) -> None:
    """A table, a line each; below it what there is to mend, with `verbose` everything."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # A program that reads this wants one line a plugin.
    width = None if sys.stdout.isatty() else 10_000
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)
    if all(one.kind == "cache" for one in findings):
        console.print("No plugin is installed. Try: python -m pip install hal-cpu")
    table = Table(box=None)
    for title in ("name", "state", "from", "what was found"):
        table.add_column(title, overflow="fold")
    for one in findings:
        row = (one.name, one.verdict, one.distribution, one.summary)
        style = "red" if not one.is_sound else "green" if one.state == "ready" else "yellow"
        table.add_row(*(Text(cell) for cell in row), style=style)
    console.print(table)
    for one in findings:
        if verbose or not one.is_sound:
            _show_one(console, one, verbose)
    faults = sum(not one.is_sound for one in findings)
    if faults:
        console.print(f"\n{faults} to mend.")
    elif not verbose:
        console.print("\nNothing to mend. `hal doctor -v` shows every check.")


def _show_one(console: Console, one: Finding, verbose: bool) -> None:
    console.print(f"\n{one.name}: {one.verdict}", style="bold")
    if one.kind != "file" and one.origin:
        console.print(f"    {one.origin}")
    for device in one.devices:
        console.print(f"    {device}")
    if one.why:
        console.print(f"    {one.why}")
    for check in one.checks:
        if verbose or not check.ok:
            said = f"{check.title}: {'ok' if check.ok else 'FAILED'} {check.detail}".rstrip()
            hint = "" if check.ok or not check.hint else f" -> {check.hint}"
            console.print(f"    {said}{hint}")


def _examine_family(plugins: Plugins, family: str) -> Finding | _Probe:
    where = "; ".join(origin(entry) for entry in plugins.entry_points(family))
    try:
        chosen = plugins.choose(family)
    except HalError as error:
        state = plugins.state(family)
        return Finding(family, "device", state, where, str(error))
    finding = Finding(family, "device", "broken", where)
    if isinstance(chosen, EntryPoint):
        finding = finding._replace(origin=origin(chosen), distribution=_source(chosen))
    return _Probe(finding)


def _examine_extension(plugins: Plugins, entry: EntryPoint) -> Finding | _Probe:
    finding = Finding(entry.name, "extension", "broken", origin(entry), distribution=_source(entry))
    if plugins.is_disabled(entry):
        return finding._replace(state="disabled", why="HAL_DISABLE names it.")
    return _Probe(finding)


def _source(entry: EntryPoint) -> str:
    return f"{entry.distribution.name} {entry.distribution.version}"


class _Probe:
    """A child process that looks at one plugin."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        self.started = time.monotonic()
        self.folder = tempfile.TemporaryDirectory(prefix="hal-doctor-")
        self.answer = os.path.join(self.folder.name, "answer.json")
        # A file, not a pipe: a grandchild that lives on would hold a pipe open.
        self.output: IO[bytes] = open(os.path.join(self.folder.name, "output"), "w+b")  # noqa: SIM115  # closed in wait
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-X", "faulthandler", "-c", _PROBE, json.dumps(sys.path)),
                *(finding.kind, finding.name, finding.origin, self.answer),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self, time_limit: float) -> Finding:
        try:
            ending = self._ending(time_limit)
            answer = self._read()
            said = self._last_words()
        finally:
            self.output.close()
            self.folder.cleanup()
        if answer is None:
            return self.finding._replace(why=f"No answer: the probe {ending}.{said}")
        finding = self.finding._replace(**answer)
        if ending != "ended":
            return finding._replace(state="broken", why=f"The probe answered, then {ending}.{said}")
        return finding

    def _ending(self, time_limit: float) -> str:
        left = self.started + time_limit - time.monotonic()
        try:
            code = self.process.wait(max(left, 0.01))
        except subprocess.TimeoutExpired:
            self._kill()
            return f"did not end within {time_limit:g} s"
        self._kill()  # what it has started
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}" if code else "ended"

    def _kill(self) -> None:
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        self.process.wait()

    def _read(self) -> dict[str, Any] | None:
        try:
            with open(self.answer, encoding="utf-8") as file:
                answer: dict[str, Any] = json.load(file)
        except (OSError, ValueError):
            return None
        answer["devices"] = tuple(answer["devices"])
        answer["checks"] = tuple(Check(*check) for check in answer["checks"])
        return answer

    def _last_words(self) -> str:
        end = self.output.seek(0, os.SEEK_END)
        self.output.seek(max(0, end - _LAST_WORDS))
        lines = self.output.read().decode(errors="replace").split("\n")
        said = [line.strip()[:200] for line in lines if line.strip()]
        return f" It said: {' | '.join(said[-4:])}" if said else ""


# -- in the child


def probe(kind: str, name: str, where: str, answer: str) -> None:
    """Look at one plugin and write what was found to the file `answer`."""
    try:
        found = _probe_extension(name, where) if kind == "extension" else _probe_family(name)
    except HalError as error:
        found = _answer(state_of(error), str(error))
    with open(answer + ".part", "w", encoding="utf-8") as file:
        json.dump(found, file)
    os.replace(answer + ".part", answer)


def _probe_family(family: str) -> dict[str, object]:
    checks = list(Device.backend(family).doctor())
    try:
        infos = Device.devices(family)
    except HalError as error:
        return _answer(state_of(error), str(error), checks=checks)
    for info in infos:
        try:
            Device[info.name].close()
            checks.append(Check(f"{info.name} opens", True))
        except HalError as error:
            checks.append(Check(f"{info.name} opens", False, str(error)))
    refused = [check.detail for check in checks[-len(infos) :] if not check.ok]
    state = "broken" if len(refused) == len(infos) else "ready"
    devices = [f"{info.name}: {info.title}" for info in infos]
    return _answer(state, " ".join(refused), devices, checks)


def _probe_extension(name: str, where: str) -> dict[str, object]:
    plugins = Plugins(None, lambda backend: None)
    for entry in plugins.extension_points():
        if (entry.name, origin(entry)) == (name, where):
            extension = plugins.extension(entry)
            found = extension.manager.hook.hal_doctor(family=name)
            return _answer("ready", checks=answers.checks(found))
    return _answer("broken", "Its entry point was not found again.")


def _answer(
    state: str, why: str = "", devices: list[str] | None = None, checks: list[Check] | None = None
) -> dict[str, object]:
    return {"state": state, "why": why, "devices": devices or [], "checks": checks or []}
