"""Stars that attract each other: every body meets every other one, in tiles of shared memory.

A thread adds up the pull on its own body. The threads of a block load the others together, a tile
at a time, so each is read from device memory once for a block instead of once for a thread.

    python examples/nbody.py --count 4096 --steps 20 --device CPU
"""

import argparse
import sys

import numpy as np
from numpy.typing import NDArray

import hal_core as hal

BLOCK = 128
SOFT = 0.05  # distance below which the pull is weaker, so that close bodies do not fly apart
STEP = 0.002  # of time
TOLERANCE = 1e-4  # of accelerations relative to the largest, and of the energy after all steps

Numbers = hal.Ptr[hal.float32]  # a body is x, y, z and its mass; a speed is x, y, z and nothing
Input = hal.ConstPtr[hal.float32]


@hal.func
def pull(
    dx: hal.float32, dy: hal.float32, dz: hal.float32, mass: hal.float32
) -> tuple[hal.float32, hal.float32, hal.float32]:
    """Return the acceleration towards a mass at this distance; the constant of gravity is 1."""
    inverse = hal.rsqrt(dx * dx + dy * dy + dz * dz + SOFT * SOFT)
    strength = mass * inverse * inverse * inverse
    return dx * strength, dy * strength, dz * strength


@hal.kernel(block=BLOCK)
def push(speeds: Numbers, bodies: Input, step: hal.float32, count: hal.int32) -> None:
    """Change the speed of each body by the pull of all bodies during a time step."""
    tile = hal.shared(hal.float32, (4, BLOCK))
    i = hal.global_idx(0)
    t = hal.thread_idx(0)
    own = min(i, count - 1)  # the surplus threads help to load tiles
    x = bodies[4 * own]
    y = bodies[4 * own + 1]
    z = bodies[4 * own + 2]
    ax = ay = az = hal.float32(0)
    for first in range(0, count, BLOCK):
        other = first + t
        for part in hal.unroll(4):
            tile[part, t] = bodies[4 * other + part] if other < count else 0.0  # no mass: no pull
        hal.barrier()
        for k in range(BLOCK):
            px, py, pz = pull(tile[0, k] - x, tile[1, k] - y, tile[2, k] - z, tile[3, k])
            ax += px
            ay += py
            az += pz
        hal.barrier()
    if i < count:
        speeds[4 * i] += step * ax
        speeds[4 * i + 1] += step * ay
        speeds[4 * i + 2] += step * az


@hal.kernel
def drift(bodies: Numbers, speeds: Input, step: hal.float32, count: hal.int32) -> None:
    """Move each body by its speed."""
    i = hal.global_idx(0)
    if i < count:
        for k in hal.unroll(3):
            bodies[4 * i + k] += step * speeds[4 * i + k]


def make_stars(count: int) -> NDArray[np.float32]:
    """Make a ball of equal stars, whose masses add up to 1."""
    random = np.random.default_rng(0)
    stars = random.standard_normal((count, 4), dtype=np.float32)
    stars[:, :3] *= random.random((count, 1)) ** (1 / 3) / np.linalg.norm(
        stars[:, :3], axis=1, keepdims=True
    )
    stars[:, 3] = 1 / count
    return stars


def forces(stars: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
    """Return the accelerations and the potential energy, by numpy in float64."""
    places, masses = stars[:, :3].astype("f8"), stars[:, 3].astype("f8")
    pulls, potential = np.zeros_like(places), 0.0
    for place, mass, own in zip(places, masses, pulls, strict=True):
        apart = places - place
        distance = np.sqrt((apart**2).sum(axis=1) + SOFT**2)
        own[:] = (apart * (masses / distance**3)[:, None]).sum(axis=0)
        potential -= 0.5 * mass * (masses / distance).sum()
    return pulls, potential


def run(device: hal.Compiled, stars: NDArray[np.float32], steps: int) -> bool:
    """Print the device's lines; return True if its pulls are numpy's and the energy is kept."""
    count = len(stars)
    bodies = hal.Buffer.from_numpy(stars, device)
    speeds = hal.zeros(4 * count, hal.float32, device)
    to_push, to_drift = device.compile(push), device.compile(drift)
    to_push(speeds, bodies, vals=(1.0, count), threads=count)
    pulls, start = forces(stars)
    error = float(np.max(np.abs(speeds.numpy((count, 4))[:, :3] - pulls)) / np.max(np.abs(pulls)))
    speeds.fill(0)
    seconds = to_push(speeds, bodies, vals=(STEP / 2, count), threads=count, wait=True)
    for _ in range(steps):  # leapfrog: speeds are half a step ahead of the places
        to_drift(bodies, speeds, vals=(STEP, count), threads=count)
        seconds += to_push(speeds, bodies, vals=(STEP, count), threads=count, wait=True)
    to_push(speeds, bodies, vals=(-STEP / 2, count), threads=count)
    moved, squares = bodies.numpy((count, 4)), speeds.numpy((count, 4))[:, :3].astype("f8") ** 2
    kinetic = 0.5 * float((squares.sum(axis=1) * moved[:, 3]).sum())
    energy = kinetic + forces(moved)[1]
    speed = (steps + 1) * count * count / seconds / 1e9
    print(f"{device.name}: energy {start:.6f} at rest, {energy:.6f} after {steps} steps")
    print(f"    pulls off by {error:.1e}; {speed:.2f} G pairs/s on {device.info.title}")
    return error <= TOLERANCE and abs(energy / start - 1) <= TOLERANCE and kinetic > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--count", type=int, default=4096, help="how many bodies")
    parser.add_argument("--steps", type=int, default=20, help="time steps")
    chosen = parser.parse_args()
    stars = make_stars(chosen.count)
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    right = [run(hal.Device[name], stars, chosen.steps) for name in names]
    if not names:
        print("No device found. `hal doctor` says why.")
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
