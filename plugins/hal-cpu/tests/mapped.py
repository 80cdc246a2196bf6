"""Memory of this process, as the system shows it."""

from collections import namedtuple

from hal_cpu import driver

Mapping = namedtuple("Mapping", "low high rights")  # a range of addresses; rights as `r-xp`


def mappings():
    """Return the ranges of addresses that the process has."""
    found = []
    with open("/proc/self/maps", encoding="utf-8") as file:
        for line in file:
            span, rights, *_ = line.split()
            low, high = (int(part, 16) for part in span.split("-"))
            found.append(Mapping(low, high, rights))
    return found


def rights_at(address):
    """Return the rights of an address, or "" where nothing is mapped."""
    return next((one.rights for one in mappings() if one.low <= address < one.high), "")


def resident():
    """Return the bytes of this process that are in memory."""
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * driver.PAGE
