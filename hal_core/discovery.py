"""Finding installed backends: a reader of `entry_points.txt` that imports nothing.

It runs at `import hal_core`. A metadata library costs 25 to 35 ms for 100 distributions, and
raises for all of them when one file is damaged; this reads plain folders in 1 ms and takes each
distribution alone. Zip files and foreign finders are left to importlib-metadata (`complete`),
at the first use.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__version__ = "0.1.0"
API_VERSION = (1, 0)  # of the plugin interface; apart from package versions

DEVICES = "hal.devices"
EXTENSIONS = "hal.extensions"

_GROUPS = (DEVICES, EXTENSIONS)
_LARGEST = 1 << 20  # bytes of an entry_points.txt; real ones have a few hundred
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


class Distribution:
    """An installed distribution: its normalised name and the folder of its metadata."""

    __slots__ = ("_version", "folder", "name")

    def __init__(self, name: str, folder: str, version: str = "") -> None:
        self.name, self.folder, self._version = name, folder, version

    @property
    def version(self) -> str:
        """From the folder's name, else from the metadata itself (egg-info); "?" if neither."""
        if not self._version:
            self._version = _version_in_name(self.folder) or _version_in_file(self.folder) or "?"
        return self._version

    @property
    def is_whole(self) -> bool:
        """False for the empty folder that an interrupted uninstall leaves behind."""
        return any(
            os.path.exists(os.path.join(self.folder, name)) for name in ("METADATA", "PKG-INFO")
        )

    def __repr__(self) -> str:
        return f"{self.name} {self.version} ({self.folder})"


class EntryPoint:
    """One line of one distribution's `entry_points.txt`."""

    __slots__ = ("distribution", "group", "name", "value")

    def __init__(self, group: str, name: str, value: str, distribution: Distribution) -> None:
        self.group, self.name, self.value, self.distribution = group, name, value, distribution

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.group, self.name, self.value, self.distribution.folder

    def __repr__(self) -> str:
        return f"{self.name} = {self.value} of {self.distribution!r}"


class Scan:
    """What one look at the import path found."""

    __slots__ = ("damaged", "entries", "folders", "left")

    def __init__(self) -> None:
        self.entries: list[EntryPoint] = []  # of our groups
        self.damaged: dict[str, str] = {}  # file -> what is wrong with it
        self.folders: dict[str, list[Distribution]] = {}  # normalised name -> in path order
        self.left: list[str] = []  # path entries that are no plain folder


def scan(path: Iterable[object] | None = None, thorough: bool = False) -> Scan:
    """Read every distribution on `path` (`sys.path`).

    Of a distribution seen twice the first counts, as for an import; an empty metadata folder
    never hides a whole one. `thorough` also reads the files that do not mention our groups, to
    report damage that breaks other tools. Never raises.
    """
    found = Scan()
    places = [place for place in (sys.path if path is None else path) if isinstance(place, str)]
    for place in dict.fromkeys(places):
        for folder in _metadata_folders(place, found):
            distribution = Distribution(normalize(_stem(folder).partition("-")[0]), folder)
            found.folders.setdefault(distribution.name, []).append(distribution)
    for same_name in found.folders.values():
        _read_first_whole(same_name, found, thorough)
    return found


def complete(found: Scan) -> None:
    """Add what plain folders do not hold: zip files and the distributions of foreign finders.

    Imports importlib-metadata, and only when there is something for it to read.
    """
    if not found.left and not any(_is_foreign(finder) for finder in sys.meta_path):
        return
    from importlib_metadata import DistributionFinder

    entries, folders, damaged = list(found.entries), dict(found.folders), dict(found.damaged)
    for finder in list(sys.meta_path):
        search = getattr(finder, "find_distributions", None)
        if search is None:
            continue
        try:
            context = DistributionFinder.Context(path=found.left)  # type: ignore[no-untyped-call]
            for dist in search(context):
                _add_foreign(dist, entries, folders, damaged)
        except Exception as error:  # foreign code; it must not hide the others
            damaged[repr(finder)] = f"{type(error).__name__}: {error}"
    # Replaced, not changed in place: two threads may complete one scan at a time.
    found.entries, found.folders, found.damaged = entries, folders, damaged


def installed() -> Scan:
    """The scan made at import, kept until `rescan`."""
    return _latest if _latest is not None else rescan()


def rescan() -> Scan:
    global _latest
    _latest = scan()
    return _latest


_latest: Scan | None = None


