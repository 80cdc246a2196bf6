"""A wave on a pond with a wall that has two gaps: the wave equation, a launch for each time step.

A step needs the two states before it, and writes the next one over the older of them: each thread
overwrites the only element of it that it reads itself, so two buffers are enough.

    python examples/wave.py --size 400 --steps 600 --device CPU --out wave.png
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import hal_core as hal

COURANT = 0.25  # (speed * time step / distance) ** 2; above 0.5 the scheme blows up
PERIOD = 20.0  # of the source, in steps
TOLERANCE = 1e-4  # of heights up to about 2, against numpy in float64


@hal.kernel
def step(
    old: hal.Ptr[hal.float32],
    now: hal.ConstPtr[hal.float32],
    water: hal.ConstPtr[hal.uint8],
    source: hal.float32,
    size: hal.int32,
) -> None:
    """Write the next state into `old`; the source drives the column at the left."""
    x = hal.global_idx(0)
    y = hal.global_idx(1)
    if 0 < x < size - 1 and 0 < y < size - 1:
        i = y * size + x
        around = now[i - 1] + now[i + 1] + now[i - size] + now[i + size]
        height = 2.0 * now[i] - old[i] + COURANT * (around - 4.0 * now[i])
        height = source if x == 1 else height
        old[i] = height if water[i] > 0 else 0.0


def make_pond(size: int) -> NDArray[np.uint8]:
    """Make a map with 1 for water and 0 for the wall across a third of it."""
    water = np.ones((size, size), "u1")
    wall, gap = size // 3, max(1, size // 40)
    water[:, wall : wall + 2] = 0
    for middle in (size * 2 // 5, size * 3 // 5):
        water[middle - gap : middle + gap, wall : wall + 2] = 1
    return water


def source(number: int) -> float:
    return float(np.sin(2 * np.pi * number / PERIOD))


def reference(water: NDArray[np.uint8], steps: int) -> NDArray[np.float64]:
    """Compute the last state by numpy."""
    old, now = np.zeros(water.shape), np.zeros(water.shape)
    inner = np.s_[1:-1, 1:-1]
    for number in range(steps):
        around = now[1:-1, :-2] + now[1:-1, 2:] + now[:-2, 1:-1] + now[2:, 1:-1]
        new = np.zeros(water.shape)
        new[inner] = 2 * now[inner] - old[inner] + COURANT * (around - 4 * now[inner])
        new[1:-1, 1] = source(number)
        old, now = now, new * water
    return now


def run(
    device: hal.Compiled,
    water: NDArray[np.uint8],
    expected: NDArray[np.float64],
    steps: int,
    out: Path | None = None,
) -> bool:
    """Print the device's lines; return True if its last state is that of numpy."""
    size = len(water)
    pond = hal.Buffer.from_numpy(water, device)
    old, now = (hal.zeros(size * size, hal.float32, device) for _ in range(2))
    program, seconds = device.compile(step), 0.0
    for number in range(steps):
        seconds += program(
            *(old, now, pond), vals=(source(number), size), threads=(size, size), wait=True
        )
        old, now = now, old
    found = now.numpy((size, size))
    error = float(np.max(np.abs(found - expected)))
    speed = steps * size * size / seconds / 1e9
    print(f"{device.name}: after {steps} steps heights are up to {np.max(found):.3f}")
    print(f"    off by {error:.1e}; {speed:.2f} G points/s on {device.info.title}")
    if out:
        save(found, water, out)
    return error <= TOLERANCE


def save(found: NDArray[np.float32], water: NDArray[np.uint8], path: Path) -> None:
    from PIL import Image  # only the picture needs it

    shade = 128 + 127 * np.clip(2 * found, -1, 1)
    Image.fromarray(np.where(water == 0, 0, shade).astype(np.uint8)).save(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--size", type=int, default=400, help="points of a side")
    parser.add_argument("--steps", type=int, default=600, help="time steps")
    parser.add_argument("--out", type=Path, help="file for the picture; needs Pillow")
    chosen = parser.parse_args()
    water = make_pond(chosen.size)
    expected = reference(water, chosen.steps)
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    right = [run(hal.Device[name], water, expected, chosen.steps, chosen.out) for name in names]
    if not names:
        print("No device found. `hal doctor` says why.")
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
