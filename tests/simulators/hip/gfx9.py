"""Runs code objects of gfx906 on the engine alone, without the runtime around it."""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import launch_arguments
from launch_arguments import Fault


class RefusedObject(Exception):
    """The bytes are no code object that the engine can carry out."""


class Engine:
    """One process for all launches: AMD's disassembler takes a while to start."""

    def __init__(self, program):
        self.process = subprocess.Popen(
            [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def facts(self, image):
        return self._ask(f"facts {len(image)} 0", image).decode().splitlines()

    def run(self, image, kernel, arguments, grid=(1, 1, 1), block=(1, 1, 1), *, shared=0, most=0):
        given, roots = launch_arguments.sent(arguments)
        words = map(str, ("run", len(image), len(given), kernel, *grid, *block, shared, most))
        memory = self._ask(" ".join(words), image + given)
        launch_arguments.write_back(memory, roots)

    def _ask(self, line, sent):
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

    def close(self):
        if self.process.stdin and self.process.stdout:
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()
