"""Images of the CUDA driver."""

from images import *  # noqa: F403
