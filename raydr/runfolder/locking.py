"""File lock that lets only one process write a run or a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raydr.errors import OutputError

_LOCK = "lock"


@contextmanager
def locked(place: Path, noun: str) -> Iterator[None]:
    """Lock a run or a sweep against other processes within a ``with`` block, or until this process ends.

    Raises
    ------
    OutputError
        If another process holds the lock, or the folder cannot be written.
    """
    from filelock import FileLock, Timeout

    folder, lock = place.parent, FileLock(place / _LOCK, timeout=0)
    try:
        place.mkdir(exist_ok=True)
        lock.acquire()
    except Timeout:  # an OSError itself
        raise OutputError(
            f"Another process is working on the {noun} in {folder}. Wait until it ends, or stop it, before you"
            f" resume the {noun}."
        ) from None
    except OSError as error:
        raise OutputError(
            f"The {noun} folder {folder} cannot be written ({error.strerror or error}). Free disk space there, or copy"
            f" the folder elsewhere and resume the {noun} there."
        ) from error
    try:
        yield
    finally:
        lock.release()


def is_locked(place: Path) -> bool:
    """Return whether a process holds the lock of a run or a sweep; False if this cannot be found out."""
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
