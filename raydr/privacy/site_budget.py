"""A site's own privacy budget, over all runs: a signed, append-only record of what the site released.

The record is an SQLite file at the site. Each release is one row, stored before the release leaves, so a release that
was charged may or may not have been sent, but no release leaves without its charge. A row names the digest of the row
before it and is signed with the site's Ed25519 key, so a row that was changed, inserted or removed is found. The
exception is the newest rows: note their number elsewhere if others can write to the site's folder.

The guarantee is that of one record of the site. Gaussian releases compose exactly: multipliers z_i cost as much as one
release with multiplier (sum 1 / z_i^2)^-1/2 (:mod:`raydr.privacy.accounting`). A release that is charged for whole
clients counts with its multiplier, because a record is a part of its client.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from raydr.errors import OutputError, RunError
from raydr.files import open_private
from raydr.plain import short_number
from raydr.privacy.accounting import BudgetError, Charge, Charges, gaussian_epsilon, gaussian_multiplier
from raydr.privacy.mechanism import Relation, Unit

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_WAIT = 60.0
"""Seconds to wait for another run that is charging the same budget."""

RELATIONS: tuple[Relation, ...] = ("zero-out", "replace-one")
"""Relations of neighbouring data, in the order in which a run declares its cost."""

_TABLES = """
CREATE TABLE IF NOT EXISTS site (name TEXT NOT NULL, key TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS releases (number INTEGER PRIMARY KEY, content TEXT NOT NULL, signature TEXT NOT NULL);
"""


@dataclass(frozen=True, kw_only=True)
class SiteRelease:
    """One release of a site, under Gaussian noise.

    Attributes
    ----------
    release : str
        Digest of what leaves. The same digest is the same release, which costs nothing again.
    run, asked_by : str
        Name of the run that asked for it, and the user and machine that the site's host runs as.
    kind, what : str
        The message, and its content in words.
    mechanism : str
        The noise in words.
    deviation, sensitivity : float
        Deviation of the noise that protects the site's records, and the L2 distance by which one of them can move the
        release; 0 and infinite for a release without a guarantee.
    share : float
        Deviation of the site's own noise as a fraction of the whole: 1 if the site covers its message by itself.
    unit : {"record", "client"}
        Unit of the sensitivity.
    relation : {"zero-out", "replace-one"}
        Relation of neighbouring data of the sensitivity.
    """

    release: str
    run: str
    asked_by: str
    kind: str
    what: str
    mechanism: str
    deviation: float
    sensitivity: float
    share: float = 1.0
    unit: Unit = "record"
    relation: Relation = "zero-out"

    @property
    def multiplier(self) -> float:
        """Noise multiplier; infinite if no record can move the release."""
        return self.deviation / self.sensitivity if self.sensitivity else math.inf


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A release in the record: its number from 1, and when it was charged (UTC, ISO 8601)."""

    number: int
    charged_at: str
    release: SiteRelease


@dataclass(frozen=True)
class Allowance:
    """Limit on the epsilon of a site over all runs.

    Attributes
    ----------
    epsilon : float or None
        Largest epsilon of all releases; None to record without a limit.
    delta : float
        Delta at which it is stated.
    relation : {"zero-out", "replace-one"}
        Relation of neighbouring data for which it is stated.
    """

    epsilon: float | None = None
    delta: float = 1e-5
    relation: Relation = "zero-out"

    def spent(self, squares: Mapping[Relation, float]) -> float:
        """Return the epsilon of releases whose 1 / multiplier^2 add up to ``squares``, by relation."""
        return self._epsilon(self._square(squares))

    def left(self, squares: Mapping[Relation, float]) -> float | None:
        """Return the largest epsilon of one more run under the allowance's relation; None without a limit."""
        if self.epsilon is None:
            return None
        return self._epsilon(
            max(0.0, gaussian_multiplier(self.epsilon, self.delta) ** -2 - self._square(squares))
        )

    def _square(self, squares: Mapping[Relation, float]) -> float:
        """Return the sum of 1 / multiplier^2 under the allowance's relation.

        To replace a record is to remove one and to add one, which doubles a sensitivity. To remove one is no more than
        to replace it by a record that adds zero.
        """
        factor = 4.0 if self.relation == "replace-one" else 1.0
        return squares.get("replace-one", 0.0) + factor * squares.get("zero-out", 0.0)

    def _epsilon(self, square: float) -> float:
        if square == math.inf:
            return math.inf
        return gaussian_epsilon(1.0 / math.sqrt(square) if square else math.inf, self.delta)


@dataclass
class _Known:
    """The rows of the record that were checked so far."""

    number: int = 0
    digest: str = ""
    squares: dict[Relation, float] = field(default_factory=dict)
    releases: set[str] = field(default_factory=set)

    def add(self, content: str, release: SiteRelease) -> None:
        self.number += 1
        self.digest = _digest(content)
        self.squares = _with(self.squares, release)
        self.releases.add(release.release)


@dataclass(frozen=True)
class SiteBudget:
    """The record of a site's releases, and what the site allows.

    Parameters
    ----------
    path : Path
        The SQLite file, which the first charge creates. The site's key is next to it, with the suffix ``.key``; only
        its owner can read it.
    allowance : Allowance
        What the site allows over all runs.
    site : str
        Name of the site, for messages and the record.
    """

    path: Path
    allowance: Allowance = Allowance()
    site: str = "this site"
    _known: _Known = field(default_factory=_Known, init=False, repr=False, compare=False)

    def charge(self, release: SiteRelease) -> bool:
        """Charge a release before it leaves; return False if it was charged before or costs nothing.

        Several processes can charge at once; together they cannot spend more than the allowance.

        Raises
        ------
        BudgetError
            If the release would cost more than is left. It is not charged.
        RunError
            If the record was changed by someone else than the site, or its key is missing.
        OutputError
            If the record cannot be written.
        """
        if math.isinf(release.multiplier):
            return False
        with self._opened() as database:
            database.execute("BEGIN IMMEDIATE")
            key, known = self._key(database), self._known
            for _ in self._newer(database, known):
                pass
            if release.release in known.releases:
                return False
            self._require_affordable(known.squares, release)
            content = json.dumps(
                asdict(release) | {"number": known.number + 1, "charged_at": _now(), "before": known.digest},
                sort_keys=True,
            )
            signature = key.sign(content.encode()).hex()
            database.execute("INSERT INTO releases VALUES (?, ?, ?)", (known.number + 1, content, signature))
            database.execute("COMMIT")
            known.add(content, release)
        return True

    def releases(self) -> list[Stored]:
        """Return all releases in order, after checking each signature.

        Raises
        ------
        RunError
            If the record was changed by someone else than the site.
        OutputError
            If it cannot be read.
        """
        if not self.path.exists():
            return []
        with self._opened() as database:
            return list(self._newer(database, _Known()))

    def spent(self, more: Charges | None = None) -> float:
        """Return the epsilon of all releases so far, and of ``more``; infinite if one has no guarantee."""
        squares, added = (
            squares_of(stored.release for stored in self.releases()),
            squares_of_charges(more or {}),
        )
        return self.allowance.spent(
            {each: squares.get(each, 0.0) + added.get(each, 0.0) for each in RELATIONS}
        )

    def spent_with(self, run: str, declared: Mapping[Relation, float]) -> tuple[float, float]:
        """Return the epsilon so far, and with a run whose releases add up to ``declared``, by relation.

        A run that has released something before is not added, because it may send the same releases again.
        """
        known = _Known()
        runs = set[str]()
        if self.path.exists():
            with self._opened() as database:
                runs = {stored.release.run for stored in self._newer(database, known)}
        more = {} if run in runs else declared
        after = {each: known.squares.get(each, 0.0) + more.get(each, 0.0) for each in RELATIONS}
        return self.allowance.spent(known.squares), self.allowance.spent(after)

    def _require_affordable(self, before: Mapping[Relation, float], release: SiteRelease) -> None:
        limit = self.allowance.epsilon
        if limit is None:
            return
        after = self.allowance.spent(_with(before, release))
        if after > limit * (1.0 + 1e-9):
            raise BudgetError(
                f"all releases in {self.path} so far cost epsilon {self.allowance.spent(before):.4g} at delta"
                f" {short_number(self.allowance.delta)}, and with this one {after:.4g}"
            )

    def _newer(self, database: sqlite3.Connection, known: _Known) -> Iterator[Stored]:
        """Yield the rows after those already checked, and check each against its signature and the row before it."""
        from cryptography.exceptions import InvalidSignature

        rows = database.execute(
            "SELECT number, content, signature FROM releases WHERE number >= ? ORDER BY number",
            (known.number,),
        ).fetchall()
        if known.number and not (rows and _digest(rows.pop(0)[1]) == known.digest):
            raise self._changed(known.number)
        if not rows:
            return
        key = self._public_key(database)
        for number, content, signature in rows:
            try:
                key.verify(bytes.fromhex(signature), content.encode())
                values = json.loads(content)
                release = SiteRelease(**{each.name: values[each.name] for each in fields(SiteRelease)})
                stored = Stored(number=values["number"], charged_at=values["charged_at"], release=release)
                if (number, stored.number, values["before"]) != (known.number + 1,) * 2 + (known.digest,):
                    raise ValueError("another row")
            except (InvalidSignature, ValueError, TypeError, KeyError, AttributeError) as error:
                raise self._changed(known.number + 1) from error
            known.add(content, release)
            yield stored

    def _changed(self, number: int) -> RunError:
        return RunError(
            f"{self.path}: release {number} is not as {self.site} signed it. Someone changed the record of releases:"
            " find out who, and restore a copy, before the site releases anything else."
        )

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)) as database:
                database.execute("PRAGMA synchronous = FULL")
                database.executescript(_TABLES)
                yield database
        except sqlite3.DatabaseError as error:
            raise OutputError(
                f"Cannot use {self.path}, the record of what {self.site} released ({error}). Make the file and its"
                " folder writable for this user, or restore a copy; nothing leaves the site without the record."
            ) from error
        except OutputError:
            raise
        except OSError as error:
            raise OutputError(
                f"Cannot use {self.path}, the record of what {self.site} released ({error.strerror or error}). Make its"
                " folder writable for this user; nothing leaves the site without the record."
            ) from error

    @property
    def _key_file(self) -> Path:
        return self.path.with_suffix(".key")

    def _key(self, database: sqlite3.Connection) -> Ed25519PrivateKey:
        """Return the site's key, which the first charge draws."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        known = database.execute("SELECT key FROM site").fetchone()
        if known is None:
            if self._key_file.exists():
                raise RunError(
                    f"{self.path} is empty, but {self._key_file} signed releases before: the record was removed."
                    f" Restore it. If {self.site} never released anything, remove the key."
                )
            key = Ed25519PrivateKey.generate()
            with open_private(self._key_file) as file:
                file.write(key.private_bytes_raw())
                file.flush()
                os.fsync(file.fileno())
            database.execute(
                "INSERT INTO site VALUES (?, ?)", (self.site, key.public_key().public_bytes_raw().hex())
            )
            database.execute(
                "COMMIT"
            )  # so that a first release that is refused leaves a record that fits its key
            database.execute("BEGIN IMMEDIATE")
            return key
        try:
            key = Ed25519PrivateKey.from_private_bytes(self._key_file.read_bytes())
        except (OSError, ValueError) as error:
            raise RunError(
                f"{self._key_file}, the key that signs what {self.site} releases, cannot be read ({error}). Restore it:"
                " without it the site cannot release anything under its budget."
            ) from error
        if key.public_key().public_bytes_raw().hex() != known[0]:
            raise RunError(
                f"{self._key_file} is not the key that signed {self.path}. Restore the one that did."
            )
        return key

    def _public_key(self, database: sqlite3.Connection) -> Ed25519PublicKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        known = database.execute("SELECT key FROM site").fetchone()
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(known[0] if known else "00" * 32))


def squares_of_charges(charges: Charges) -> dict[Relation, float]:
    """Return the sum of 1 / multiplier^2 of charges, by relation."""
    squares: dict[Relation, float] = {}
    for charge, count in charges.items():
        squares = _with(squares, charge, count)
    return squares


def squares_of(releases: Iterable[SiteRelease]) -> dict[Relation, float]:
    """Return the sum of 1 / multiplier^2 of releases, by relation."""
    squares: dict[Relation, float] = {}
    for release in releases:
        squares = _with(squares, release)
    return squares


def _with(
    squares: Mapping[Relation, float], release: SiteRelease | Charge, count: int = 1
) -> dict[Relation, float]:
    more = count / release.multiplier**2 if release.multiplier else math.inf
    return {**squares, release.relation: squares.get(release.relation, 0.0) + more}


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
