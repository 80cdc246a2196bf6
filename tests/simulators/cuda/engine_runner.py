"""Runs PTX on the engine alone, without the driver around it."""

import os
import subprocess

import build
import cxx
import launch_arguments
import numpy as np
from launch_arguments import Fault

SCHEDULES = ("run-to-barrier", "lockstep")


class Refused(Exception):
    """The text is no PTX; with the log."""


class Engine:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def facts(self, text):
        done = self._call("facts", self._file(text))
        if done.returncode:
            raise Refused(done.stderr.decode())
        return done.stdout.decode().splitlines()

    def run(
        self, text, kernel, arguments, grid=(1, 1, 1), block=(1, 1, 1), *, shared=0,
        schedule=SCHEDULES[0], most=0,
    ):  # fmt: skip
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

    def _file(self, text):
        path = self.folder / f"{os.getpid()}.ptx"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    def _call(self, *words, sent=b""):
        command = (str(self.program), *words)
        return subprocess.run(command, input=sent, capture_output=True, check=False, timeout=120)


def build_engine(folder):
    """In a folder of the driver's, so that both use what the other has compiled.

    Raises: build.NoCompiler.
    """
    units = [unit for unit in cxx.units([build.HERE], build.TOGETHER) if unit[0] != "driver"]
    units.append(("engine_main", [build.HERE / "engine_main.cpp"]))
    return Engine(build.linked(folder, units, (), "engine"), folder)


def ordered(kernel, arguments):
    """The arguments of a Kernel of ours, scalars as its signature has them."""
    return [
        arguments[param.name]
        if param.is_pointer
        else np.array([arguments[param.name]], param.dtype.to_numpy())[0]
        for param in kernel.signature.params
    ]
