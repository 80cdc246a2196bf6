"""The `hal` command. A module for each of its commands; all of them may print.

Commands of other distributions are entry points of the group `hal.commands`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout, suppress
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from hal_core import API_VERSION, __version__, discovery
from hal_core.cli import cache, devices, doctor, output, profile
from hal_core.concurrency import unless_of_a_signal
from hal_core.device.installed import import_entry
from hal_core.errors import PluginError

# Each module has HELP (a sentence), add_arguments(parser), and run(options), which returns the
# exit code.
_OWN = {"devices": devices, "doctor": doctor, "profile": profile, "cache": cache}
# Commands that this project has elsewhere.
_DISTRIBUTIONS = {
    "try": "hal-kernel", "render": "hal-kernel", "bench": "hal-kernel", "check": "hal-testing",
    "new": "hal-testing", "explain": "hal-cpu",
}  # fmt: skip


class Parser(argparse.ArgumentParser):
    """A parser whose help is output like any other: argparse ignores a disk that is full."""

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


def commands() -> list[str]:
    """Return the names of all installed commands. Nothing is imported."""
    return [*_OWN, *sorted(discovery.named(discovery.COMMANDS).keys() - _OWN.keys())]


def module_of(name: str) -> ModuleType:
    """Import the module of an installed command. Raises: PluginError when that fails."""
    return _OWN.get(name) or import_entry(discovery.named(discovery.COMMANDS)[name])


def load(names: Sequence[str]) -> None:
    """Import the modules of these commands; a fault in one is told where it is run."""
    for name in set(names) & set(commands()):
        with suppress(PluginError):
            module_of(name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 1 after a fault was found, 2 after an error.

    Raises: SystemExit from argparse; KeyboardInterrupt, of which the interpreter prints nothing.
    """
    return output.told(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    given = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    known, name = commands(), given[0]
    if name[:1] != "-" and name not in known:
        hint = _did_you_mean(given[:1], known) or f" There are {', '.join(known)}."
        if name in _DISTRIBUTIONS:
            hint = f" It is in {_DISTRIBUTIONS[name]}, which is not installed. "
            hint += f"Run: python -m pip install {_DISTRIBUTIONS[name]}"
        make_parser([]).error(f"no such command: {name}.{hint}")
    parser = make_parser([name] if name in known else None)
    options, unknown = parser.parse_known_args(given)
    if hasattr(options, "assignments"):  # argparse takes them directly behind FILE only
        behind = [word for word in unknown if "=" in word and word[0] != "-"]
        options.assignments = [*options.assignments, *behind]
        unknown = [word for word in unknown if word not in options.assignments]
    if unknown:  # told by the parser of the command, which shows that command's usage
        misspelt = [word for word in unknown if word[:1] == "-"]
        hint = _did_you_mean(misspelt, options.parser._option_string_actions)
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}.{hint}")
    options.stdout = sys.stdout  # for `output.write_json`
    with redirect_stdout(sys.stderr if getattr(options, "json", False) else sys.stdout):
        code: int = options.run(options)
    return code


def make_parser(names: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Make the parser of these commands, or of all; each adds its own arguments."""
    lacking = sorted(_DISTRIBUTIONS.keys() - commands())
    others = ", ".join(f"{name} (comes with {_DISTRIBUTIONS[name]})" for name in lacking)
    parser = Parser(
        prog="hal", description="Show, test and use the devices of hal-core.",
        epilog=f"Not installed: {others}." if lacking else None,
    )  # fmt: skip
    version = f"hal-core {__version__}, plugin API {'.'.join(map(str, API_VERSION))}"
    parser.add_argument("--version", action="version", version=version)
    parser.set_defaults(run=lambda options: parser.error("no COMMAND is given"), parser=parser)
    subparsers = parser.add_subparsers(metavar="COMMAND")
    for name in commands() if names is None else names:
        try:
            command = module_of(name)
            shown = command.HELP.replace("%", "%%")  # a text, which argparse takes for a format
            subparser = subparsers.add_parser(name, help=shown, description=command.HELP)
            command.add_arguments(subparser)
            subparser.set_defaults(run=command.run, parser=subparser)
        except unless_of_a_signal(Exception) as error:  # it must not hide the other commands
            if names is not None:
                raise
            parser.epilog = f"{parser.epilog or ''} Broken: {name}: {error}."
    return parser


def _did_you_mean(words: Sequence[str], known: Iterable[str]) -> str:
    """Return a sentence with the known words that are nearest to misspelt ones, or nothing.

    argparse suggests commands from Python 3.14 on, and options in no version.
    """
    near = [get_close_matches(word.partition("=")[0], known, 1) for word in words]
    found = list(dict.fromkeys(match for matches in near for match in matches))
    return f" Did you mean {' and '.join(found)}?" if found else ""
