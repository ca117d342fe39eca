"""Consoles for standard streams. Text from outside is never markup or a terminal command."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, cast

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from raydr.front.streams import BestEffortStream
from raydr.plain import plain


@contextmanager
def logged_on_terminal() -> Iterator[None]:
    """Print raydr's log on standard error, one line for each message."""
    with logged(print_paragraph):
        yield


def print_paragraph(text: str) -> None:
    """Print a paragraph on standard error: wrapped between words on a terminal, one line elsewhere."""
    console_on(BestEffortStream(sys.stderr)).print(one_line(text))


def one_line(text: str) -> Text:
    """Return text from outside as one line without markup, emoji names or terminal commands."""
    return Text(plain(" ".join(part.strip() for part in text.splitlines())))


def console_on(stream: IO[str] | BestEffortStream) -> Console:
    """Return a console that does not colour numbers and paths, and does not wrap lines outside a terminal."""
    file = cast("IO[str]", stream)
    console = _Console(file=file, highlight=False)
    return (
        console
        if console.is_terminal or console.is_jupyter
        else _Console(file=file, highlight=False, width=10_000)
    )


class _Console(Console):
    """A console that lets its caller handle a broken pipe."""

    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError again, instead of rich's SystemExit."""
        raise  # noqa: PLE0704  called where it is handled


def table_of(*titles: str) -> Table:
    """Return a table without lines: names on the left, numbers on the right."""
    first, *others = titles
    columns = [Column(one_line(first)), *(Column(one_line(title), justify="right") for title in others)]
    return Table(*columns, box=None, pad_edge=False, padding=(0, 3, 0, 0))


@contextmanager
def logged(say: Callable[[str], None]) -> Iterator[None]:
    """Pass raydr's log messages, from INFO on, to ``say``; other libraries are ignored."""
    handler, logger = _OncePerMessage(say), logging.getLogger("raydr")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _OncePerMessage(logging.Handler):
    """Passes on each log message once, even if it repeats, as for a file that is read twice."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self._passed_on: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._passed_on:
            self._passed_on.add(text)
            self._say(text)
