"""`hal devices`: list every device of every installed backend."""

from __future__ import annotations

import argparse
import json

from hal_core import config
from hal_core.cli import output
from hal_core.device import Device
from hal_core.device.names import KNOWN
from hal_core.errors import HalError
from hal_core.hookspecs import MEANINGS, DeviceInfo

HELP = "List every device of every installed backend."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbose = "Show limits and capabilities too."
    parser.add_argument("-v", "--verbose", action="store_true", help=verbose)
    parser.add_argument("--json", action="store_true", help="Print JSON, for programs to read.")


def run(options: argparse.Namespace) -> int:
    default, problem = "", ""
    try:
        default = Device.info(Device.DEFAULT).name
    except HalError as error:  # a wrong HAL_DEVICE; every device is listed all the same
        problem = str(error)
    if options.json:
        print(json.dumps(record(default, problem), indent=2, default=str))
        return 0
    table = output.table(("name", "kind", "title", "memory", "arch", "backend", "state"))
    available = Device.get_available_devices(interpreters=True)
    states = Device.states()
    for name in available:
        info, family = Device.info(name), name.partition(":")[0]
        backend = Device.backend(family).distribution or "registered"
        state = states[family] + (", default" if name == default else "")
        memory = config.size(info.memory_nbytes)
        table.add_row(name, info.kind, info.title, memory, info.arch, backend, state)
    absent = [family for family in states if family not in available]
    for family in absent:
        table.add_row(family, "", "", "", "", "", states[family])
    console = output.console()
    if table.row_count:
        console.print(table)
    else:
        console.print("No backend is installed. Try: python -m pip install hal-cpu")
    if default and Device.info(default).kind == "interpreter":
        advice = "`python -m pip install hal-cpu` brings this machine's processor."
        console.print(f"{default} interprets kernels, which is slow. {advice}")
    if absent:
        console.print("`hal doctor` says why a backend has no device.")
    if problem and available:
        console.print(f"No default device: {problem}")
    families = {*states, *KNOWN}
    for problem in config.wrong(config.SETTINGS).values():
        console.print(problem)
    for variable, meant in config.misspelt(families).items():
        console.print(config.advice(variable, meant))
    for name in available if options.verbose else ():
        info = Device.info(name)
        console.print(f"\n{name}: {info.title}")
        for title, text in facts(info):
            console.print(f"    {title:18}{text}")
    return 0


def record(default: str, problem: str) -> dict[str, object]:
    """Return what `--json` prints: every device with all its facts, and the absent families."""
    found = []
    for name in Device.get_available_devices():
        info = Device.info(name)
        found.append({
            **info._asdict(), "limits": info.limits._asdict(), "vendor": dict(info.vendor),
            "capabilities": sorted(info.capabilities),
            "backend": Device.backend(name.partition(":")[0]).distribution,
        })  # fmt: skip
    return {"devices": found, "families": Device.states(), "default": default, "problem": problem}


def facts(info: DeviceInfo) -> list[tuple[str, str]]:
    """Return the lines of `--verbose`, each a title and a text."""
    limits = info.limits
    block, grid = (" x ".join(map(str, extent)) for extent in (limits.max_block, limits.max_grid))
    return [
        ("compute units", str(info.compute_units)),
        ("block", f"at most {block}, {limits.max_block_threads} threads"),
        ("grid", f"at most {grid}"),
        ("shared memory", f"{config.size(limits.shared_nbytes)} a block"),
        ("one allocation", f"at most {config.size(limits.max_alloc_nbytes)}"),
        ("offset of a view", f"a multiple of {limits.view_alignment} bytes, for a hal.Source"),
        ("host sees memory", _answer(info.host_visible)),
        *((name, f"{_answer(name in info.capabilities)}: {it}") for name, it in MEANINGS.items()),
    ]


def _answer(fact: bool) -> str:
    return "yes" if fact else "no"
