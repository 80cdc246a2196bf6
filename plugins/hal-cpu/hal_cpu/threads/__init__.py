"""Threads that run kernels: workers that share large launches, and stacks that are large enough."""
