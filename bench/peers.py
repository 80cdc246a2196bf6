"""Other libraries to compare with; one that does not work here becomes a note in the table."""

from __future__ import annotations

from collections.abc import Callable

from bench.measure import Task, Times


class Peers:
    """Tasks of the peers that work here, and for the others the reasons why not."""

    def __init__(self, **make: Callable[[], Task]) -> None:
        self.tasks: dict[str, Task] = {}
        self.reasons: dict[str, str] = {}
        for argument, prepare in make.items():
            name = argument.replace("_", "-")
            try:
                self.tasks[name] = prepare()
            except ModuleNotFoundError as error:
                self.reasons[name] = f"not installed ({error.name})"
            except Exception as error:  # a foreign package may raise anything
                self.reasons[name] = f"failed: {type(error).__name__}: {error}".splitlines()[0][:90]

    def results(self, times: Times) -> dict[str, float | str]:
        return {name: times.typical(name) for name in self.tasks} | self.reasons
