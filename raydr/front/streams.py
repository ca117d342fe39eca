"""Wrappers for stdout and stderr. A failed write to stdout fails the command; to stderr it is ignored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from raydr.errors import RunError


class StrictStream:
    """Standard output that raises RunError if it is full, gone or closed.

    A broken pipe stays a BrokenPipeError. Python represents a standard output that was closed at the start as None,
    and would silently print to it.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or raise RunError."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if not text:  # click writes an empty string to probe the stream and ignores errors
            return 0
        with self._as_run_error():
            return self._stream.write(text) if self._stream is not None else self._closed()

    def flush(self) -> None:
        """Flush, or raise RunError."""
        with self._as_run_error():
            if self._stream is not None:
                self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _closed(self) -> int:
        raise OSError("it is closed")

    @contextmanager
    def _as_run_error(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            if self._stream is not None:
                _abandon(self._stream)
            raise RunError(
                f"Cannot write to standard output ({error.strerror or error}). The output is lost; files are not."
                " Redirect it to another place."
            ) from None


class BestEffortStream:
    """Standard error that ignores failed writes: it may be full, gone or closed, and the run continues."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, and ignore an error."""
        with self._ignoring_errors():
            if self._stream is not None:
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, and ignore an error."""
        with self._ignoring_errors():
            if self._stream is not None:
                self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _ignoring_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            if self._stream is not None:
                _abandon(self._stream)


@contextmanager
def note_on_error(note: str) -> Iterator[None]:
    """Add a note to a RunError; the error message shows it."""
    try:
        yield
    except RunError as error:
        error.add_note(note)
        raise


def _abandon(stream: TextIO) -> None:
    """Redirect a stream to the null device: Python would flush it again at exit and report the error."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
