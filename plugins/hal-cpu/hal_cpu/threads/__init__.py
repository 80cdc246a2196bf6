"""Threads that run kernels, and their stacks."""
