"""Tools for threads and forked processes."""

from __future__ import annotations

from hal_core.concurrency.ctrl_c import (
    is_of_a_signal,
    log_failure,
    make_calls,
    may_be_ctrl_c,
    raise_if_of_a_signal,
    run_each,
    run_unless_busy,
    suppress,
    unless_of_a_signal,
)
from hal_core.concurrency.fork import (
    OfThisProcess,
    devices,
    do_nothing,
    fork_error,
    fork_safe_lock,
    forkable,
    hold_during_fork,
    never_release,
    never_released,
    refuse_after_fork,
    survives_fork,
)
from hal_core.concurrency.imports import Late, is_importing, refuse_at_exit
from hal_core.concurrency.living import Living
from hal_core.concurrency.single_flight import SingleFlight, flights, fresh_copy
from hal_core.concurrency.threads import (
    Servers,
    Thread,
    poll,
    serve_alone,
    start_server,
    start_thread,
)

__all__ = [
    "Late", "Living", "OfThisProcess", "Servers", "SingleFlight", "Thread", "devices",
    "do_nothing", "flights", "fork_error", "fork_safe_lock", "forkable", "fresh_copy",
    "hold_during_fork", "is_importing", "is_of_a_signal", "log_failure", "make_calls",
    "may_be_ctrl_c", "never_release", "never_released", "poll", "raise_if_of_a_signal",
    "refuse_after_fork", "refuse_at_exit", "run_each", "run_unless_busy", "serve_alone",
    "start_server", "start_thread", "suppress", "survives_fork", "unless_of_a_signal",
]  # fmt: skip
