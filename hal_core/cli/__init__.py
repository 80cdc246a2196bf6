"""The `hal` command. A module for each of its commands; all of them may print."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from hal_core import API_VERSION, __version__
from hal_core.cli import bench, cache, check, devices, doctor, new, profile, render
from hal_core.errors import HalError

# Each module has HELP (a sentence), add_arguments(parser), and run(options), which returns the
# exit code.
COMMANDS = (devices, doctor, new, check, render, bench, profile, cache)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 1 after a fault was found, 2 after an error."""
    given = sys.argv[1:] if arguments is None else arguments
    options, unknown = make_parser().parse_known_args(given or ["--help"])
    if hasattr(options, "assignments"):  # argparse takes them directly behind FILE only
        options.assignments += [word for word in unknown if "=" in word and word[0] != "-"]
        unknown = [word for word in unknown if word not in options.assignments]
    if unknown:  # told by the parser of the command, which shows that command's usage
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        code: int = options.run(options)
    except BrokenPipeError:  # `hal devices | head`; the interpreter flushes once more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except HalError as error:
        print(f"hal: {error}", file=sys.stderr)
        return 2
    return code


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line; each command adds its own arguments."""
    parser = argparse.ArgumentParser(
        prog="hal", description="Show, test and use the devices of hal-core."
    )
    version = f"hal-core {__version__}, plugin API {'.'.join(map(str, API_VERSION))}"
    parser.add_argument("--version", action="version", version=version)
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2]
        subparser = subparsers.add_parser(name, help=command.HELP, description=command.HELP)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run, parser=subparser)
    return parser
