"""Tables and errors as the commands print them, for people and for programs that read lines."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from hal_core.errors import HalError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def console(stderr: bool = False, **options: Any) -> Console:
    """Return a console that prints text as it is, whatever brackets and colons it contains.

    In a pipe nothing wraps, as a program that reads the lines wants one for each row.
    """
    from rich.console import Console  # here: it takes longer than all of hal_core

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise  # for `told`; rich would end the process with 1

    options["width"] = None if (sys.stderr if stderr else sys.stdout).isatty() else 10_000
    return Output(stderr=stderr, highlight=False, markup=False, emoji=False, **options)


def table(words: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """Return a table with these columns; the columns of numbers are aligned to the right."""
    from rich.table import Table

    made = Table(box=None)
    for title in words:
        made.add_column(title, overflow="fold")
    for title in numbers:
        made.add_column(title, justify="right")
    return made


def seconds(value: float) -> str:
    """Return a time with its unit: `1.250 ms`."""
    for unit in ("s", "ms"):
        if value >= 1:
            return f"{value:.3f} {unit}"
        value *= 1000
    return f"{value:.1f} us"


def write_json(document: object, options: Namespace) -> None:
    """Print it where a command with `--json` has stdout to itself: plugins print to stderr then."""
    print(json.dumps(document, indent=2, default=str), file=options.stdout)


def told(work: Callable[[], int]) -> int:
    """Do `work` and return its exit code; tell an error in one line on stderr and return 2.

    Raises: KeyboardInterrupt, of which the interpreter prints nothing then.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # to the end
            for place in (name, f"__{name}__"):  # pytest wants the second one, too
                setattr(sys, place, stream)
    if isinstance(sys.stdout, TextIOWrapper):  # it may lack a letter of a kernel's text
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            return work()
        finally:
            if not sys.stdout.closed:  # by a program that `hal profile` has run
                sys.stdout.flush()  # here, where a full disk can be told
    except KeyboardInterrupt:
        # Python ends such a process by SIGINT, so that a shell's loop ends, too.
        hook = sys.excepthook
        sys.excepthook = lambda kind, *error: (
            None if issubclass(kind, KeyboardInterrupt) else hook(kind, *error)
        )
        raise
    except BrokenPipeError:  # `hal devices | head`
        _close_stdout()
        return 0
    except HalError as error:
        print(f"hal: {error}", file=sys.stderr)
    except MemoryError:
        print("hal: not enough memory. Give smaller sizes.", file=sys.stderr)
    except OSError as error:
        _close_stdout()
        print(f"hal: the output cannot be written: {error.strerror or error}", file=sys.stderr)
    return 2


def _close_stdout() -> None:
    """Let what is left in stdout go nowhere: the interpreter flushes once more at exit."""
    with suppress(OSError, ValueError):  # ValueError: a stream without a file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
