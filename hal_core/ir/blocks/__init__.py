"""Kernels in the form that CPUs run: the threads of a block become loops between two barriers."""
