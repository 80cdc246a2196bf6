"""Runs code objects of gfx906 on the engine alone, without the runtime around it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Triple = tuple[int, int, int]


class RefusedObject(Exception):
    """The bytes are no code object that the engine can carry out."""


class Fault(Exception):
    """What a launch ended with: `kind` is a name of the engine's enum."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Engine:
    """One process for all launches: AMD's disassembler takes a while to start."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen(
            [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def facts(self, image: bytes) -> list[str]:
        return self._ask(f"facts {len(image)} 0", image).decode().splitlines()

    def run(
        self,
        image: bytes,
        kernel: str,
        arguments: Sequence[Any],
        grid: Triple = (1, 1, 1),
        block: Triple = (1, 1, 1),
        *,
        shared: int = 0,
        most: int = 0,
    ) -> None:
        """Arrays are written to; views of one array stay views of one. Others are numpy scalars."""
        parts, roots = _arguments(arguments)
        given = b"".join(parts)
        words = map(str, ("run", len(image), len(given), kernel, *grid, *block, shared, most))
        memory = self._ask(" ".join(words), image + given)
        place = 0
        for root in roots:
            data = np.frombuffer(memory[place : place + root.nbytes], np.uint8)
            root.reshape(-1).view(np.uint8)[:] = data
            place += root.nbytes

    def _ask(self, line: str, sent: bytes) -> bytes:
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the engine has no pipes")
        try:
            self.process.stdin.write(line.encode() + b"\n" + sent)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer says so
        first = self.process.stdout.readline().split()
        if len(first) != 2:
            raise RuntimeError(f"the engine ended with status {self.process.wait()}")
        kind, answer = first[0].decode(), self.process.stdout.read(int(first[1]))
        if kind == "refused":
            raise RefusedObject(answer.decode())
        if kind not in ("memory", "facts"):
            raise Fault(kind, answer.decode())
        return answer

    def close(self) -> None:
        if self.process.stdin and self.process.stdout:
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()


def _arguments(arguments: Sequence[Any]) -> tuple[list[bytes], list[Array]]:
    parts: list[bytes] = []
    roots: list[Array] = []
    for value in arguments:
        if not isinstance(value, np.ndarray):
            scalar = np.asarray(value)
            parts.append(b"value %d\n%s" % (scalar.nbytes, scalar.tobytes()))
            continue
        root: Any = value
        while isinstance(root.base, np.ndarray):
            root = root.base
        if not any(other is root for other in roots):
            roots.append(root)
            parts.append(b"memory %d\n%s" % (root.nbytes, root.tobytes()))
        number = next(k for k, other in enumerate(roots) if other is root)
        parts.append(b"inside %d %d\n" % (number, value.ctypes.data - root.ctypes.data))
    return parts, roots
