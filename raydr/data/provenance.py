"""Where mapped rows come from, and what became of the others: written down once, by whoever reads the source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(kw_only=True, frozen=True)
class Source:
    """One file or built-in data set, as it was read.

    Attributes
    ----------
    name : str
        The built-in name or the file's.
    rows : int
        That it has.
    dropped : int
        Rows of these that were left out because a value is missing.
    named : bool
        Whether it names its columns; else they are counted.
    left_out : dict of str to str
        Every column that is not mapped, with the reason.
    dropped_by_client : dict of str to int
        Where a column names the clients: how many of the dropped rows were whose.
    client : str or None
        Whose file it is, where clients have files of their own.
    sha256 : str or None
        Of what ``hashed`` says: the file's bytes, or, for built-in data, which come in different files with the same
        content, the numbers of the columns that were read. It tells the last record to anybody who knows the others, so
        it is no part of ``data.json``; None where it is not known.
    hashed : {"file", "numbers"}
    """

    name: str
    rows: int
    dropped: int
    named: bool
    left_out: dict[str, str] = field(default_factory=dict)
    dropped_by_client: dict[str, int] = field(default_factory=dict)
    client: str | None = None
    sha256: str | None = None
    hashed: Literal["file", "numbers"] = "file"


@dataclass(frozen=True)
class Fingerprint:
    """By which a source is known again: an entry of ``fingerprints.json``."""

    name: str
    sha256: str | None
    hashed: Literal["file", "numbers"]


@dataclass(frozen=True)
class Harmonized:
    """How sites were adjusted to each other before their rows were scaled.

    Attributes
    ----------
    kind : str
        ``center``, ``scale`` or ``combat``: see :mod:`raydr.statistics.site_effects`.
    keep : tuple of str
        What was to stay of the differences between sites.
    unchanged : tuple of str
        Columns that stayed as they were: those that are kept, and under ``combat`` those that one site has one value
        of.
    before, after : dict of str to float or None
        How far the sites' rows stand apart, by names of metrics, of the rows as scaled; None where there is no saying.
    """

    kind: str
    keep: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    before: dict[str, float | None] = field(default_factory=dict)
    after: dict[str, float | None] = field(default_factory=dict)


@dataclass(kw_only=True, frozen=True)
class Provenance:
    """What was mapped: the content of ``data.json`` in a run folder.

    Attributes
    ----------
    columns : tuple of str
        That were mapped, in their order.
    named : bool
        Whether the sources name them; else they are counted.
    scaling : str
        How the columns were scaled: see :func:`raydr.statistics.scaling.fit_scaling`.
    sources : tuple of Source
        One table, or each client's own file.
    mapped : int
        Rows on the map.
    set_apart : int
        Rows that the server was given instead, as anchors.
    held_out : int
        Rows that nobody was given, and that were placed on the map afterwards.
    filling : str or None
        What missing values of mapped rows were filled in by, ``mean`` or ``median`` of all clients.
    words : dict of column to tuple of str
        Columns of text that are mapped as a column of zeros and ones for each of these words.
    filled : dict of client to dict of column to int
        How many there were, whose, and of which column.
    anchors : Source or None
        The file of anchors, where there is one.
    harmonized : Harmonized or None
        How sites were adjusted to each other; None where they were not.
    notices : tuple of str
        What whoever looks at the map should know of the data, a sentence or two each.
    """

    columns: tuple[str, ...]
    named: bool
    scaling: str
    sources: tuple[Source, ...]
    mapped: int
    set_apart: int = 0
    anchors: Source | None = None
    held_out: int = 0
    filling: str | None = None
    filled: dict[str, dict[str, int]] = field(default_factory=dict)
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    harmonized: Harmonized | None = None
    notices: tuple[str, ...] = ()

    @property
    def everything_read(self) -> tuple[Source, ...]:
        """The sources, and the anchors' where they have one."""
        return self.sources + (() if self.anchors is None else (self.anchors,))

    @property
    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """By which everything that was read is known again."""
        return tuple(Fingerprint(each.name, each.sha256, each.hashed) for each in self.everything_read)

    def known_by(self, found: Sequence[Fingerprint]) -> Provenance:
        """Return the same with the fingerprints of everything that was read.

        Raises
        ------
        ValueError
            If they are those of others.
        """
        read = self.everything_read
        if [each.name for each in read] != [each.name for each in found]:
            raise ValueError("fingerprints are not those of the sources")
        known = [
            replace(one, sha256=its.sha256, hashed=its.hashed) for one, its in zip(read, found, strict=True)
        ]
        count = len(self.sources)
        return replace(self, sources=tuple(known[:count]), anchors=known[count] if known[count:] else None)

    @property
    def read(self) -> int:
        """Rows of all sources."""
        return sum(source.rows for source in self.sources)

    @property
    def dropped(self) -> int:
        """Rows that were left out because a value is missing."""
        return sum(source.dropped for source in self.sources)

    @property
    def not_drawn(self) -> int:
        """Rows that a sub-sample left out."""
        return self.read - self.dropped - self.set_apart - self.mapped - self.held_out

    @property
    def dropped_by_client(self) -> dict[str, int]:
        """Clients that lost rows, and how many, as far as the sources say whose rows they were."""
        lost = {
            source.client: source.dropped
            for source in self.sources
            if source.client is not None and source.dropped
        }
        for source in self.sources:
            lost |= source.dropped_by_client
        return lost


def sha256_of_file(path: Path) -> str:
    """Hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_arrays(arrays: Iterable[NDArray[Any]]) -> str:
    """Hash of the shapes, types and numbers of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape} {array.dtype.str} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
