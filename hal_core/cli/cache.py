"""`hal cache`: show or delete the compiled kernels on disk."""

from __future__ import annotations

import argparse

from hal_core import config
from hal_core.cli import output
from hal_core.compiler import cache

HELP = "Show or delete the compiled kernels on disk."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    clear = "Delete every compiled kernel."
    parser.add_argument("action", nargs="?", choices=["clear"], help=clear)
    parser.add_argument("--json", action="store_true", help="Print JSON, for programs to read.")


def run(options: argparse.Namespace) -> int:
    folder = cache.folder()
    deleted = cache.clear() if options.action else None
    found = cache.statistics()
    if options.json:
        facts = {"folder": folder, "entries": found.entries, "nbytes": found.nbytes}
        output.write_json({**facts, "limit": found.limit, "deleted": deleted or 0}, options)
    elif not folder:
        print("The compile cache is off: HAL_CCACHE=0, or there is no home folder.")
    elif deleted is not None:
        print(f"{deleted} entries deleted from {folder}")
    else:
        used, limit = config.size(found.nbytes), config.size(found.limit)
        print(f"{folder}: {found.entries} entries, {used} of at most {limit}")
    return 0
