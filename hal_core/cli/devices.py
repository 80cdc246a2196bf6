"""`hal devices`: list every device of every installed backend."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from hal_core import config
from hal_core.cli import output
from hal_core.device import Device
from hal_core.device.names import parse
from hal_core.errors import HalError
from hal_core.hookspecs import MEANINGS, DeviceInfo

HELP = "List the devices of every installed backend."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = "List this device (OPENCL:1) or this family (OPENCL); by default all devices."
    parser.add_argument("names", nargs="*", metavar="NAME", help=names)
    verbose = "Show limits and capabilities too."
    parser.add_argument("-v", "--verbose", action="store_true", help=verbose)
    parser.add_argument("--json", action="store_true", help="Print JSON, for programs to read.")


def run(options: argparse.Namespace) -> int:
    default, problem = "", ""
    try:
        default = Device.info(Device.DEFAULT).name
    except HalError as error:  # a wrong HAL_DEVICE; every device is listed all the same
        problem = str(error)
    available = chosen(options.names)
    states = Device.states()
    if options.json:
        output.write_json(record(available, states, default, problem), options)
        return 0
    table = output.table(("name", "kind", "title", "memory", "arch", "backend", "state"))
    for name in available:
        info, family = Device.info(name), name.partition(":")[0]
        backend = Device.backend(family).distribution or "registered"
        state = states[family] + (", default" if name == default else "")
        memory = config.size(info.memory_nbytes)
        table.add_row(name, info.kind, info.title, memory, info.arch, backend, state)
    absent = [family for family in states if not options.names and family not in available]
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
    for problem in (config.wrong(config.SETTINGS) | config.misspelt()).values():
        console.print(problem)
    for name in available if options.verbose else ():
        info = Device.info(name)
        console.print(f"\n{name}: {info.title}")
        for title, text in facts(info):
            console.print(f"    {title:18}{text}")
    return 0


def chosen(names: Sequence[str]) -> list[str]:
    """Return the devices that were asked for, by name or by family; all of them for no names.

    Raises: as `hal.Device[...]` for a name that is wrong, or of a device that is not there.
    """
    if not names:
        return Device.get_available_devices(interpreters=True)
    found = []
    for name in names:
        family, _ = parse(name)
        if ":" in name or family == "GPU":
            found.append(Device.info(name).name)
        else:
            found += [info.name for info in Device.devices(family)]
    return list(dict.fromkeys(found))


def record(
    available: Sequence[str], states: Mapping[str, str], default: str, problem: str
) -> dict[str, object]:
    """Return what `--json` prints: devices with all their facts, and the families."""
    found = []
    for name in available:
        info = Device.info(name)
        found.append({
            **info._asdict(), "limits": info.limits._asdict(), "vendor": dict(info.vendor),
            "capabilities": sorted(info.capabilities),
            "backend": Device.backend(name.partition(":")[0]).distribution,
        })  # fmt: skip
    return {"devices": found, "families": states, "default": default, "problem": problem}


def facts(info: DeviceInfo) -> list[tuple[str, str]]:
    """Return the lines of `--verbose`, each a title and a text."""
    limits = info.limits
    block, grid = (" x ".join(map(str, extent)) for extent in (limits.max_block, limits.max_grid))
    return [
        ("platform", info.platform or "the family's only one"),
        ("compute units", str(info.compute_units)),
        ("subgroup", f"{info.subgroup_size} threads" if info.subgroup_size else "unknown"),
        ("banks", f"{info.shared_banks} of shared memory" if info.shared_banks else "unknown"),
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
