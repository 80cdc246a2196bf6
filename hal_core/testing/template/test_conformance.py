"""What every backend of hal-core must keep. The device is named in pyproject.toml.

A fixture of the kit that is defined here, `hal_external` for example, takes the place of its own.
"""

from hal_core.testing.conformance import *  # noqa: F403
