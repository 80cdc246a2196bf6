"""Write a profile as a file that a viewer reads: a trace for Perfetto, a page of HTML, a pickle.

    process   row              events
    host      thread 1         range "step 3" ---------------------
    CPU       thread 1         alloc   compile
              default queue                    copyin  launch  launch
              queue 2                                    wait->launch

Work that a device has timed stands in the row of its queue, what the host has timed in the row of its
thread. Events that overlap without lying inside of each other, as those of two threads on the CPU
may, go to a second row of the same name.

Source: Trace Event Format, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""  # noqa: E501

from __future__ import annotations

import json
import pickle
import pkgutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hal_core import files
from hal_core.config import trace_suffix
from hal_core.discovery import __version__
from hal_core.errors import InvalidArgument
from hal_core.files import as_path
from hal_core.profiling.events import DEFAULT_QUEUE, ProfileEvent

Place = tuple[int, int]  # of an event: the number of its row, and its place in the row

HOST = "host"
_OF_QUEUES = frozenset({"copyin", "copyout", "copy", "fill", "launch", "wait"})


class Row(NamedTuple):
    """Events that one line of a viewer shows: one after the other, or one inside of another."""

    process: str  # a device's name, or HOST
    name: str  # of the queue or the thread
    events: list[ProfileEvent]  # by their start


def check_path(path: object, operation: str) -> str:
    """Return the path as text. Raises: InvalidArgument for another suffix than a trace has."""
    text = as_path(path, operation)
    try:
        trace_suffix(text)
    except ValueError as error:
        raise InvalidArgument(operation, str(error), got=text, fix="Name it trace.html.") from None
    return text


def save(events: Sequence[ProfileEvent], dropped: int, path: str) -> None:
    """Write a trace to a path that is checked; nothing is left of one that cannot be written whole.

    Raises: InvalidArgument, which is the OSError, too.
    """
    suffix = trace_suffix(path)
    if suffix == ".pickle":
        data = pickle.dumps(tuple(events))
    elif suffix == ".json":
        data = json.dumps(trace(events, dropped)).encode()
    else:
        data = page(events, dropped).encode()
    files.save("profile.save", path, data)


def rows_of(events: Iterable[ProfileEvent]) -> list[Row]:
    """Sort events into rows, those of the host first, then by device; queues follow threads."""
    threads: dict[int, int] = {}
    groups: defaultdict[tuple[str, bool, str], list[ProfileEvent]] = defaultdict(list)
    # Of events that begin together the longest first: the others lie inside of it.
    for event in sorted(events, key=lambda event: (event.start_ns, -event.end_ns)):
        number = threads.setdefault(event.thread, len(threads) + 1)
        queued = event.kind in _OF_QUEUES
        name = (event.queue or DEFAULT_QUEUE) if queued else f"thread {number}"
        groups[event.device or HOST, queued, name].append(event)
    found = []
    for (process, _, name), members in sorted(
        groups.items(), key=lambda item: (item[0][0] != HOST, item[0])
    ):
        lanes: list[tuple[list[int], list[ProfileEvent]]] = []  # ends of open events, and events
        for event in members:
            lane = next((lane for lane in lanes if _fits(lane[0], event)), ([], []))
            if not lane[0] and not lane[1]:
                lanes.append(lane)
            lane[0].append(event.end_ns)
            lane[1].append(event)
        found += [Row(process, name, lane) for _, lane in lanes]
    return found


def _fits(ends: list[int], event: ProfileEvent) -> bool:
    """Close what has ended; return True if the event is beside or inside of what is open."""
    while ends and ends[-1] <= event.start_ns:
        ends.pop()
    return not ends or event.end_ns <= ends[-1]


def arrows_of(rows: Sequence[Row]) -> list[tuple[Place, Place]]:
    """Find what each wait has waited for: the last work of that queue which ended before it."""
    sources: defaultdict[str, list[tuple[int, Place]]] = defaultdict(list)
    for number, row in enumerate(rows):
        for place, event in enumerate(row.events):
            if event.kind in _OF_QUEUES:
                sources[f"{row.process}, {row.name}"].append((event.end_ns, (number, place)))
    found = []
    for number, row in enumerate(rows):
        for place, event in enumerate(row.events):
            if event.kind == "wait":
                before = [one for one in sources[event.name] if one[0] <= event.end_ns]
                found += [(max(before)[1], (number, place))] if before else []
    return found


def memory_of(events: Iterable[ProfileEvent]) -> dict[str, list[tuple[int, int]]]:
    """Return the bytes in use of each device over time, counted from the least of that time."""
    events = sorted(events, key=lambda event: event.end_ns)
    begin = min((event.start_ns for event in events), default=0)
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(lambda: [(begin, 0)])
    for event in events:
        if event.kind in ("alloc", "free"):
            points = found[event.device]
            change = event.nbytes if event.kind == "alloc" else -event.nbytes
            points.append((event.end_ns, points[-1][1] + change))
    least = {device: min(nbytes for _, nbytes in points) for device, points in found.items()}
    return {
        device: [(at, nbytes - least[device]) for at, nbytes in points]
        for device, points in found.items()
    }


def trace(events: Sequence[ProfileEvent], dropped: int) -> dict[str, Any]:
    """Return the trace in the form of Chrome and Perfetto. Units: microseconds, from 0 on."""
    rows, start = rows_of(events), min((event.start_ns for event in events), default=0)
    # From 1 on: Perfetto takes process 0 and thread 0 for the idle task of the kernel.
    processes = {name: at for at, name in enumerate(dict.fromkeys(r.process for r in rows), 1)}
    found: list[dict[str, Any]] = []

    def add(phase: str, name: str, process: int, row: int, **more: Any) -> None:
        found.append(dict(ph=phase, name=name, pid=process, tid=row, **more))

    for name, process in processes.items():
        add("M", "process_name", process, 0, args={"name": name})
        add("M", "process_sort_index", process, 0, args={"sort_index": process})
    for number, row in enumerate(rows, 1):
        process = processes[row.process]
        add("M", "thread_name", process, number, args={"name": row.name})
        add("M", "thread_sort_index", process, number, args={"sort_index": number})
        for event in row.events:
            at, took = _us(event.start_ns - start), _us(event.end_ns - event.start_ns)
            facts = {"nbytes": event.nbytes, "thread": event.thread}
            add("X", event.name, process, number, cat=event.kind, ts=at, dur=took, args=facts)
    for device, points in memory_of(events).items():
        for at_ns, nbytes in points:
            process, at = processes[device], _us(at_ns - start)
            add("C", "memory", process, 0, cat="memory", ts=at, args={"bytes": nbytes})
    for number, arrow in enumerate(arrows_of(rows)):
        at_ns = 0
        for phase, (row_number, place) in zip("sf", arrow, strict=True):
            row = rows[row_number]
            event = row.events[place]
            # A flow is bound to the slice around it, so it begins and ends inside of two slices.
            # The wait may have begun long before the work.
            at_ns = max(at_ns, (event.start_ns + event.end_ns) // 2)
            more: dict[str, Any] = {"ts": _us(at_ns - start), "args": {"place": place}}
            more |= {"bp": "e"} if phase == "f" else {}
            process = processes[row.process]
            add(phase, "wait", process, row_number + 1, cat="wait", id=number, **more)
    other = {"writer": f"hal-core {__version__}", "dropped": dropped}
    return {"traceEvents": found, "displayTimeUnit": "ns", "otherData": other}


def _us(nanoseconds: int) -> float:
    return nanoseconds / 1000


def page(events: Sequence[ProfileEvent], dropped: int) -> str:
    """Return a page that draws the trace of `trace` without a network."""
    template = (pkgutil.get_data(__package__, "viewer.html") or b"").decode()
    # A "<" in the name of a range would end the script.
    data = json.dumps(trace(events, dropped)).replace("<", "\\u003c")
    return template.replace('"DATA"', data)
