"""Atomic file writes, and files that only their owner can read."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from raydr.errors import OutputError, RaydrError


def open_private(path: Path) -> BinaryIO:
    """Create a file for writing that only its owner can read (mode 0600), regardless of the umask.

    An existing file is replaced, because it can have another mode.
    """
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


@contextmanager
def whole(path: Path, remedy: str, *, is_private: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``, and rename it to ``path`` at the end.

    A reader never finds half a file, and an existing file stays until the end. The temporary name is random,
    so an attacker cannot place a link there.

    Parameters
    ----------
    path : Path
        The final file. Its folder is created if needed.
    remedy : str
        What to do if the file cannot be written, as the end of a sentence.
    is_private : bool
        Whether only the owner can read the file: see :func:`open_private`. Otherwise its mode follows the
        umask.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    unfinished = path.with_name(f".{secrets.token_hex(4)}.incomplete")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.touch(0o600 if is_private else 0o666, exist_ok=False)
        yield unfinished
        os.replace(unfinished, path)
    except RaydrError:
        raise
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror or error}): {remedy}.") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


def write_whole(path: Path, content: bytes, remedy: str) -> Path:
    """Write a file atomically: see :func:`whole`."""
    with whole(path, remedy) as unfinished:
        unfinished.write_bytes(content)
    return path
