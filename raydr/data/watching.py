"""How far a file is read that a library reads in one call."""

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
    """What ``read`` makes of an open file; ``progress`` is in bytes, and is called from this thread alone.

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
            # Whoever interrupts does not wait for the library.
            pool.shutdown(wait=False, cancel_futures=True)


class _Counted(io.BufferedReader):
    """A file that says what was read of it, to other threads too."""

    done = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Bytes, as every file."""
        content = super().read(size)
        self.done += len(content)
        return content
