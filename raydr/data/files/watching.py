"""Progress of a file that a library reads in one call."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, TypeVar

from raydr.geometry.points import Progress, unheard

Read = TypeVar("Read")

_LOOK_S = 0.2


def read_watched(path: Path, read: Callable[[BinaryIO], Read], progress: Progress = unheard) -> Read:
    """Return the result of ``read`` for an open file. ``progress`` is in bytes, and only this thread calls it.

    Raises
    ------
    OSError
        If the file cannot be opened.
    """
    with _Counted(io.FileIO(path)) as file:
        if progress is unheard:
            return read(file)
        size = path.stat().st_size
        pool = ThreadPoolExecutor(1, thread_name_prefix="raydr-read")
        try:
            reading = pool.submit(read, file)
            while not reading.done():
                try:
                    return reading.result(timeout=_LOOK_S)
                except TimeoutError:
                    if not reading.done():
                        progress(min(file.done, size), size)
            return reading.result()
        finally:
            # After an interruption, do not wait for the library.
            pool.shutdown(wait=False, cancel_futures=True)


class _Counted(io.BufferedReader):
    """A file that reports how much of it was read, to other threads too."""

    done = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Read bytes, and count them."""
        content = super().read(size)
        self.done += len(content)
        return content
