"""The `hal` command. A module for each of its commands; all of them may print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from hal_core import API_VERSION, __version__
from hal_core.cli import bench, cache, check, devices, doctor, new, output, profile, render

# Each module has HELP (a sentence), add_arguments(parser), and run(options), which returns the
# exit code.
_MODULES = (devices, doctor, new, check, render, bench, profile, cache)
COMMANDS = {module.__name__.rpartition(".")[2]: module for module in _MODULES}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 1 after a fault was found, 2 after an error.

    Raises: SystemExit from argparse; KeyboardInterrupt, of which the interpreter prints nothing.
    """
    return output.told(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    given = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    parser = make_parser()
    if given[0][:1] != "-" and given[0] not in COMMANDS:
        hint = _did_you_mean(given[:1], COMMANDS) or f" There are {', '.join(COMMANDS)}."
        parser.error(f"no such command: {given[0]}.{hint}")
    options, unknown = parser.parse_known_args(given)
    if hasattr(options, "assignments"):  # argparse takes them directly behind FILE only
        behind = [word for word in unknown if "=" in word and word[0] != "-"]
        options.assignments = [*options.assignments, *behind]
        unknown = [word for word in unknown if word not in options.assignments]
    if unknown:  # told by the parser of the command, which shows that command's usage
        misspelt = [word for word in unknown if word[:1] == "-"]
        hint = _did_you_mean(misspelt, options.parser._option_string_actions)
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}.{hint}")
    code: int = options.run(options)
    return code


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line; each command adds its own arguments."""
    parser = argparse.ArgumentParser(
        prog="hal", description="Show, test and use the devices of hal-core."
    )
    version = f"hal-core {__version__}, plugin API {'.'.join(map(str, API_VERSION))}"
    parser.add_argument("--version", action="version", version=version)
    parser.set_defaults(run=lambda options: parser.error("no COMMAND is given"), parser=parser)
    subparsers = parser.add_subparsers(metavar="COMMAND")
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=command.HELP, description=command.HELP)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run, parser=subparser)
    return parser


def _did_you_mean(words: Sequence[str], known: Iterable[str]) -> str:
    """Return a sentence with the known words that are nearest to misspelt ones, or nothing.

    argparse suggests commands from Python 3.14 on, and options in no version.
    """
    near = [get_close_matches(word.partition("=")[0], known, 1) for word in words]
    found = list(dict.fromkeys(match for matches in near for match in matches))
    return f" Did you mean {' and '.join(found)}?" if found else ""