def distribution_version(name: str) -> str | None:
    """Version of an installed distribution; None when no plain folder holds it.

    Costs a dictionary lookup and two `stat`: backends use it in compile-cache keys.
    """
    candidates = installed().folders.get(normalize(name), [])
    for distribution in candidates:
        if distribution.is_whole:
            return distribution.version
    return None


def normalize(name: str) -> str:
    """One spelling of a distribution's name: `Hal.CPU`, `hal_cpu` -> `hal-cpu`."""
    name = name.lower().replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name


def parse(data: bytes) -> tuple[list[tuple[str, str, str]], str]:
    """The (group, name, value) lines of an `entry_points.txt`, and what is wrong with it, if
    anything: a damaged line costs no other line."""
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


# -- one folder of sys.path


def _metadata_folders(place: str, found: Scan) -> Iterator[str]:
    try:
        with os.scandir(place or ".") as children:
            names = [child.name for child in children if _is_metadata(child.name)]
    except NotADirectoryError:
        found.left.append(place)
        return
    except (OSError, ValueError):
        return
    for name in sorted(names):  # scandir's order is random
        yield os.path.join(os.path.abspath(place), name)
    if place[-4:].lower() == ".egg" and os.path.isdir(os.path.join(place, "EGG-INFO")):
        found.left.append(place)


def _is_metadata(name: str) -> bool:
    return name.lower().endswith((".dist-info", ".egg-info"))


def _read_first_whole(same_name: list[Distribution], found: Scan, thorough: bool) -> None:
    read = [(dist, _read(dist, found, thorough)) for dist in same_name]
    if not any(entries for _, entries in read):
        return
    chosen = read[0]
    if len(read) > 1:
        chosen = next((one for one in read if one[0].is_whole), chosen)
    found.entries += chosen[1]


def _read(distribution: Distribution, found: Scan, thorough: bool) -> list[EntryPoint]:
    file = os.path.join(distribution.folder, "entry_points.txt")
    try:
        data = _content(file)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError) as error:
        found.damaged[file] = f"cannot be read: {error}"
        return []
    if not thorough and not any(group.encode() in data for group in _GROUPS):
        return []
    return _entries(data, distribution, file, found.damaged)


def _content(file: str) -> bytes:
    # os.open is a third of the price of open(), and a FIFO of this name must not block.
    handle = os.open(file, _OPEN_FLAGS)
    try:
        nbytes = os.fstat(handle).st_size
        if nbytes > _LARGEST:
            raise ValueError(f"{nbytes} bytes, more than {_LARGEST}")
        return os.read(handle, _LARGEST)
    finally:
        os.close(handle)


def _entries(
    data: bytes, distribution: Distribution, file: str, damaged: dict[str, str]
) -> list[EntryPoint]:
    lines, problem = parse(data)
    if problem:
        damaged[file] = problem
    wanted = dict.fromkeys(line for line in lines if line[0] in _GROUPS)
    return [EntryPoint(*line, distribution) for line in wanted]


# -- foreign finders


def _is_foreign(finder: object) -> bool:
    # PathFinder reads plain folders and zip files only; importlib-metadata puts its own beside it.
    known = ("_frozen_importlib_external", "importlib_metadata")
    owner = finder if isinstance(finder, type) else type(finder)
    return hasattr(finder, "find_distributions") and owner.__module__ not in known


def _add_foreign(
    dist: object,
    entries: list[EntryPoint],
    folders: dict[str, list[Distribution]],
    damaged: dict[str, str],
) -> None:
    where = str(getattr(dist, "_path", dist))
    try:
        text = dist.read_text("entry_points.txt")  # type: ignore[attr-defined]
        if not text:
            return
        name = normalize(dist.metadata["Name"])  # type: ignore[attr-defined]
        version = str(dist.version)  # type: ignore[attr-defined]
    except Exception as error:
        damaged[where] = f"cannot be read: {type(error).__name__}: {error}"
        return
    if name not in folders:
        folders[name] = [Distribution(name, where, version)]
        entries += _entries(text.encode(), folders[name][0], where, damaged)


# -- versions


def _stem(folder: str) -> str:
    return os.path.basename(folder).rpartition(".")[0]


def _version_in_name(folder: str) -> str:
    version = _stem(folder).partition("-")[2]
    return version.partition("-py")[0] if folder.endswith(".egg-info") else version


def _version_in_file(folder: str) -> str:
    for name in ("METADATA", "PKG-INFO"):
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                for line in file:
                    if line.startswith("Version:"):
                        return line.partition(":")[2].strip()
        except OSError:
            continue
    return ""
