"""F1: remote work on this process's clock, and the way there as a row of its own."""

import json
from time import perf_counter_ns

import hal_core as hal

SLACK_NS = 2_000_000


@hal.kernel
def count(y: hal.Ptr[hal.int32], n: hal.int32, turns: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        total = y[i]
        for turn in range(turns):
            total += turn ^ total
        y[i] = total


def test_F1_work_comes_after_its_message_and_before_the_wait(device, tmp_path):
    program, y = device.compile(count), hal.zeros(1000, hal.int32, device)
    program(y, vals=(1000, 10), threads=1000, wait=True)
    with hal.profile() as profile:
        begin = perf_counter_ns()
        for _ in range(3):
            program(y, vals=(1000, 2000), threads=1000)
        device.synchronize()
        end = perf_counter_ns()
    launches = [one for one in profile.events if one.kind == "launch"]
    ways = [one for one in profile.events if one.kind == "message"]
    assert len(launches) == 3 and {one.device for one in launches} == {device.name}
    assert ways and {one.device for one in ways} == {"way to head"}
    for one in launches:
        assert begin - SLACK_NS <= one.start_ns < one.end_ns <= end + SLACK_NS
        assert min(way.end_ns for way in ways) - SLACK_NS <= one.start_ns
    assert all("its end within" in way.name and way.end_ns >= way.start_ns for way in ways)
    profile.save(tmp_path / "trace.json")
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = {row["args"]["name"] for row in rows if row["name"] == "process_name"}
    assert any("way to head" in name for name in named) and any(device.name in n for n in named)


def test_F1_the_error_of_the_clock_is_what_a_question_takes(device):
    clock = device._make_clock()
    try:
        assert 0 < clock.error_ns < 50_000_000
    finally:
        clock.stop()
