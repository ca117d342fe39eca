"""What was given to a command that another one is for: an error then says which."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raydr.errors import DataError, ScenarioError

_OTHERS = {
    "map": "data: `raydr map {0}` maps them, and `raydr init {0}` writes a scenario for them",
    "run": "a scenario: `raydr run {0}` runs it",
    "sweep": "a sweep: `raydr sweep {0}` runs it",
    "reproduce": "a paper's table: `raydr reproduce {0}` runs it",
}
"""What each command is given."""


@contextmanager
def said_what_for(document: str, command: str) -> Iterator[None]:
    """Where a document cannot be read as what a command wants, say which command it is for, if it is one."""
    try:
        yield
    except (DataError, ScenarioError):
        other = _command_for(document)
        if other is None or other == command:
            raise
        raise ScenarioError(f"{document} is {_OTHERS[other].format(shlex.quote(document))}.") from None


def _command_for(document: str) -> str | None:
    """The command that a file is for, or a name of what comes with raydr; None where that is not plain."""
    from raydr.front.own_data import is_data
    from raydr.scenarios.schema.reading import SHELF
    from raydr.tune.reading import PAPERS, is_sweep, names_sweep

    path = Path(document).expanduser()
    if path.is_file() and is_data(document):
        return "map"
    if document in PAPERS.names() and not path.exists():
        return "reproduce"
    if not path.is_file():
        if names_sweep(document):
            return "sweep"
        return "run" if document in SHELF.names() else None
    try:
        content = SHELF.parse(path)
    except ScenarioError:
        return None
    if is_sweep(content):
        search = content.get("search")
        return "reproduce" if isinstance(search, dict) and search.get("kind") == "table" else "sweep"
    return "run" if {"data", "method"} <= content.keys() else None
