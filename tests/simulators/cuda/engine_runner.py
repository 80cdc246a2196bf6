"""Runs PTX on the engine alone, without the driver around it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import build
import cxx
import launch_arguments
import numpy as np
from launch_arguments import Fault, Triple

SCHEDULES = ("run-to-barrier", "lockstep")


class Refused(Exception):
    """The text is no PTX; with the log."""


class Engine:
    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder = program, folder

    def logs(self, texts: Sequence[str | bytes]) -> list[str]:
        """What is wrong with each text; "ok" where nothing is."""
        given = [text.encode() if isinstance(text, str) else text for text in texts]
        sent = b"".join(b"%d\n%s" % (len(text), text) for text in given)
        return self._call("check", sent=sent).stdout.decode().splitlines()

    def facts(self, text: str) -> list[str]:
        done = self._call("facts", self._file(text))
        if done.returncode:
            raise Refused(done.stderr.decode())
        return done.stdout.decode().splitlines()

    def run(
        self,
        text: str | bytes,
        kernel: str,
        arguments: Sequence[Any],
        grid: Triple = (1, 1, 1),
        block: Triple = (1, 1, 1),
        *,
        shared: int = 0,
        schedule: str = SCHEDULES[0],
        most: int = 0,
    ) -> None:
        sent, roots = launch_arguments.sent(arguments)
        words = map(str, (*grid, *block, shared, schedule, most))
        done = self._call("run", self._file(text), kernel, *words, sent=sent)
        said = done.stderr.decode(errors="replace")
        if done.returncode == 1:
            raise Refused(said)
        if done.returncode not in (0, 2):
            raise RuntimeError(f"status {done.returncode}: {said}")
        if launch_arguments.write_back(done.stdout, roots) != len(done.stdout):
            raise RuntimeError("the engine gave back more than it was given")
        if done.returncode:
            raise Fault(*said.rstrip("\n").rpartition("\n")[2].split(": ", 1))

    def _file(self, text: str | bytes) -> str:
        path = self.folder / f"{os.getpid()}.ptx"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    def _call(self, *words: str, sent: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = (str(self.program), *words)
        return subprocess.run(command, input=sent, capture_output=True, check=False, timeout=120)


def build_engine(folder: Path) -> Engine:
    """In a folder of the driver's, so that both use what the other has compiled.

    Raises: build.NoCompiler.
    """
    units = [unit for unit in cxx.units([build.HERE], build.TOGETHER) if unit[0] != "driver"]
    units.append(("engine_main", [build.HERE / "engine_main.cpp"]))
    return Engine(build.linked(folder, units, (), "engine"), folder)


def ordered(kernel: Any, arguments: Mapping[str, Any]) -> list[Any]:
    """The arguments of a Kernel of ours, scalars as its signature has them."""
    return [
        arguments[param.name]
        if param.is_pointer
        else np.array([arguments[param.name]], param.dtype.to_numpy())[0]
        for param in kernel.signature.params
    ]
