"""The long run: `python tests/fuzz --kernels 10000 --targets llvm,gcc,clang,opencl,ptx,hip`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from campaign import Missing, small, verdicts
from device import TARGETS
from harness import DISCARDED, OK, UNSUPPORTED, WRONG
from rich.console import Console
from rich.progress import Progress

console = Console(soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--kernels", type=int, default=200, help="on each target")
    parser.add_argument("--first", type=int, default=0, help="number of the first kernel")
    every = ",".join(TARGETS)
    parser.add_argument("--targets", default=every, help=f"of {every}; by default all")
    parser.add_argument("--reduce", type=int, default=3, help="findings to print, made small")
    options = parser.parse_args()
    names = options.targets.split(",")
    unknown = set(names) - set(TARGETS)
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    found = [_run(name, options) for name in names]
    return 1 if any(found) else 0


def _run(name: str, options: argparse.Namespace) -> int:
    """How many kernels came out wrong."""
    kinds: Counter[str] = Counter()
    why: Counter[str] = Counter()
    wrong: list[int] = []
    start = time.monotonic()
    try:
        with Progress(console=console) as progress:
            task = progress.add_task(name, total=options.kernels)
            for seed, verdict in verdicts(name, options.first, options.kernels):
                kinds[verdict.kind] += 1
                progress.advance(task)
                if verdict.kind == WRONG:
                    wrong.append(seed)
                    console.print(f"{name} {seed}: {verdict.why[:300]}", markup=False)
                elif verdict.kind != OK:
                    why[verdict.why.splitlines()[0][:100]] += 1
    except Missing as missing:
        console.print(f"{name}: not on this machine: {missing}", markup=False)
        return 0
    speed = options.kernels / (time.monotonic() - start)
    console.print(
        f"{name}: {kinds[OK] + kinds[WRONG]} kernels run, {kinds[DISCARDED]} discarded, "
        f"{kinds[UNSUPPORTED]} unsupported, {kinds[WRONG]} mismatches; {speed:.1f} a second",
        markup=False,
    )
    for text, count in why.most_common(5):
        console.print(f"    {count} x {text}", markup=False)
    for seed in wrong[: options.reduce]:
        console.print(f"\n# {name}, seed {seed}\n{small(name, seed)}", markup=False)
    return kinds[WRONG]


if __name__ == "__main__":
    sys.exit(main())
