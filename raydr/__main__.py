"""Entry point of the ``raydr`` command and of ``python -m raydr``: no traceback after Ctrl-C.

Importing the command takes 0.2 s, and a Ctrl-C in that time would print a traceback. So this module sets signal
handlers before it imports anything large. While Python itself starts, raydr cannot handle signals.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The same as in :mod:`raydr.signals`, which is not imported here because a signal could interrupt the import."""


def _leave(number: int, frame: object) -> NoReturn:
    """End silently: nothing has started yet."""
    os._exit(128 + number)


for _number in ENDING:
    if (
        signal.getsignal(_number) is not signal.SIG_IGN
    ):  # ignored under nohup and in background jobs of a shell
        signal.signal(_number, _leave)


def main() -> NoReturn:
    """Entry point of the ``raydr`` command."""
    from raydr.front.cli import main as command

    command()


if __name__ == "__main__":
    main()
