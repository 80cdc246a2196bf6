"""Rewrite kernels for CPUs: between two barriers, the threads of a block become a loop."""
