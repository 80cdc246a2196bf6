"""A loaded kernel."""

from __future__ import annotations

from hal_hip.compiler import MAKER
from hal_streams.program import StreamProgram


class HIPProgram(StreamProgram):
    """A kernel on an AMD GPU, which may use all shared memory without asking."""

    formats, maker = ("hip",), MAKER
    any_shared_nbytes = 1 << 30
