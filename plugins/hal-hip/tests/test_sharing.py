"""Memory shared with libraries that work on streams of their own."""

from shared_memory import *  # noqa: F403
