"""The device under HAL_CHECK=1.

Nothing of this is imported, and nothing on any path asks for it, unless the device was opened so.
"""
