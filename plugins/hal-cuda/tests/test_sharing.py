"""Memory shared with libraries that work on streams of their own."""

from __future__ import annotations

from shared_memory import *  # noqa: F403
