"""Find what is installed: read every `entry_points.txt`, import nothing.

This runs at `import hal_core`. A metadata library costs 25 to 35 ms for 100 distributions, and
raises for all of them when one file is damaged; this module reads plain folders in 1 ms and each
distribution alone. `complete` leaves zip files and foreign finders to importlib-metadata, at the
first use.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__version__ = "0.1.0"
API_VERSION = (1, 0)  # of the plugin interface; changes independently of package versions

DEVICES = "hal.devices"
EXTENSIONS = "hal.extensions"
LANGUAGES = "hal.languages"  # name -> renderer
COMMANDS = "hal.commands"  # name -> module of a command of `hal`

_GROUPS = (DEVICES, EXTENSIONS, LANGUAGES, COMMANDS)
_LARGEST = 1 << 20  # bytes of an entry_points.txt; real ones have a few hundred


class Distribution:
    """An installed distribution: its normalised name and the folder of its metadata."""

    __slots__ = ("_version", "folder", "name")

    def __init__(self, name: str, folder: str, version: str = "") -> None:
        self.name, self.folder, self._version = name, folder, version

    @property
    def version(self) -> str:
        """Version in the folder's name, else in the metadata itself (egg-info); "?" if neither."""
        if not self._version:
            version = _stem(self.folder).partition("-")[2].partition("-py")[0]  # name-1.0-py3.12
            if not version and self.is_whole:
                from importlib_metadata import Distribution as Metadata

                try:
                    version = Metadata.at(self.folder).version
                except _unless_of_a_signal(Exception):  # an error that names it is made
                    version = ""
            self._version = version or "?"
        return self._version

    @property
    def is_whole(self) -> bool:
        """True where there is metadata: an interrupted uninstall leaves an empty folder."""
        return any(
            os.path.exists(os.path.join(self.folder, name)) for name in ("METADATA", "PKG-INFO")
        )

    def __repr__(self) -> str:
        return f"{self.name} {self.version} ({self.folder})"


class EntryPoint:
    """One line of one distribution's `entry_points.txt`."""

    __slots__ = ("distribution", "group", "key", "name", "value")

    def __init__(self, group: str, name: str, value: str, distribution: Distribution) -> None:
        self.group, self.name, self.value, self.distribution = group, name, value, distribution
        self.key = (group, name, value, distribution.folder)  # the same after another scan

    def __repr__(self) -> str:
        return f"{self.name} = {self.value} of {self.distribution!r}"


class Scan:
    """Everything that one reading of the import path found."""

    __slots__ = ("damaged", "entries", "folders", "left")

    def __init__(self) -> None:
        self.entries: list[EntryPoint] = []  # of the groups above
        self.damaged: dict[str, str] = {}  # file -> what is wrong with it
        self.folders: dict[str, list[Distribution]] = {}  # normalised name -> in path order
        self.left: list[str] = []  # path entries that are no plain folder, left to `complete`


def scan(path: Iterable[object] | None = None, thorough: bool = False) -> Scan:
    """Read every distribution on `path` (`sys.path`).

    Of a distribution found twice the first counts, as for an import; an empty metadata folder
    never hides a whole one. `thorough` also reads files that do not mention our groups, to report
    damage that breaks other tools. Never raises.
    """
    found = Scan()
    places = [place for place in (sys.path if path is None else path) if isinstance(place, str)]
    for place in dict.fromkeys(places):
        try:
            names = os.listdir(place or ".")
        except (FileNotFoundError, NotADirectoryError) as error:
            found.left += [place] if isinstance(error, NotADirectoryError) else []
            continue
        except _unless_of_a_signal(OSError, ValueError):
            continue
        suffixes = (".dist-info", ".egg-info")
        # The order of listdir is random.
        for name in sorted(name for name in names if name.lower().endswith(suffixes)):
            folder = os.path.join(os.path.abspath(place), name)
            distribution = Distribution(normalize(_stem(folder).partition("-")[0]), folder)
            found.folders.setdefault(distribution.name, []).append(distribution)
    for same_name in found.folders.values():
        read = [(dist, _read(dist, found, thorough)) for dist in same_name]
        if any(entries for _, entries in read):
            # `is_whole` asks the disk: only where there is a choice.
            whole = (entries for dist, entries in read if len(read) == 1 or dist.is_whole)
            found.entries += next(whole, read[0][1])
    return found


