"""`hal check`: run the conformance kit on a device."""

from __future__ import annotations

import argparse
from importlib.resources import files

from hal_core.device import names
from hal_core.errors import InvalidArgument
from hal_testing.kit.check import Wanted, check

HELP = "Test the backend of a device with the conformance kit."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    tests = files("hal_testing").joinpath("conformance").iterdir()
    modules = sorted(test.name.removesuffix(".py") for test in tests)
    chapters = ", ".join(name[5:] for name in modules if name.startswith("test_"))
    add = parser.add_argument
    add("device", metavar="DEVICE", help="Test this device, such as OPENCL or CUDA:1.")
    add("--pair", metavar="NAME", help="Test with this compiler of the device.")
    add("--chapter", dest="chapters", nargs="+", action="extend", default=[], metavar="NAME",
        help=f"Run these chapters only. There are {chapters}.")  # fmt: skip
    gaps = "Expect the tests in this file to fail; each line has CLASS::TEST and a reason."
    add("--known-gaps", metavar="FILE", help=gaps)
    add("--report", dest="reports", action="append", default=[], metavar="FILE",
        help="Write a report to a .json or .md file.")  # fmt: skip
    add("--require-device", action="store_true", help="Fail when the hardware is missing.")


def run(options: argparse.Namespace) -> int:
    if ".py" in options.device:
        fix = f"Run hal try {options.device}, which runs the kernels of a file."
        raise InvalidArgument("check", "a file is no device", got=options.device, fix=fix)
    names.parse(options.device, "check")
    return check(Wanted(*(getattr(options, field) for field in Wanted._fields)))
