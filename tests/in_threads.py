"""Run works in threads of their own, which begin together; wait for what other threads do."""

import threading
import time


def outcomes(*works, seconds=60):
    """Return what each work returns or raises. Raises: AssertionError where one does not end."""
    begin, found = threading.Barrier(len(works)), [None] * len(works)

    def run(number, work):
        begin.wait(seconds)
        try:
            found[number] = work()
        except BaseException as error:
            found[number] = error.with_traceback(None)

    threads = [threading.Thread(target=run, args=one, daemon=True) for one in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
        if thread.is_alive():
            raise AssertionError("a thread does not end: dead-lock?")
    return found


def results(*works, seconds=60):
    """Return what each work returns; raise the first error of one."""
    found = outcomes(*works, seconds=seconds)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found


def wait_until(holds):
    """Wait, for as long as a busy machine may take. Raises: TimeoutError."""
    end = time.monotonic() + 30
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.001)