def complete(found: Scan) -> None:
    """Add the distributions in zip files and of foreign finders.

    Imports importlib-metadata, and only when there is something for it to read.
    """
    # PathFinder reads plain folders and zip files; importlib-metadata adds a finder of its own.
    known = ("_frozen_importlib_external", "importlib_metadata")
    foreign = [finder for finder in sys.meta_path if finder.__module__ not in known]
    if not found.left and not any(hasattr(finder, "find_distributions") for finder in foreign):
        return
    from importlib_metadata import DistributionFinder

    entries, folders, damaged = list(found.entries), dict(found.folders), dict(found.damaged)
    context = DistributionFinder.Context(path=found.left)  # type: ignore[no-untyped-call]
    given: list[Any] = []
    # One by one: `importlib_metadata.distributions` ends at the first finder that raises.
    for finder in list(sys.meta_path):
        try:
            given += getattr(finder, "find_distributions", lambda context: ())(context)
        except _unless_of_a_signal(Exception) as error:
            damaged[repr(finder)] = f"cannot be asked: {type(error).__name__}: {error}"
    for metadata in given:
        where = str(getattr(metadata, "_path", metadata))
        try:
            text = metadata.read_text("entry_points.txt")
            name = normalize(metadata.metadata["Name"]) if text else ""
            if text and name not in folders:
                folders[name] = [Distribution(name, where, metadata.version)]
                entries += _entries(text.encode(), folders[name][0], where, damaged)
        except _unless_of_a_signal(Exception) as error:  # it must not hide the others
            damaged[where] = f"cannot be read: {type(error).__name__}: {error}"
    # Replaced, not changed in place: two threads may complete one scan at a time.
    found.entries, found.folders, found.damaged = entries, folders, damaged


def installed() -> Scan:
    """Return the scan made at `import hal_core`, or the last one of `rescan`."""
    return _latest if _latest is not None else rescan()


def rescan() -> Scan:
    """Scan again, for distributions installed while the process runs."""
    global _latest
    _latest = scan()
    return _latest


_latest: Scan | None = None


def named(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; of two with one name the first found."""
    found = reversed([entry for entry in installed().entries if entry.group == group])
    return {entry.name: entry for entry in found}


def distribution_version(name: str) -> str | None:
    """Return the version of an installed distribution; None when no plain folder holds it.

    Costs a dictionary lookup and two `stat`: backends use it in compile-cache keys.
    """
    candidates = installed().folders.get(normalize(name), [])
    return next((found.version for found in candidates if found.is_whole), None)


def normalize(name: str) -> str:
    """Return the one spelling of a distribution's name: `Hal.CPU`, `hal_cpu` -> `hal-cpu`."""
    name = name.lower().replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name


def _stem(folder: str) -> str:
    """Return the name and version in a metadata folder's name: `hal_cpu-0.1.0`."""
    return os.path.basename(folder).rpartition(".")[0]


def parse(data: bytes) -> tuple[list[tuple[str, str, str]], str]:
    """Return the (group, name, value) lines of an `entry_points.txt`, and the first thing wrong
    with it or "". A damaged line costs no other line."""
    problem = ""
    if data.startswith(b"\xef\xbb\xbf"):
        data, problem = data[3:], "starts with a byte-order mark"
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        text, problem = data.decode(errors="replace"), f"is not UTF-8 at byte {error.start}"
    entries = []
    group = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            group = line.strip("[]")
            continue
        name, equals, value = line.partition("=")
        if "\0" in line or not equals:
            problem = problem or f"line {number} is not `name = value`: {line[:60]!r}"
        elif group:
            entries.append((group, name.strip(), value.strip()))
    return entries, problem


def _unless_of_a_signal(*kinds: type[Exception]) -> tuple[type[Exception], ...]:
    from hal_core.concurrency import unless_of_a_signal  # which `import hal_core` does not load

    return unless_of_a_signal(*kinds)


def _read(distribution: Distribution, found: Scan, thorough: bool) -> list[EntryPoint]:
    file = os.path.join(distribution.folder, "entry_points.txt")
    try:
        handle = os.open(file, os.O_RDONLY)  # a third of the price of open()
        try:
            nbytes = os.fstat(handle).st_size
            if nbytes > _LARGEST:
                raise ValueError(f"{nbytes} bytes, more than {_LARGEST}")
            data = os.read(handle, _LARGEST)
        finally:
            os.close(handle)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except _unless_of_a_signal(OSError, ValueError) as error:
        found.damaged[file] = f"cannot be read: {error}"
        return []
    if not thorough and not any(group.encode() in data for group in _GROUPS):
        return []
    return _entries(data, distribution, file, found.damaged)


def _entries(
    data: bytes, distribution: Distribution, file: str, damaged: dict[str, str]
) -> list[EntryPoint]:
    lines, problem = parse(data)
    if problem:
        damaged[file] = problem
    wanted = dict.fromkeys(line for line in lines if line[0] in _GROUPS)
    return [EntryPoint(*line, distribution) for line in wanted]
