"""The `hal` command: devices, doctor, render, ... Everything here may print."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from importlib.resources import files

from hal_core import API_VERSION, __version__, cache
from hal_core.cli import doctor, kernelfile, new, profiled
from hal_core.errors import HalError, InvalidArgument
from hal_core.hookspecs import CAPABILITIES, DeviceInfo
from hal_core.ir import Source
from hal_core.registry import Device


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0, 1 when `doctor` or `check` finds a fault, 2 for an error, which is printed."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(given or ["--help"])
    try:
        code: int = options.run(options)
    except HalError as error:
        print(f"hal: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `hal devices | head`; the interpreter flushes once more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _parser() -> argparse.ArgumentParser:
    from hal_core.render import RENDERERS

    parser = argparse.ArgumentParser(prog="hal", description="Devices of hal-core.")
    api = ".".join(map(str, API_VERSION))
    version = f"hal-core {__version__}, plugin API {api}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("devices", help="every device of every installed backend")
    command.add_argument("-v", "--verbose", action="store_true", help="limits and capabilities")
    command.set_defaults(run=_devices)

    command = commands.add_parser("doctor", help="what is wrong with the installed plugins")
    command.add_argument("--json", action="store_true", help="for programs")
    command.add_argument("-v", "--verbose", action="store_true", help="every check")
    command.add_argument("--time-limit", type=_seconds, default=30, metavar="SECONDS")
    command.set_defaults(run=_doctor)

    command = commands.add_parser("new", help="the distribution of a new backend")
    command.add_argument("name", metavar="NAME", help="its family, as its classes shall spell it")
    command.add_argument("--into", default=".", metavar="FOLDER", help="default: this folder")
    command.set_defaults(run=_new)

    command = commands.add_parser("check", help="whether a backend keeps the contract")
    command.add_argument("device", metavar="DEVICE", help="for example OPENCL, or CUDA:1")
    command.add_argument("--pair", metavar="NAME", help="with this compiler of the device")
    chapters = f"these only: {_chapters()}"
    command.add_argument("--chapter", nargs="+", action="extend", default=[], help=chapters)
    command.add_argument("--known-gaps", metavar="FILE", help="CLASS::TEST and the reason, a line")
    add_report = command.add_argument
    add_report("--report", action="append", default=[], metavar="FILE", help="write a .json or .md")
    command.add_argument("--require-device", action="store_true", help="no hardware is an error")
    command.set_defaults(run=_check)

    command = commands.add_parser("render", help="the text of a kernel in one language")
    where = "a Python file, which is run, and the name of a kernel in it if it has several"
    command.add_argument("kernel", metavar="FILE[:KERNEL]", help=where)
    known = f"{', '.join(RENDERERS)}; c when left out"
    command.add_argument("--language", metavar="L", help=known)
    command.add_argument("-o", "--output", metavar="FILE", help="write it there")
    command.set_defaults(run=_render)

    command = commands.add_parser("profile", help="run a program; where its devices' time went")
    command.add_argument("file", metavar="FILE")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the program's")
    command.set_defaults(run=lambda options: profiled.run(options.file, options.arguments))

    command = commands.add_parser("cache", help="the compiled kernels kept on disk")
    command.add_argument("action", nargs="?", choices=["clear"], help="delete them")
    command.add_argument("--clear", action="store_true", help="the same")
    command.add_argument("--json", action="store_true", help="for programs")
    command.set_defaults(run=_cache)
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds, more than 0 (got {text!r})")
    return seconds


# -- devices


def _devices(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    default, problem = _default()
    table = Table(box=None)
    for title in ("name", "kind", "title", "memory", "arch", "backend", "state"):
        table.add_column(title, overflow="fold")
    available = Device.get_available_devices()
    for name in available:
        info = Device.info(name)
        family = name.partition(":")[0]
        memory = doctor.readable(info.memory_nbytes)
        backend = Device.backend(family).distribution or "registered"
        state = Device.states()[family] + (", default" if name == default else "")
        table.add_row(name, info.kind, info.title, memory, info.arch, backend, state)
    present = {name.partition(":")[0] for name in available}
    absent = {family: state for family, state in Device.states().items() if family not in present}
    for family, state in absent.items():
        table.add_row(family, "", "", "", "", "", state)
    # A program that reads this wants one line a device.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 10_000)
    if table.row_count:
        console.print(table)
    else:
        console.print("No backend is installed. Try: python -m pip install hal-cpu")
    if absent:
        console.print("`hal doctor` says why a backend has no device.")
    if problem and available:
        console.print(f"No default device: {problem}", markup=False)
    for name in available if options.verbose else ():
        info = Device.info(name)
        console.print(f"\n{name}: {info.title}", markup=False)
        for title, text in _facts(info):
            console.print(f"    {title:18}{text}", markup=False)
    return 0


def _facts(info: DeviceInfo) -> list[tuple[str, str]]:
    limits = info.limits
    block, grid = (" x ".join(map(str, size)) for size in (limits.max_block, limits.max_grid))
    return [
        ("compute units", str(info.compute_units)),
        ("block", f"at most {block}, {limits.max_block_threads} threads"),
        ("grid", f"at most {grid}"),
        ("shared memory", f"{doctor.readable(limits.shared_nbytes)} a block"),
        ("one allocation", f"at most {doctor.readable(limits.max_alloc_nbytes)}"),
        ("offset of a view", f"divides by {limits.view_alignment}, for a hal.Source"),
        ("host sees memory", "yes" if info.host_visible else "no"),
        ("has", ", ".join(sorted(info.capabilities)) or "none of them"),
        ("has not", ", ".join(sorted(CAPABILITIES - info.capabilities)) or "none of them"),
    ]


def _default() -> tuple[str, str]:
    """The name of the default device, and why there is none."""
    try:
        return Device.info(Device.DEFAULT).name, ""
    except HalError as error:
        return "", str(error)


# -- doctor


def _doctor(options: argparse.Namespace) -> int:
    findings = [*doctor.examine(options.time_limit), doctor.examine_cache()]
    if options.json:
        rows = [
            {**one._asdict(), "checks": [check._asdict() for check in one.checks]}
            for one in findings
        ]
        print(json.dumps(rows, indent=2))
    else:
        doctor.show(findings, options.verbose)
    return 0 if all(one.is_sound for one in findings) else 1


# -- new


def _new(options: argparse.Namespace) -> int:
    called = new.names_of(options.name)
    for warning in new.warnings(called):
        print(f"hal: warning: {warning}", file=sys.stderr)
    folder = new.write(called, options.into)
    print(f"{folder} is a whole backend: family {called.family}, classes {called.spelling}...")
    print("Its device is pretended, by chip.py. In a virtual environment run:\n")
    steps = (
        (f"cd {shlex.quote(folder)}", ""),
        ('python -m pip install -e ".[test]"', "this project, with the conformance kit"),
        (f"hal check {called.family}", "the kit: everything passes, and stays so as you go on"),
    )
    for command, meaning in steps:
        print(f"    {command:36}{meaning}".rstrip())
    print("\nThen put your driver in the place of chip.py: docs/writing-a-backend.md says how.")
    return 0


# -- check


def _chapters() -> str:
    """As `hal_core.testing` names them; importing that takes a tenth of a second."""
    tests = files("hal_core").joinpath("testing", "conformance").iterdir()
    names = [entry.name for entry in tests if entry.name.startswith("test_")]
    return ", ".join(sorted(name.removeprefix("test_").removesuffix(".py") for name in names))


def _check(options: argparse.Namespace) -> int:
    from hal_core.testing.kit.check import Wanted, check

    return check(
        Wanted(
            options.device,
            options.pair,
            options.chapter,
            options.known_gaps,
            options.report,
            options.require_device,
        )
    )


# -- render


def _render(options: argparse.Namespace) -> int:
    text = _text(options.kernel, options.language)
    if not options.output:
        print(text)
        return 0
    try:
        with open(options.output, "w", encoding="utf-8") as file:
            print(text, file=file)
    except OSError as error:
        problem = f"the file cannot be written: {error.strerror}"
        raise InvalidArgument("render", problem, got=options.output) from error
    return 0


def _text(target: str, language: str | None) -> str:
    from hal_core.render import RENDERERS

    renderer = RENDERERS.get(language or "c")
    if renderer is None:
        known = ", ".join(RENDERERS)
        raise InvalidArgument("render", "no such language", got=language, fix=f"Known: {known}.")
    kernel = kernelfile.load(target)
    if not isinstance(kernel, Source):
        return renderer().render(kernel)
    if language not in (None, kernel.language):
        problem = f"{kernel.name} is text in {kernel.language} already"
        fix = "A hal.Source is not translated; a function with @hal.kernel is."
        raise InvalidArgument("render", problem, got=language, fix=fix)
    return kernel.text


# -- cache


def _cache(options: argparse.Namespace) -> int:
    place = cache.folder()
    deleted = cache.clear() if options.clear or options.action == "clear" else None
    found = cache.statistics()
    if options.json:
        facts = {"folder": place, "entries": found.entries, "nbytes": found.nbytes}
        print(json.dumps({**facts, "limit": found.limit, "deleted": deleted or 0}, indent=2))
    elif not place:
        print("The compile cache is off: HAL_CCACHE=0, or there is no home folder.")
    elif deleted is not None:
        print(f"{deleted} entries deleted from {place}")
    else:
        used, limit = doctor.readable(found.nbytes), doctor.readable(found.limit)
        print(f"{place}: {found.entries} entries, {used} of at most {limit}")
    return 0
