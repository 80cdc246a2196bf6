"""The kernel language: typed Python functions become IR, and text for every device.

Users import `hal_core`, whose names `kernel`, `Ptr`, `global_idx`, ... are these.
"""
