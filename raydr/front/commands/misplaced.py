"""Errors for a document that was passed to the wrong command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raydr.errors import DataError, ScenarioError

_OTHERS = {
    "map": "a table: run `raydr map {0}` to map it, or `raydr init {0}` to write a scenario for it",
    "run": "a scenario: run `raydr run {0}`",
    "sweep": "a sweep: run `raydr sweep {0}`",
    "reproduce": "a paper's table: run `raydr reproduce {0}`",
}
"""Kinds of documents, and the command that takes each."""


@contextmanager
def suggesting_command(document: str, command: str) -> Iterator[None]:
    """If a command cannot read a document, raise an error that names the command that can, if there is one."""
    try:
        yield
    except (DataError, ScenarioError):
        other = command_for(document)
        if other is None or other == command:
            raise
        raise ScenarioError(f"{document} is {_OTHERS[other].format(shlex.quote(document))}.") from None


def command_for(document: str) -> str | None:
    """Return the command that takes a file or a shipped name; None if that is not clear."""
    from raydr.front.own_data import is_data
    from raydr.scenarios.schema.reading import SCENARIOS
    from raydr.tune.reading import PAPERS, is_sweep, names_sweep

    path = Path(document).expanduser()
    if path.is_file() and is_data(document):
        return "map"
    if document in PAPERS.names() and not path.exists():
        return "reproduce"
    if not path.is_file():
        if names_sweep(document):
            return "sweep"
        return "run" if document in SCENARIOS.names() else None
    try:
        content = SCENARIOS.parse(path)
    except ScenarioError:
        return None
    if is_sweep(content):
        search = content.get("search")
        return "reproduce" if isinstance(search, dict) and search.get("kind") == "table" else "sweep"
    return "run" if {"data", "method"} <= content.keys() else None
