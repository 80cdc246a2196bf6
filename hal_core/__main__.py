"""The `hal` command, which is `python -m hal_core` too."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run one command and return the exit code, as `hal_core.cli.main` does.

    Ctrl-C while the command's modules are imported ends the process by SIGINT, as it does later: a
    KeyboardInterrupt would print a traceback there, and numpy makes an ImportError of it.
    """
    hears_ctrl_c = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if hears_ctrl_c:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from hal_core import cli

    cli.load(sys.argv[1:2])
    if hears_ctrl_c:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
