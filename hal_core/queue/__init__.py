"""Queues of work and the events that order them."""

from hal_core.queue.base import OPERATIONS, Keep, Queue, checked
from hal_core.queue.ending import Freed, end_of, finish, reached
from hal_core.queue.event import Event, Failure, PolledEvent, seconds_of
from hal_core.queue.in_capture import captures, capturing, check_no_capture, refuse_in_capture
from hal_core.queue.leases import KnownMemory, Lease
from hal_core.queue.polled import PolledQueue
from hal_core.queue.worker import DirectQueue, WorkerQueue, copy_by_host

__all__ = [
    "OPERATIONS", "DirectQueue", "Event", "Failure", "Freed", "Keep", "KnownMemory", "Lease",
    "PolledEvent", "PolledQueue", "Queue", "WorkerQueue", "captures", "capturing",
    "check_no_capture", "checked", "copy_by_host", "end_of", "finish", "reached",
    "refuse_in_capture", "seconds_of",
]  # fmt: skip
