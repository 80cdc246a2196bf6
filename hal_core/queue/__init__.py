"""Queues of work and the events that order them."""

from hal_core.queue.base import (
    OPERATIONS,
    Freed,
    Keep,
    Queue,
    captures,
    capturing,
    check_no_capture,
    checked,
    end_of,
    finish,
    reached,
    refuse_in_capture,
)
from hal_core.queue.event import Event, Failure, PolledEvent, seconds_of
from hal_core.queue.worker import DirectQueue, WorkerQueue

__all__ = [
    "OPERATIONS",
    "DirectQueue",
    "Event",
    "Failure",
    "Freed",
    "Keep",
    "PolledEvent",
    "Queue",
    "WorkerQueue",
    "captures",
    "capturing",
    "check_no_capture",
    "checked",
    "end_of",
    "finish",
    "reached",
    "refuse_in_capture",
    "seconds_of",
]
