"""`hal check`: run the conformance kit on a device."""

from __future__ import annotations

import argparse
from importlib.resources import files

HELP = "test that a backend keeps the contract"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # The chapters are read from the folder: importing `hal_core.testing` takes a tenth of a second.
    tests = files("hal_core").joinpath("testing", "conformance").iterdir()
    modules = sorted(test.name.removesuffix(".py") for test in tests)
    chapters = ", ".join(name[5:] for name in modules if name.startswith("test_"))
    add = parser.add_argument
    add("device", metavar="DEVICE", help="for example OPENCL, or CUDA:1")
    add("--pair", metavar="NAME", help="the compiler of the device to test with")
    add("--chapter", dest="chapters", nargs="+", action="extend", default=[], metavar="NAME",
        help=f"these only: {chapters}")  # fmt: skip
    add("--known-gaps", metavar="FILE", help="tests that fail: CLASS::TEST and a reason a line")
    add("--report", dest="reports", action="append", default=[], metavar="FILE",
        help="write a .json or .md")  # fmt: skip
    add("--require-device", action="store_true", help="fail when there is no hardware")


def run(options: argparse.Namespace) -> int:
    from hal_core.testing.kit.check import Wanted, check

    return check(Wanted(*(getattr(options, field) for field in Wanted._fields)))
