"""The record of one run at a site: all that must outlive the process and the next start of the machine.

It is an SQLite file in the site's folder that only its owner can read. It holds the calls that set the client's state,
and what the client answered once (:meth:`raydr.federation.ClientHost.noted`). One message is one transaction: it is
stored before its answer leaves, and a process that ends in between leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from raydr.errors import OutputError
from raydr.files import open_private

_WAIT_S = 600.0
"""Seconds to wait for another message of the same run that is being answered."""

_TABLES = (
    "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, content BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS calls"
    " (around INTEGER NOT NULL, number INTEGER NOT NULL, content BLOB NOT NULL, PRIMARY KEY (around, number))",
)


@dataclass(frozen=True)
class SiteRecord:
    """A run's record, open for one message."""

    _connection: sqlite3.Connection

    @property
    def start(self) -> int:
        """Number of the present start of the run; 0 before the first."""
        return int(self._fact("start") or b"0")

    @property
    def notes(self) -> bytes | None:
        """Digests of what the client answered once in any start of the run; None before its first answer."""
        return self._fact("notes")

    @property
    def followed(self) -> int:
        """Number of the last call in the run that set the client's state in this start; 0 before the first."""
        (number,) = self._connection.execute("SELECT MAX(number) FROM calls WHERE NOT around").fetchone()
        return number or 0

    def calls(self, *, around: bool) -> list[bytes]:
        """Return the calls of this start that set the client's state, in order: around the run, or in it."""
        chosen = "SELECT content FROM calls WHERE around = ? ORDER BY number"
        return [content for (content,) in self._connection.execute(chosen, (around,))]

    def begin(self, start: int, *, forget_around: bool) -> None:
        """Store the start of the run, and forget the calls before it. What the client answered once stays."""
        self._set("start", str(start).encode())
        self._connection.execute(
            "DELETE FROM calls" if forget_around else "DELETE FROM calls WHERE NOT around"
        )

    def note(self, notes: bytes) -> None:
        """Store what the client answered once."""
        self._set("notes", notes)

    def follow(self, number: int, call: bytes, *, around: bool) -> None:
        """Store a call that has set the client's state; a repeated one changes nothing."""
        self._connection.execute("INSERT OR IGNORE INTO calls VALUES (?, ?, ?)", (around, number, call))

    def forget_between(self, followed: int, number: int) -> None:
        """Forget calls of the run after call ``followed`` and before call ``number``.

        The site has answered them, but too late: the server went on without the site. Hosts that live as long as the
        run forget them too, because a process that is late is replaced.
        """
        self._connection.execute(
            "DELETE FROM calls WHERE NOT around AND number > ? AND number < ?", (followed, number)
        )

    def _fact(self, name: str) -> bytes | None:
        found = self._connection.execute("SELECT content FROM facts WHERE name = ?", (name,)).fetchone()
        return None if found is None else bytes(found[0])

    def _set(self, name: str, content: bytes) -> None:
        self._connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, content))


@contextmanager
def site_record(folder: Path, run: str) -> Iterator[SiteRecord]:
    """Open the record of a run for one message; an error undoes the message.

    Parameters
    ----------
    folder : Path
        The site's own folder.
    run : str
        Name of the run. The server chooses it, so the file is named by its digest.

    Raises
    ------
    OutputError
        If the record cannot be read or written.
    """
    path = folder / "runs" / f"{hashlib.sha256(run.encode()).hexdigest()[:32]}.sqlite"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            open_private(path).close()
        with closing(sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for table in _TABLES:
                connection.execute(table)
            yield SiteRecord(connection)
            connection.execute("COMMIT")
    except (OSError, sqlite3.Error) as error:
        raise OutputError(
            f"{path} cannot be used ({error}): a site keeps there what it answered in a run. Check the folder's owner"
            " and the disk."
        ) from error
