"""Heat flows along a rod: a thousand small steps, launched one by one and replayed as a graph.

Prints both times for each device, and writes a picture: the rod from left to right, time downwards.
Ends with an error when a device's result differs from numpy's.

    python examples/heat.py --out pictures
    python examples/heat.py --device CPU
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import hal_core as hal

CELLS = 2048
STEPS = 1000
ROWS = 100  # of the picture: the rod after every tenth step
FLOW = 0.25  # of the difference between neighbours, in a step; stable up to 0.5
TOLERANCE = 1e-4  # of temperatures from 0 to 1, against numpy in float64
ROUNDS = 5  # the best time of these


@hal.kernel
def step(after: hal.Ptr[hal.float32], now: hal.ConstPtr[hal.float32], n: hal.int32):
    """Let heat flow between neighbours; both ends keep their temperature."""
    i = hal.global_idx(0)
    if 0 < i < n - 1:
        after[i] = now[i] + FLOW * (now[i - 1] - 2.0 * now[i] + now[i + 1])


def start() -> NDArray[np.float32]:
    """Return a cold rod with three hot places."""
    rod = np.zeros(CELLS, np.float32)
    for place, width in ((0.2, 12), (0.5, 40), (0.85, 4)):
        middle = int(place * CELLS)
        rod[middle - width : middle + width] = 1
    return rod


def expected() -> NDArray[np.float64]:
    now = start().astype(np.float64)
    for _ in range(STEPS):
        now[1:-1] += FLOW * (now[:-2] - 2 * now[1:-1] + now[2:])
    return now


class Rod:
    """The rod on one device, and its picture."""

    def __init__(self, device: hal.Compiled) -> None:
        self.device, self.program = device, device.compile(step)
        self.a, self.b = (hal.Buffer.from_numpy(start(), device) for _ in range(2))
        self.history = hal.zeros(ROWS * CELLS, hal.float32, device)
        self.rows = [self.history[row * CELLS : (row + 1) * CELLS] for row in range(ROWS)]
        with device.capture() as self.graph:
            self.steps()

    def reset(self) -> None:
        self.a.copyin(start())
        self.b.copyin(start())
        self.device.synchronize()

    def steps(self) -> None:
        for number in range(STEPS // 2):
            self.program(self.b, self.a, vals=(CELLS,), threads=CELLS)
            self.program(self.a, self.b, vals=(CELLS,), threads=CELLS)
            if 2 * number % (STEPS // ROWS) == 0:
                self.rows[2 * number // (STEPS // ROWS)].copy_from(self.a)

    def seconds(self, work: Callable[[], object]) -> float:
        """Return the best time of the work and the wait for it."""
        best = float("inf")
        for _ in range(ROUNDS):
            self.reset()
            begin = time.perf_counter()
            work()
            self.device.synchronize()
            best = min(best, time.perf_counter() - begin)
        error = np.max(np.abs(self.a.numpy() - expected()))
        if error > TOLERANCE:
            raise SystemExit(f"{self.device.name} is wrong by {error}")
        return best

    def save(self, path: Path) -> None:
        shades = self.history.numpy((ROWS, CELLS)).clip(0, 1) ** 0.5
        colours = np.stack([shades, shades**3, shades**8], -1)  # black, red, yellow, white
        picture = Image.fromarray((255 * colours).astype(np.uint8))
        picture.resize((1024, 4 * ROWS)).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="only this one; else every device of the machine")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the pictures")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    names = [asked.device] if asked.device else hal.Device.get_available_devices()
    print(f"{STEPS} steps of {CELLS} cells")
    for name in names:
        if name.partition(":")[0] == "PYTHON" and not asked.device:
            continue  # it interprets, and would take minutes
        rod = Rod(hal.Device[name])
        eager, replayed = rod.seconds(rod.steps), rod.seconds(rod.graph.replay)
        picture = asked.out / f"heat-{name.replace(':', '-')}.png"
        rod.save(picture)
        times = f"eager {1e3 * eager:7.2f} ms   replayed {1e3 * replayed:7.2f} ms"
        print(f"{name:10} {times}   {eager / replayed:.1f} times as fast")
        print(f"    {picture}")


if __name__ == "__main__":
    main()
