"""Options of an allocation."""

from __future__ import annotations

from typing import NamedTuple

from hal_core.errors import InvalidArgument, check_class


class BufferSpec(NamedTuple):
    """Options of an allocation. A backend honours each field or refuses it, never ignores it."""

    image: tuple[int, int] | None = None  # (height, width) of a texture
    uncached: bool = False
    cpu_access: bool = False  # device memory the host can map
    host: bool = False  # pinned host memory
    nolru: bool = False  # returned to the device at once when freed
    zero: bool = False  # all zeros, else contents are undefined
    external_ptr: int | None = None  # memory the caller owns and keeps alive


DEFAULT_SPEC = BufferSpec()


def checked_spec(options: BufferSpec | None, operation: str) -> BufferSpec:
    """Return the options; `DEFAULT_SPEC` itself for its equals, so that `is` finds it.

    Raises: InvalidArgument for what is no BufferSpec, and for a field of a wrong kind.
    """
    if options is None or options is DEFAULT_SPEC:
        return DEFAULT_SPEC
    check_class(options, BufferSpec, operation, "Write hal.BufferSpec(zero=True).")
    for field, value in options._asdict().items():
        try:
            known = {value} <= {False, True} or not isinstance(DEFAULT_SPEC._asdict()[field], bool)
        except TypeError:
            known = False
        if not known:
            problem = f"BufferSpec({field}=...) has a value of the wrong kind"
            fix = f"Its default is {getattr(DEFAULT_SPEC, field)}."
            raise InvalidArgument(operation, problem, got=value, fix=fix)
    return DEFAULT_SPEC if options == DEFAULT_SPEC else options
