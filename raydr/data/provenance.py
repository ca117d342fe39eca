"""Records of where the mapped rows come from, and what became of the other rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raydr.data.survey.coding import Coding
from raydr.sparse_rows import SparseRows


@dataclass(kw_only=True, frozen=True)
class Source:
    """One file or built-in data set, as it was read.

    Attributes
    ----------
    name : str
        The built-in name or the file's name.
    rows : int
        Number of its rows.
    dropped : int
        Number of these rows that were dropped because a value is missing.
    named : bool
        Whether it names its columns, or they are numbered.
    left_out : dict of str to str
        Every column that is not mapped, with the reason.
    dropped_by_client : dict of str to int
        Dropped rows of each client, if a column names the clients.
    client : str or None
        The client that owns the file, if clients have their own files.
    sha256 : str or None
        Hash of what ``hashed`` names: the file's bytes, or the numbers of the columns that were read. Built-in
        data have the second, because their files differ with the same content. The hash reveals the last record
        to anyone who knows the others, so it is not part of ``data.json``. None if it is not known.
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
    """Hash that identifies a source: an entry of ``fingerprints.json``."""

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
        Differences between sites to keep.
    unchanged : tuple of str
        Columns that were not changed: those to keep, and under ``combat`` those with one value at one of the
        sites.
    before, after : dict of str to float or None
        How far apart the sites' scaled rows are, by names of metrics. None if it cannot be computed.
    """

    kind: str
    keep: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    before: dict[str, float | None] = field(default_factory=dict)
    after: dict[str, float | None] = field(default_factory=dict)


@dataclass(kw_only=True, frozen=True)
class Provenance:
    """The data that was mapped: the content of ``data.json`` in a run folder.

    Attributes
    ----------
    columns : tuple of str
        The mapped columns, in their order.
    named : bool
        Whether the sources name them, or they are numbered.
    scaling : str
        How the columns were scaled: see :func:`raydr.statistics.scaling.fit_scaling`.
    sources : tuple of Source
        One table, or each client's own file.
    metric : str
        Distance between rows: see :mod:`raydr.statistics.dissimilarity`.
    mapped : int
        Rows on the map.
    set_apart : int
        Rows that the server received as anchors, and that are not mapped.
    held_out : int
        Rows that no client received, and that were placed on the map afterwards.
    withdrawn : int
        Rows of clients that take no part.
    filling : str or None
        How missing values of mapped rows were filled in: ``mean`` or ``median`` of all clients.
    words : dict of column to tuple of str
        Columns of text that are mapped as one 0/1 column for each of these words.
    units : dict of column to str
        Columns of numbers that some file spells as text, with their unit.
    codings : dict of column to Coding
        How columns are read that are more than numbers or words.
    filled : dict of client to dict of column to int
        Number of filled-in values, by client and column.
    anchors : Source or None
        The file of anchors, if there is one.
    harmonized : Harmonized or None
        How sites were adjusted to each other, or None if they were not.
    notices : tuple of str
        Warnings about the data for readers of the map, in a sentence or two each.
    """

    columns: tuple[str, ...]
    named: bool
    scaling: str
    sources: tuple[Source, ...]
    mapped: int
    metric: str = "euclidean"
    set_apart: int = 0
    anchors: Source | None = None
    held_out: int = 0
    withdrawn: int = 0
    filling: str | None = None
    filled: dict[str, dict[str, int]] = field(default_factory=dict)
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    codings: dict[str, Coding] = field(default_factory=dict)
    harmonized: Harmonized | None = None
    notices: tuple[str, ...] = ()

    @property
    def everything_read(self) -> tuple[Source, ...]:
        """The sources, and the file of anchors if there is one."""
        return self.sources + (() if self.anchors is None else (self.anchors,))

    @property
    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """The hashes of everything that was read."""
        return tuple(Fingerprint(each.name, each.sha256, each.hashed) for each in self.everything_read)

    def known_by(self, found: Sequence[Fingerprint]) -> Provenance:
        """Return a copy with the hashes of everything that was read.

        Raises
        ------
        ValueError
            If they belong to other sources.
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
        """Number of rows of all sources."""
        return sum(source.rows for source in self.sources)

    @property
    def dropped(self) -> int:
        """Number of rows that were dropped because a value is missing."""
        return sum(source.dropped for source in self.sources)

    @property
    def not_drawn(self) -> int:
        """Number of rows that a sub-sample left out."""
        return self.read - self.dropped - self.set_apart - self.mapped - self.held_out - self.withdrawn

    @property
    def dropped_by_client(self) -> dict[str, int]:
        """Lost rows of each client that lost any, if the sources name the owners of rows."""
        lost = {
            source.client: source.dropped
            for source in self.sources
            if source.client is not None and source.dropped
        }
        for source in self.sources:
            lost |= source.dropped_by_client
        return lost


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_arrays(arrays: Iterable[NDArray[Any]]) -> str:
    """Return the SHA-256 hash of the shapes, types and numbers of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape} {array.dtype.str} ".encode())
        for block in array.blocks() if isinstance(array, SparseRows) else [array]:
            digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()
