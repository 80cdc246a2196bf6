"""Wheels and source archives: what must be in them, and what must not."""

from __future__ import annotations

import re
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import nox

from sessions import one_run, parallel
from sessions.distributions import DISTRIBUTIONS, ROOT, folder_of


def build(session: nox.Session) -> None:
    """Build the archives of all distributions and check them; later sessions install the wheels."""
    session.install("build", "twine", "hatchling", "hatch-fancy-pypi-readme")
    dist = Path(session.create_tmp()).resolve() / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    # To ask each for what it needs takes two processes more: it is hatchling, installed above.
    options = ("--no-isolation", "--skip-dependency-check", "--outdir", str(dist))
    command = ("python", "-m", "build", *options)
    parallel.run(session, *((*command, str(folder_of(name))) for name in DISTRIBUTIONS))
    for name in DISTRIBUTIONS:
        package = name.replace("-", "_")
        (wheel,), (archive,) = dist.glob(f"{package}-*.whl"), dist.glob(f"{package}-*.tar.gz")
        for fault in (*_of_wheel(wheel, package), *_of_archive(archive)):
            session.error(fault)
        shutil.copy(wheel, one_run.folder())
    session.run("twine", "check", "--strict", *map(str, dist.iterdir()))
    if session.posargs[:1] == ["--into"]:
        shutil.copytree(dist, ROOT / session.posargs[1], dirs_exist_ok=True)


def _of_wheel(wheel: Path, package: str) -> Iterator[str]:
    """Say what is wrong with a wheel."""
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    if tops != {package}:
        yield f"{wheel.name} installs {sorted(tops)}, not only {package}"
    if f"{package}/py.typed" not in names:
        yield f"{wheel.name} has no py.typed: type checkers would ignore its types"
    if package == "hal_testing" and "hal_testing/conformance/test_buffer.py" not in names:
        yield f"{wheel.name} has no conformance kit: `hal check` would find nothing"
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        yield f"{wheel.name} has no LICENSE"
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    said = archive.read(metadata).decode()
    if not said.startswith("Metadata-Version: 2.4\n"):
        yield f"{wheel.name} has metadata of another version than 2.4, which indexes may refuse"
    if dead := re.findall(r"\]\((?!https://|#)[^)]*\)", said):
        yield f"{wheel.name} has links that lead nowhere from the page of an index: {dead}"
    if "-py3-none-any" not in wheel.name:
        yield f"{wheel.name} is not a pure Python 3 wheel"


def _of_archive(archive: Path) -> Iterator[str]:
    """Say what is wrong with a source archive."""
    with tarfile.open(archive) as content:
        inside = {name.split("/", 1)[1] for name in content.getnames() if "/" in name}
    for needed in ("LICENSE", "README.md", "pyproject.toml"):
        if needed not in inside:
            yield f"{archive.name} has no {needed}"
    strangers = [name for name in inside if name.split("/")[0] in ("plugins", "noxfile.py", "out")]
    if strangers:
        yield f"{archive.name} holds {strangers[:3]}, which belong to the repository"
