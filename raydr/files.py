"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from raydr.errors import OutputError, RaydrError


@contextmanager
def whole(path: Path, remedy: str) -> Iterator[Path]:
    """Hand out another name in the folder of ``path`` to write to, and rename it at the end.

    A reader never finds half of a file, and what stood there before stays until then. The name is one that nobody can
    have put a link under.

    Parameters
    ----------
    path : Path
        The file to be; its folder is made where there is none.
    remedy : str
        What to do where it cannot be written: the end of a sentence.

    Raises
    ------
    OutputError
        The place cannot be written.
    """
    unfinished = path.with_name(f".{secrets.token_hex(4)}.incomplete")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.touch(exist_ok=False)
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
