"""Benchmarks: hal-core's speed compared with floors and with other libraries."""
