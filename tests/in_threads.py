"""Run works in threads of their own, which begin together."""

import threading


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
