"""Files that are there whole or not at all, and files that only their owner can read."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from raydr.errors import OutputError, RaydrError


def open_private(path: Path) -> BinaryIO:
    """Open a new file for writing that only its owner can read (mode 0600), whatever the umask is.

    A file that stood there before is replaced: it may have another mode.
    """
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


@contextmanager
def whole(path: Path, remedy: str, *, is_private: bool = False) -> Iterator[Path]:
    """Hand out another name in the folder of ``path`` to write to, and rename it at the end.

    A reader never finds half of a file, and what stood there before stays until then. The name is one that nobody can
    have put a link under.

    Parameters
    ----------
    path : Path
        The file to be; its folder is made where there is none.
    remedy : str
        What to do where it cannot be written: the end of a sentence.
    is_private : bool
        Whether only its owner can read it: see :func:`open_private`. Otherwise its mode follows the umask.

    Raises
    ------
    OutputError
        The place cannot be written.
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
    """Write a file whole or not at all: see :func:`whole`."""
    with whole(path, remedy) as unfinished:
        unfinished.write_bytes(content)
    return path
