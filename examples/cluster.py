"""Heat spreads over a plate whose rows are shared out to several devices, of a cluster or of here.

Each device has a band of rows and, above and below it, a copy of its neighbours' nearest row: the
halo. After each step the devices exchange these rows; on devices of one cluster they go from node
to node, and never through this program. Every few steps the plate is copied here: when a device is
lost, it is opened anew, and the steps since then are repeated.

Writes a picture. Ends with an error when the plate differs from what one device alone computes.

    HAL_RAY_ADDRESS=auto python examples/cluster.py --out pictures
    python examples/cluster.py --devices CPU,OPENCL
    HAL_RAY_ADDRESS=auto python examples/cluster.py --kill
"""

from __future__ import annotations

import argparse
import os
import signal
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

import hal_core as hal

ROWS, WIDTH = 240, 320
STEPS, KEPT = 400, 50  # steps; the plate is copied here after so many
FLOW = 0.2  # of the difference between neighbours, in a step; stable up to 0.25
TOLERANCE = 1e-5  # between devices, of temperatures from 0 to 1
TRIES = 3  # for the same steps, when devices are lost

Plate = NDArray[np.float32]


@hal.kernel
def step(
    after: hal.Ptr[hal.float32],
    now: hal.ConstPtr[hal.float32],
    rows: hal.int32,
    first: hal.int32,
    last: hal.int32,
):
    """Let heat flow in the rows of a band, without its halo; the plate's edges stay as they are."""
    x = hal.global_idx(0)
    y = hal.global_idx(1)
    if first <= y < last and 0 < x < WIDTH - 1 and y < rows:
        i = y * WIDTH + x
        around = now[i - 1] + now[i + 1] + now[i - WIDTH] + now[i + WIDTH]
        after[i] = now[i] + FLOW * (around - 4.0 * now[i])


def start() -> Plate:
    """Return a cold plate with a hot ring and a hot edge."""
    y, x = np.mgrid[:ROWS, :WIDTH]
    far = np.hypot(y - ROWS / 2, x - WIDTH / 2)
    plate: Plate = ((far > 60) & (far < 80)).astype(np.float32)
    plate[-1] = 1
    return plate


class Bands:
    """The plate on several devices: two buffers a device, each a band with its halo."""

    def __init__(self, devices: list[hal.Compiled], plate: Plate) -> None:
        count = len(devices)
        cuts = [ROWS * number // count for number in range(count + 1)]
        # The first and the last band have a halo on one side only.
        self.reach = [(max(0, top - 1), min(ROWS, end + 1)) for top, end in pairwise(cuts)]
        self.cuts = cuts
        sizes = [end - top for top, end in self.reach]
        parts = np.concatenate([plate[top:end] for top, end in self.reach])
        self.now, self.after = (
            hal.MultiBuffer(devices, parts.shape, hal.float32, axis=0, sizes=sizes).copyin(parts)
            for _ in range(2)
        )

    def step(self) -> None:
        def vals(shard: Any) -> tuple[int, int, int]:
            return shard.size, 1, shard.size - 1

        def threads(shard: Any) -> tuple[int, int]:
            return WIDTH, shard.size

        hal.launch(step, self.after, self.now, vals=vals, threads=threads, block=(32, 8, 1))
        self.now, self.after = self.after, self.now
        for above, below in pairwise(self.now.bufs):
            below[:WIDTH].copy_from(above[-2 * WIDTH : -WIDTH])
            above[-WIDTH:].copy_from(below[WIDTH : 2 * WIDTH])

    def plate(self) -> Plate:
        """Copy the plate here, without the halos."""
        bands = []
        for shard, (top, _), (first, end) in zip(
            self.now.shards, self.reach, pairwise(self.cuts), strict=True
        ):
            bands.append(shard.buffer.numpy(shard.shape)[first - top : end - top])
        return np.concatenate(bands)


def spread(names: list[str], console: Console, kill: bool = False) -> Plate:
    """Return the plate after all steps. With `kill` the last device's process dies half-way."""
    plate, lost = start(), 0
    with Progress(console=console) as progress:
        task = progress.add_task(" + ".join(names), total=STEPS)
        done = 0
        while done < STEPS:
            devices = [hal.Device[name] for name in names]
            try:
                bands = Bands(devices, plate)
                for number in range(KEPT):
                    if kill and done + number == STEPS // 2 + 7:
                        kill, last = False, cast(Any, devices[-1])
                        os.kill(last.process, signal.SIGKILL)
                    bands.step()
                plate = bands.plate()
            except hal.DeviceFault as fault:
                lost += 1
                if lost == TRIES:
                    raise
                console.print(f"repeating steps from {done}: {fault}", highlight=False)
                close(devices)
            else:
                done += KEPT
                progress.update(task, completed=done)
    return plate


def close(devices: list[hal.Compiled]) -> None:
    """Close devices of which some are lost."""
    for device in devices:
        with suppress(hal.DeviceFault):  # it says once more that it is lost
            device.close()


def save(plate: Plate, path: Path) -> None:
    """Draw the plate from black over red and yellow to white."""
    from PIL import Image

    shades = plate.clip(0, 1) ** 0.5
    colours = np.stack([shades, shades**3, shades**8], -1)
    Image.fromarray((255 * colours).astype(np.uint8)).resize((2 * WIDTH, 2 * ROWS)).save(path)


def cluster_devices() -> list[str]:
    """Return the best device of each of two nodes, or all devices of here without a cluster."""
    try:
        found: dict[Any, str] = {}
        for info in hal.Device.devices("RAY"):
            found.setdefault(info.vendor["node_id"], info.name)
        return list(found.values())[:2]
    except hal.HalError as error:
        Console(stderr=True).print(f"{error} Here are:", highlight=False)
        return hal.Device.get_available_devices()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--devices", help="names with commas between; else a cluster's, or all here"
    )
    parser.add_argument("--kill", action="store_true", help="end a worker of this machine half-way")
    parser.add_argument(
        "--alone", default=hal.Device.DEFAULT, help="the device to compare with: %(default)s"
    )
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture")
    asked = parser.parse_args()
    names = asked.devices.split(",") if asked.devices else cluster_devices()
    console = Console()
    plate = spread(names, console, asked.kill)
    alone = spread([asked.alone], console)
    difference = float(np.abs(plate - alone).max())
    asked.out.mkdir(parents=True, exist_ok=True)
    save(plate, asked.out / "cluster.png")
    console.print(f"{' + '.join(names)} differ from {asked.alone} by {difference:g}")
    if not difference <= TOLERANCE:
        raise SystemExit(f"wrong by {difference}")


if __name__ == "__main__":
    main()
