"""Threads as loops: a kernel cut at its barriers, so that a CPU runs a block's threads in turn."""
