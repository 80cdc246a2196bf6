"""A forked process that plays scenes, each with Ctrl-C at one point, and says what came of them."""

import atexit
import faulthandler
import gc
import importlib
import os
import pkgutil
import signal
import threading
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from ctrl_c import Moment, Place, play
from interrupts.scenes import SCENES, scene

import hal_core as hal

FIRST, LATER, MOMENT = "first", "later", "moment"  # kinds of points
_WARM_PLAYS = 2  # what is made at the first use is there from then on


class Point(NamedTuple):
    """A point for Ctrl-C: the nth place of hal's code in a new process or in one that has
    played the scene before, or so many microseconds after the work has begun."""

    device: str
    scene: str
    kind: str
    number: int

    def __str__(self):
        return f"{self.device} --only {self.scene} --at {self.kind}:{self.number}"


class Count(NamedTuple):
    """The size of a scene on a device: places of each kind, bytecodes, and how long it takes."""

    first: int
    later: int
    bytecodes: int
    microseconds: int


def preload():
    """Import all of hal and its backends, and open no device; return their folders.

    Ctrl-C then comes in the work of a first use, and not in an import.
    """
    packages = [hal]
    for name in ("hal_cpu", "hal_opencl"):
        try:
            packages.append(importlib.import_module(name))
        except ImportError:
            continue
    for package in packages:
        _import_all(package)
    homes = (Path(str(package.__file__)).parent for package in packages)
    return (*(f"{home}{os.sep}" for home in homes), threading.__file__)


def _import_all(package):
    skipped = (".testing", ".cli", "__main__")
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not any(part in found.name for part in skipped):
            try:
                importlib.import_module(found.name)
            except Exception:  # for another system, or a library that is not here
                continue


def enter(folder, log, seconds):
    """Give the process its own caches and output; end it, with all stacks, when a point hangs."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ |= {"HAL_CACHE_DIR": f"{folder}/hal", "POCL_CACHE_DIR": f"{folder}/pocl"}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.enable(2)
    faulthandler.dump_traceback_later(seconds, exit=True, file=2)
    gc.freeze()


class Title(NamedTuple):
    """The text that a device prints about itself."""

    text: str


def title(device):
    """Open a device. Raises: UnknownDevice, DeviceUnavailable."""
    return Title(hal.Device[device].info.title)


def count(device, name, files):
    """Play a scene without Ctrl-C. Raises: DeviceUnavailable, UnknownDevice."""
    first = play(scene(SCENES[name], device), Place(-1, files))
    for _ in range(_WARM_PLAYS):
        later = play(scene(SCENES[name], device), Place(-1, files))
    again = scene(SCENES[name], device)
    start = time.perf_counter_ns()
    again.work()
    passed = time.perf_counter_ns() - start
    return Count(first.seen, later.seen, first.bytecodes, passed // 1000)


def play_all(points, files, seconds, out):
    """Play the points, which share a scene, and send for each True if Ctrl-C came, or the fault."""
    setting, places = SCENES[points[0].scene], 1 << 62
    if points[0].kind != FIRST:
        for _ in range(_WARM_PLAYS):
            places = play(scene(setting, points[0].device), Place(-1, files)).seen
    for point in points:
        faulthandler.dump_traceback_later(seconds, exit=True, file=2)
        moment = point.kind == MOMENT
        number = point.number  # of a place: who counts none before draws any
        press = Moment(number * 1e-6) if moment else Place(number % places, files)
        try:
            out.send(play(scene(setting, point.device), press).struck)
        except BaseException as error:
            frames = traceback.format_tb(error.__traceback__)[-2:]
            notes = getattr(error, "__notes__", [f"Ctrl-C of the work, {press.where}"])
            said = [f"{type(error).__name__}: {error}", *notes, *frames]
            out.send("\n".join(part.rstrip() for part in said))
            return  # what it left would show in the next ones


def leave(seconds):
    """End as the interpreter does: threads, then what is registered, such as closing devices."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=2)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    os._exit(0)
