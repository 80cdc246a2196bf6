"""Count what work costs in ways that no machine changes, in place of its time."""

import sys


def calls(work):
    """Count the calls of Python's and of C's functions within `work`, without its own."""
    counted = 0

    def count(frame, event, arg):
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted - 2  # of `work` and of setprofile
