"""`hal profile`: run a program under a profile and print where its time went."""

from __future__ import annotations

import argparse
import atexit
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import NamedTuple

from hal_core.cli import output
from hal_core.errors import InvalidArgument
from hal_core.files import missing
from hal_core.profiling import profile, saved_elsewhere
from hal_core.profiling.events import ProfileEvent
from hal_core.profiling.trace import check_path

HELP = "Run a program and print where its devices' time went."

_LIMIT = 1_000_000  # events; the last ones count


class Line(NamedTuple):
    """All events of one device, kind and name, added up."""

    device: str
    kind: str
    name: str  # of the kernel or the range
    times: int
    seconds: float  # in all
    nbytes: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    quiet = "Print JSON, for programs to read; what the program prints goes to stderr."
    parser.add_argument("--json", action="store_true", help=quiet)
    trace = "Write a trace, too: .json for Perfetto, .html to open in a browser, or .pickle."
    parser.add_argument("-o", "--out", metavar="TRACE", help=trace)
    parser.add_argument("file", metavar="FILE", help="Run this Python file.")
    arguments = "Give the program these arguments. Options of hal profile stand before FILE."
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help=arguments)


def run(options: argparse.Namespace) -> int:
    """Run the file as `python FILE ARGUMENTS` would, and return the exit code of that.

    The table goes to stderr, as stdout is the program's; the JSON has stdout to itself, and the
    program writes to stderr. Both are printed after a failure too.
    """
    path = options.file
    if not os.path.isfile(path):
        raise missing("profile", path, "Give a Python file.")
    target = _target(options.out)
    sys.argv = [path, *options.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    out, err, stderr = os.dup(1), os.dup(2), sys.stderr
    if options.json:  # what libraries and child processes write there too
        os.dup2(2, 1)
    before, process = set(threading.enumerate()), os.getpid()
    ending = ExitStack()
    whole = ending.enter_context(profile(_LIMIT))
    code, is_interrupted = _ran(path)

    def finish() -> int:
        if os.getpid() != process:  # the end of a forked child is not that of the program
            return code
        ending.close()
        problem = saved_elsewhere(whole, target) if target else ""
        if not options.stdout.closed:
            options.stdout.flush()
        for copy, number in ((out, 1), (err, 2)):
            os.dup2(copy, number)
            os.close(copy)
        sys.stderr = stderr  # a program may replace or close it; Python leaves the file open
        if stderr.closed:
            sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # to the end
        if options.json:
            rows = [line._asdict() for line in lines(whole.events)]
            output.write_json({"events": rows, "dropped": whole.dropped}, options)
        else:
            show(lines(whole.events), whole.dropped, 0 if is_interrupted else code)
        if problem:
            print(f"hal: {problem}", file=sys.stderr)
        return code

    if any(not thread.daemon for thread in set(threading.enumerate()) - before):
        atexit.register(output.told, finish)  # the interpreter waits for these threads before
    else:
        finish()
    if is_interrupted:
        raise KeyboardInterrupt
    return code


def _ran(path: str) -> tuple[int, bool]:
    """Run a program; return its exit code, and whether Ctrl-C has ended it."""
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0, False
        # The interpreter prints anything else and exits with 1.
        with suppress(OSError, ValueError):  # the program may have closed it
            print(error.code, file=sys.stderr)
        return 1, False
    except BaseException as error:
        trace = error.__traceback__  # from the program's first frame on; a syntax error has none
        while trace and trace.tb_frame.f_globals.get("__name__") in (__name__, "runpy"):
            trace = trace.tb_next
        with suppress(OSError, ValueError):
            traceback.print_exception(error.with_traceback(trace))
        return 1, isinstance(error, KeyboardInterrupt)
    return 0, False


def _target(path: str | None) -> str:
    """Return where the trace goes, also if the program changes its folder.

    Raises: InvalidArgument for a place where nothing can be written, before the program runs.
    """
    if path is None:
        return ""
    target = os.path.abspath(check_path(path, "profile"))
    folder = os.path.dirname(target)
    if not (os.path.isdir(folder) and os.access(folder, os.W_OK)) or os.path.isdir(target):
        fix = "Name a file in a folder that you may write to."
        raise InvalidArgument("profile", "the trace cannot be written", got=path, fix=fix)
    return target


def lines(events: Iterable[ProfileEvent]) -> list[Line]:
    """Add up events of the same device, kind and name; the line that took longest comes first."""
    found: dict[tuple[str, str, str], Line] = {}
    for event in events:
        key = event.device, event.kind, event.name
        known = found.get(key) or Line(*key, 0, 0.0, 0)
        times, nbytes = known.times + 1, known.nbytes + event.nbytes
        found[key] = Line(*key, times, known.seconds + event.seconds, nbytes)
    return sorted(found.values(), key=lambda line: -line.seconds)


def show(found: list[Line], dropped: int, code: int) -> None:
    """Print the table to stderr."""
    console = output.console(stderr=True)
    if not found:
        console.print("hal profile: no device did anything in this process.")
        if code:
            said = f"The program ended with exit code {code}. If it needs arguments"
            console.print(f"{said}, give them behind FILE: hal profile FILE ARGUMENTS.")
        return
    table = output.table(("device", "kind", "name"), ("times", "total", "each", "bytes"))
    for line in found:
        name = "" if line.name == line.kind else line.name
        total, each = output.seconds(line.seconds), output.seconds(line.seconds / line.times)
        nbytes = str(line.nbytes) if line.nbytes else ""
        table.add_row(line.device, line.kind, name, str(line.times), total, each, nbytes)
    console.print(table)
    if dropped:
        console.print(f"The last {_LIMIT} events; {dropped} before them are not counted.")
