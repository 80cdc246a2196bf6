"""The exception for a call that the system refuses."""

from __future__ import annotations


class Refused(Exception):
    """The host refused a call. `driver.explain` turns it into an exception of hal-core."""

    def __init__(self, call: str, reason: str, nbytes: int) -> None:
        super().__init__(f"{call} failed: {reason}")
        self.nbytes = nbytes
