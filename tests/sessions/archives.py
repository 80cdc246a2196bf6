"""Wheels and source archives: what must be in them, and what must not."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import nox

from sessions import one_run, parallel
from sessions.distributions import DISTRIBUTIONS, folder_of


def build(session: nox.Session) -> None:
    """Build the archives of all distributions and check them; later sessions install the wheels."""
    session.install("build", "twine", "hatchling")
    dist = Path(session.create_tmp()).resolve() / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    command = ("python", "-m", "build", "--no-isolation", "--outdir", str(dist))
    parallel.run(session, *((*command, str(folder_of(name))) for name in DISTRIBUTIONS))
    for name in DISTRIBUTIONS:
        package = name.replace("-", "_")
        (wheel,), (archive,) = dist.glob(f"{package}-*.whl"), dist.glob(f"{package}-*.tar.gz")
        for fault in (*_of_wheel(wheel, package), *_of_archive(archive)):
            session.error(fault)
        shutil.copy(wheel, one_run.folder())
    session.run("twine", "check", "--strict", *map(str, dist.iterdir()))


def _of_wheel(wheel: Path, package: str) -> Iterator[str]:
    """Say what is wrong with a wheel."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    if tops != {package}:
        yield f"{wheel.name} installs {sorted(tops)}, not only {package}"
    if f"{package}/py.typed" not in names:
        yield f"{wheel.name} has no py.typed: type checkers would ignore its types"
    if package == "hal_testing" and "hal_testing/conformance/test_buffer.py" not in names:
        yield f"{wheel.name} has no conformance kit: `hal check` would find nothing"
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        yield f"{wheel.name} has no LICENSE"
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
