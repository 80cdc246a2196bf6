"""Metal in software, as `Metal`, `Foundation` and `objc` of this process; or why it cannot run."""

import os
import sys
from pathlib import Path

SYSTEM = os.environ.get("HAL_TEST_METAL") == "system"  # the Mac's own Metal is tested
FOLDER = Path(__file__).resolve().parents[3] / "tests" / "simulators" / "metal" / "pyobjc"
WHY = ""
if not SYSTEM:
    sys.path.insert(0, str(FOLDER))
    import pyobjc_table

    try:
        pyobjc_table.table()
        import Metal

        if not Metal.msl.compiler():
            WHY = "Metal in software needs clang on PATH, or ziglang"
    except pyobjc_table.NoWheel as error:
        WHY = f"Metal in software cannot run: {error}"
