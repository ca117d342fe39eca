"""The ``raydr`` command and ``python -m raydr``: quiet from the first moment that is ours.

Importing the command takes 0.2 s, in which a Ctrl-C would end in a traceback of whatever is being imported. So this
module imports next to nothing before the signals are seen to. What comes earlier, while Python itself starts, is
Python's to answer.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""As in :mod:`raydr.signals`, which a signal could interrupt while it is imported."""


def _leave(number: int, frame: object) -> NoReturn:
    """End without a word: nothing has begun that could be lost."""
    os._exit(128 + number)


for _number in ENDING:
    if signal.getsignal(_number) is not signal.SIG_IGN:  # as nohup and a shell's background jobs have it
        signal.signal(_number, _leave)


def main() -> NoReturn:
    """Entry point of the ``raydr`` command."""
    from raydr.front.cli import main as command

    command()


if __name__ == "__main__":
    main()
