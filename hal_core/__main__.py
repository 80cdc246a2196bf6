"""`python -m hal_core` is the `hal` command."""

from __future__ import annotations

import sys

from hal_core.cli import main

sys.exit(main())
