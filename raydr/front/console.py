"""Standard streams as consoles: nothing of others is markup or a command to a terminal there."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, cast

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from raydr.front.streams import Remarks
from raydr.plain import plain


@contextmanager
def logged_on_terminal() -> Iterator[None]:
    """What raydr logs stands on standard error, a line each."""
    with logged(print_paragraph):
        yield


def print_paragraph(text: str) -> None:
    """One paragraph on standard error: broken between words on a terminal, one line elsewhere."""
    console_on(Remarks(sys.stderr)).print(one_line(text))


def one_line(text: str) -> Text:
    """Text of others as it is, on one line: nothing in it is markup, a picture's name, or a command to a terminal."""
    return Text(plain(" ".join(part.strip() for part in text.splitlines())))


def console_on(stream: IO[str] | Remarks) -> Console:
    """A console that leaves numbers and paths uncoloured, and lines whole where nobody looks at them."""
    file = cast("IO[str]", stream)
    console = _Console(file=file, highlight=False)
    return (
        console
        if console.is_terminal or console.is_jupyter
        else _Console(file=file, highlight=False, width=10_000)
    )


class _Console(Console):
    """A console that leaves it to its caller what a reader means who has seen enough."""

    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError again, in the place of rich's own SystemExit."""
        raise  # noqa: PLE0704  called where it is handled


def table_of(*titles: str) -> Table:
    """A table without rules: names to the left, figures to the right."""
    first, *others = titles
    columns = [Column(one_line(first)), *(Column(one_line(title), justify="right") for title in others)]
    return Table(*columns, box=None, pad_edge=False, padding=(0, 3, 0, 0))


@contextmanager
def logged(say: Callable[[str], None]) -> Iterator[None]:
    """What raydr logs, from INFO on, goes to ``say``; other libraries are not heard."""
    handler, logger = _Saying(say), logging.getLogger("raydr")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _Saying(logging.Handler):
    """Passes each record's message on, once however often it comes, as of a file that is read twice."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._said:
            self._said.add(text)
            self._say(text)
