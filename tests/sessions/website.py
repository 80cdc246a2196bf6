"""The site of the pages."""

from __future__ import annotations

import nox

from sessions.distributions import OUT, ROOT, version


def build(session: nox.Session) -> None:
    """Write the site of this version into a folder of its own, beside those of other versions."""
    session.install("sphinx>=8.1", "furo", "myst-parser>=4")
    site = OUT / "site"
    options = ("--fail-on-warning", "--keep-going", "--nitpicky", "--fresh-env", "-q", "-jauto")
    session.run(
        "sphinx-build", *options, "-c", str(ROOT / "docs"), str(ROOT), str(site / version())
    )
    for folder, start in ((site, f"{version()}/README.html"), (site / version(), "README.html")):
        page = f'<!doctype html><meta http-equiv="refresh" content="0; url={start}">\n'
        (folder / "index.html").write_text(page, encoding="utf-8")
    session.log(f"open {site / 'index.html'}")
