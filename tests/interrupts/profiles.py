"""Profiles: begun, ended, inside of each other, of the process, and saved."""

import json
from collections import Counter

from ctrl_c import Scene, expect
from interrupts.kernels import assert_adds, made
from interrupts.memory import NewFile

import hal_core as hal
from hal_core.profiling import events


def opened(device):
    program, x = device.compile(made()), hal.zeros(64, hal.int32, device)

    def work():
        with hal.profile() as outer:
            x.fill(1)
            with hal.profile(), hal.profile_range("inner"):
                program(x, x, vals=(64,), threads=64)
        len(outer.events)

    def check(heard):
        assert_profiles(program, x)

    return Scene(work, check)


def of_the_process(device):
    program, x = device.compile(made()), hal.zeros(64, hal.int32, device)

    def work():
        hal.start_profile()
        x.fill(1)
        hal.finalize_profile()

    def check(heard):
        hal.finalize_profile()
        assert_profiles(program, x)
        hal.start_profile()
        x.fill(1)
        expect(Counter(one.kind for one in hal.finalize_profile())["fill"] == 1, "a wrong profile")

    return Scene(work, check)


def of_a_queue(device):
    program, x = device.compile(made()), hal.zeros(64, hal.int32, device)
    queue = device.queue()

    def work():
        with hal.profile():
            x.fill(1, queue=queue)
            program(x, x, vals=(64,), threads=64, queue=queue)

    def check(heard):
        assert_profiles(program, x)
        with hal.profile() as after:
            x.fill(1, queue=queue).wait()
        expect(Counter(one.kind for one in after.events)["fill"] == 1, "a wrong profile")
        queue.close()

    return Scene(work, check)


def saved(device):
    file = NewFile("trace.json")
    path = file.path
    program, x = device.compile(made()), hal.zeros(64, hal.int32, device)
    with hal.profile() as profile:
        x.fill(1)

    def work():
        profile.save(path)
        profile.save(path)

    def check(heard):
        if path.exists():
            json.loads(path.read_text("utf-8"))
        profile.save(path)
        expect("fill" in path.read_text("utf-8"), "the file after it is wrong")
        file.check()
        assert_profiles(program, x)

    return Scene(work, check)


def assert_profiles(program, x):
    """No profile is open, and a new one has the work of its block, once."""
    expect(not events.open_profiles, "a profile stays open")
    expect("_before_profile" not in vars(program), "the program is still recorded")
    expect("_before_profile" not in vars(program.device.allocator), "memory is still recorded")
    with hal.profile() as profile:
        x.fill(1)
        program(x, x, vals=(64,), threads=64)
    kinds = Counter(one.kind for one in profile.events)
    expect((kinds["fill"], kinds["launch"]) == (1, 1), f"the profile after it has {dict(kinds)}")
    assert_adds(program)


SCENES = (opened, of_the_process, of_a_queue, saved)
