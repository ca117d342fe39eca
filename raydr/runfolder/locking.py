"""The lock that keeps two processes from writing one run or one sweep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raydr.errors import OutputError

_LOCK = "lock"


@contextmanager
def locked(place: Path, noun: str) -> Iterator[None]:
    """Keep every other process from a run or a sweep, for the length of a ``with`` block or the life of this one.

    Raises
    ------
    OutputError
        If another process is at work on it.
    """
    from filelock import FileLock, Timeout

    folder, lock = place.parent, FileLock(place / _LOCK, timeout=0)
    try:
        place.mkdir(exist_ok=True)
        lock.acquire()
    except Timeout:  # an OSError itself
        raise OutputError(
            f"Another process is at work on the {noun} in {folder}: wait until it ends, or end it, before you"
            f" resume the {noun}."
        ) from None
    except OSError as error:
        raise OutputError(
            f"The {noun} folder {folder} cannot be written ({error.strerror or error}): free its place, or copy"
            " it to another and resume it there."
        ) from error
    try:
        yield
    finally:
        lock.release()


def is_locked(place: Path) -> bool:
    """Return whether some process holds the lock of a run or a sweep, as far as that can be told."""
    from filelock import FileLock, Timeout

    if not (place / _LOCK).exists():
        return False
    try:
        with FileLock(place / _LOCK, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return False
