"""Print what `hal.print` says, where a kernel asks for it: nothing else of the library prints."""

from __future__ import annotations

from collections.abc import Iterable

MOST_LINES = 1000  # of a launch: a kernel has more threads than anybody reads lines


class Printer:
    """The lines that one launch prints, to `sys.stdout`."""

    def __init__(self) -> None:
        self.left = MOST_LINES

    def lines(self, texts: Iterable[str]) -> None:
        """Print lines; after the last allowed one, say that others are left out."""
        for text in texts:
            if not self.left:
                return
            self.left -= 1
            print(text)
            if not self.left:
                print(f"hal.print: {MOST_LINES} lines; the rest is left out. Print under an if.")
