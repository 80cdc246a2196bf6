"""Names of devices: `FAMILY` or `FAMILY:INDEX`. Text only; nothing is opened or imported."""

from __future__ import annotations

from hal_core.errors import InvalidArgument

RESERVED = ("GPU", "DEFAULT")  # requests, never a backend's name
# Families that this project publishes, as hal-cpu, hal-cuda, ...; errors suggest them.
KNOWN = ("CPU", "CUDA", "HIP", "METAL", "OPENCL", "RAY")
ELSEWHERE = ("RAY",)  # hardware of other machines


def parse(name: object, operation: str = "device name") -> tuple[str, int]:
    """Return family and index of a name. Raises: InvalidArgument when it is malformed."""
    family, colon, index = name.partition(":") if isinstance(name, str) else ("", "", "")
    family = family.upper() if family.isascii() else ""
    numbered = index.isascii() and index.isdigit() and len(index) < 7 and str(int(index)) == index
    if (family == "GPU" or is_family(family)) and (numbered or not colon):
        return family, int(index or 0)
    problem = "reserved" if family in RESERVED else "a device is FAMILY or FAMILY:INDEX"
    fix = 'Write "CPU", "CUDA:1" or "GPU"; None is the default device.'
    raise InvalidArgument(operation, problem, got=name, fix=fix)


def join(family: str, index: int) -> str:
    """Return the canonical name of a device: `CUDA`, `CUDA:1`."""
    return f"{family}:{index}" if index else family


def is_family(name: str) -> bool:
    """Return True for a name that a backend may serve: an identifier, not reserved."""
    plain = name.isascii() and name.isidentifier() and name[0] != "_"
    return plain and name.upper() not in RESERVED
