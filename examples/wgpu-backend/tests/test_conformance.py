"""What every backend of hal-core must keep. The device is named in pyproject.toml."""

from hal_testing.conformance import *  # noqa: F403
