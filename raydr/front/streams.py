"""Wrappers for stdout and stderr. A failed write to stdout fails the command; to stderr it is ignored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from raydr.errors import RunError


class Results:
    """A standard output that says in one paragraph that it is full, gone or closed.

    Whoever reads it may stop early: a broken pipe is a BrokenPipeError as ever. Python knows a standard output that
    was closed before it started as None, and would print to it without a word.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or raise RunError."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if not text:  # click writes nothing to learn what it writes to, and hears no error
            return 0
        with self._told():
            return self._stream.write(text) if self._stream is not None else self._closed()

    def flush(self) -> None:
        """Flush, or raise RunError."""
        with self._told():
            if self._stream is not None:
                self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _closed(self) -> int:
        raise OSError("it is closed")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            if self._stream is not None:
                _abandon(self._stream)
            raise RunError(
                f"Standard output cannot be written ({error.strerror or error}), and what was to stand there is lost;"
                " files are not. Give it another place."
            ) from None


class Remarks:
    """A standard error that may be full, gone or closed: then remarks are not heard, and no run ends for that."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write what can be written."""
        with self._unheard():
            if self._stream is not None:
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        with self._unheard():
            if self._stream is not None:
                self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _unheard(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            if self._stream is not None:
                _abandon(self._stream)


@contextmanager
def noting(note: str) -> Iterator[None]:
    """Put a note on a RunError, for whoever reads the paragraph."""
    try:
        yield
    except RunError as error:
        error.add_note(note)
        raise


def _abandon(stream: TextIO) -> None:
    """Let what is left in a stream go nowhere: Python would try it again when it ends, and complain."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
