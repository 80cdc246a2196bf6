"""Random sequences of launches, copies and fills: eager, in queues, captured, replayed (G6).

python tests/fuzz/graphs.py CPU --seconds 60
"""

from __future__ import annotations

import argparse
import time

import hal_core as hal
from hal_testing.conformance.test_graph import check_sequence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=600.0, help="at most this long")
    asked = parser.parse_args()
    device, begin, done = hal.Device[asked.device], time.monotonic(), 0
    for seed in range(asked.first, asked.first + asked.count):
        if time.monotonic() - begin > asked.seconds:
            break
        check_sequence(device, seed)
        done += 1
    print(f"{device.name}: {done} sequences agree, in {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
