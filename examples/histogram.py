"""Count each byte: a block counts its share in shared memory, then adds its counts to the buffer.

Threads of a block that count the same byte wait for each other. In shared memory they wait for a
short time, and the buffer gets one addition for each byte and block.

    python examples/histogram.py --count 10000000 --device CPU
"""

import argparse
import sys

import numpy as np
from numpy.typing import NDArray

import hal_core as hal

BINS = 256  # also the threads of a block: one for each bin
ITEMS = 64  # bytes that one thread counts
SHARE = BINS * ITEMS


@hal.kernel(block=(BINS, 1, 1))
def histogram(
    counts: hal.Ptr[hal.uint32], values: hal.ConstPtr[hal.uint8], count: hal.int32
) -> None:
    """Add to `counts`, which are zero before the launch."""
    own = hal.shared(hal.uint32, BINS)
    t = hal.thread_idx(0)
    own[t] = 0
    hal.barrier()
    first = hal.block_idx(0) * SHARE + t
    for k in range(ITEMS):
        i = first + k * BINS
        if i < count:
            hal.atomic_add(own, hal.int32(values[i]), 1)
    hal.barrier()
    if own[t] > 0:
        hal.atomic_add(counts, t, own[t])


def run(device: hal.Compiled, values: NDArray[np.uint8]) -> bool:
    """Print the device's lines; return True if its counts are those of numpy."""
    buffer = hal.Buffer.from_numpy(values, device)
    counts = hal.zeros(BINS, hal.uint32, device)
    blocks = -(-values.size // SHARE)
    program = device.compile(histogram)
    times = []
    for _ in range(5):
        counts.fill(0)
        times.append(program(counts, buffer, vals=(values.size,), grid=blocks, wait=True))
    found = counts.numpy()
    speed = values.nbytes / min(times) / 1e9
    print(f"{device.name}: the commonest byte is {np.argmax(found)}, {np.max(found)} times")
    print(f"    {speed:.1f} GB/s on {device.info.title}")
    return bool(np.array_equal(found, np.bincount(values, minlength=BINS)))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--count", type=int, default=10_000_000, help="how many bytes")
    chosen = parser.parse_args()
    normal = np.random.default_rng(0).normal(128, 40, chosen.count)
    values = normal.clip(0, 255).astype(np.uint8)
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    right = [run(hal.Device[name], values) for name in names]
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
