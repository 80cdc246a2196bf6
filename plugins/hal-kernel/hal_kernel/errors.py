"""Errors of the kernel language: of its front end, its IR, and of kernels that are watched."""

from __future__ import annotations

from hal_core.errors import HalError


class KernelSyntaxError(HalError, SyntaxError):
    """A ``@hal.kernel`` function contains something that the kernel language lacks.

    Python shows it like any syntax error: file, line, the source line with the place underlined,
    then what to write instead. Lines and columns count in the user's file; columns begin at 1, and
    `end_offset` is the column after the last. A place over several lines ends with its first.
    """

    def __init__(
        self, problem: str, *, fix: str | None = None, filename: str | None = None,
        lineno: int | None = None, offset: int | None = None, end_offset: int | None = None,
        text: str | None = None, kernel: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(f"kernel {kernel}" if kernel else "kernel", problem, fix=fix)
        self.kernel = kernel
        self.msg = str(self.args[0])
        self.filename, self.lineno, self.offset, self.text = filename, lineno, offset, text
        self.end_lineno, self.end_offset = lineno, end_offset
        if filename is not None:
            from traceback import format_exception_only

            *place, _ = format_exception_only(self)  # the last line is the message
            self.args = (f"{self.msg}\n{''.join(place)}".rstrip(),)

    def __reduce__(self) -> tuple[object, ...]:
        # Python stores these attributes of a syntax error outside of __dict__.
        names = ("msg", "filename", "lineno", "offset", "end_lineno", "end_offset", "text")
        place = {name: getattr(self, name) for name in names}
        make, given, *_ = super().__reduce__()
        return make, given, self.__dict__ | place


class InvalidKernel(HalError, ValueError):
    """Kernel IR breaks a rule; the message names the node and the rule."""


class KernelFault(HalError, RuntimeError):
    """A kernel did what its language leaves undefined, in the interpreter or in checked mode: a
    race, a barrier that not all threads reach, a read of shared memory that no thread has written,
    a loop without end."""


class OutOfBounds(KernelFault, IndexError):
    """A kernel used an index that is negative or beyond the end."""


class FailedAssert(KernelFault, AssertionError):
    """An ``assert`` of a kernel does not hold."""
