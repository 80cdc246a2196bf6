"""Run where the broken distributions are installed: the CPU works, and doctor names each."""

import json
import subprocess
import sys
from pathlib import Path

from make import BROKEN

import hal_core as hal


def damage():
    """What no build backend would write: another tool's entry points, cut by a full disk."""
    from importlib.metadata import distribution

    file = Path(str(distribution("hal-damaged").locate_file("hal_damaged-1.0.dist-info")))
    file /= "entry_points.txt"
    file.write_bytes(b"[hal.devices]\nDAMAG\xc9 -> hal_dam")
    return file


def doctor():
    command = [sys.executable, "-m", "hal_core", "doctor", "--json", "--time-limit", "10"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    expect(done.stderr == "", f"hal doctor wrote to stderr: {done.stderr}")
    return done.returncode, {row["name"]: row for row in json.loads(done.stdout)}


def expect(truth, otherwise):
    if not truth:
        raise SystemExit(otherwise)


def main():
    damaged = damage()
    x = hal.zeros(4, hal.int32, hal.Device["CPU"]).fill(7)
    expect(x.numpy().tolist() == [7] * 4, "the CPU does not work")
    code, found = doctor()
    expect(code == 1, f"hal doctor ends with {code}")
    expect(found["CPU"]["state"] == "ready", f"the CPU is {found['CPU']}")
    for name, (entry, _, state, says) in BROKEN.items():
        key = str(damaged) if name == "hal-damaged" else entry
        row = found.get(key)
        expect(row is not None, f"hal doctor does not name {name}: {sorted(found)}")
        told = row["state"] == state and says in row["why"]
        expect(told, f"hal doctor says of {name}: {row}")
        expect(name in row["origin"].replace("_", "-"), f"{name} is not named: {row}")
        print(f"{name}: {row['state']}, {row['why'][:100]}")
        if name in ("hal-raises", "hal-exits", "hal-old", "hal-number", "hal-twin-a"):
            refused(entry, name)


def refused(family, name):
    try:
        hal.Device[family]
    except hal.PluginError as error:
        expect(name in str(error), f"the error does not name {name}: {error}")
    else:
        raise SystemExit(f"{family} was opened")


if __name__ == "__main__":
    main()
