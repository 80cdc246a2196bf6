"""The site of the pages."""

from __future__ import annotations

from pathlib import Path

import nox

from sessions.distributions import OUT, ROOT, version

TOOLS = ("sphinx>=8.1", "furo", "myst-parser>=4")


def command(into: Path) -> tuple[str, ...]:
    """Return the command that writes the pages; a link that leads nowhere is an error."""
    options = ("--fail-on-warning", "--keep-going", "--nitpicky", "--fresh-env", "-q", "-jauto")
    return ("sphinx-build", *options, "-c", str(ROOT / "docs"), str(ROOT), str(into))


def build(session: nox.Session) -> None:
    """Write the site of this version into a folder of its own, beside those of other versions."""
    session.install(*TOOLS)
    site = OUT / "site"
    session.run(*command(site / version()))
    for folder, start in ((site, f"{version()}/README.html"), (site / version(), "README.html")):
        page = f'<!doctype html><meta http-equiv="refresh" content="0; url={start}">\n'
        (folder / "index.html").write_text(page, encoding="utf-8")
    session.log(f"open {site / 'index.html'}")
