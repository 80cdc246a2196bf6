"""The device layer of drivers with streams, events and device addresses, such as CUDA and HIP.

A backend gives the driver's functions (`driver.StreamDriver`) and subclasses of `device`,
`allocator` and `program`, which know no vendor. docs/writing-a-backend.md has an example.
"""
