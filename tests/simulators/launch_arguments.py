"""Write what both engines read of a launch, and read how it ended."""

import numpy as np


class Fault(Exception):
    """Tell how a launch failed; `kind` is a name of the engine's enum."""

    def __init__(self, kind, message):
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def sent(arguments):
    """Return the bytes for the engine, and the arrays whose memory it gives back, in order.

    Arrays are written to; views of one array stay views of one. Others are numpy scalars.
    """
    parts = []
    roots = []
    for value in arguments:
        if not isinstance(value, np.ndarray):
            scalar = np.asarray(value)
            parts.append(b"value %d\n%s" % (scalar.nbytes, scalar.tobytes()))
            continue
        root = value
        while isinstance(root.base, np.ndarray):
            root = root.base
        if not any(other is root for other in roots):
            roots.append(root)
            parts.append(b"memory %d\n%s" % (root.nbytes, root.tobytes()))
        number = next(k for k, other in enumerate(roots) if other is root)
        parts.append(b"inside %d %d\n" % (number, value.ctypes.data - root.ctypes.data))
    return b"".join(parts), roots


def write_back(memory, roots):
    """Copy what the engine gave back into the arrays; return how many bytes that took."""
    place = 0
    for root in roots:
        data = np.frombuffer(memory[place : place + root.nbytes], np.uint8)
        root.reshape(-1).view(np.uint8)[:] = data
        place += root.nbytes
    return place
