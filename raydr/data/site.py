"""A client's own file: found, said what to read where it is not, and read where it is."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import FloatArray, Int64Array, fingerprint
from raydr.data.categories import Survey, agree
from raydr.data.columns import Choice, letters, listing
from raydr.data.layout import Categories, Layout
from raydr.data.loading import ENDINGS, FILLINGS, Missing, ending, load, survey
from raydr.data.notices import looks
from raydr.data.provenance import Source
from raydr.data.spelling import DEFAULT_THRESHOLD, Threshold
from raydr.data.table import Table
from raydr.errors import DataError


@dataclass(kw_only=True, frozen=True)
class SiteFile:
    """Instructions for reading one client's rows; see :func:`raydr.data.load` for the fields."""

    path: str
    label: str | None = None
    features: tuple[str, ...] | None = None
    id_column: str | None = None
    missing: Missing = "error"
    categories: Categories = "error"
    threshold: Threshold = DEFAULT_THRESHOLD
    layout: Layout | None = None
    matrix: str | None = None

    def read(self) -> Table:
        """Read the file, on the machine that has it."""
        return load(
            path=self.path,
            label=self.label,
            features=self.features,
            id_column=self.id_column,
            missing=self.missing,
            categories=self.categories,
            layout=self.layout,
            matrix=self.matrix,
            for_map=False,  # a site may hold one row
        )

    def survey(self) -> Survey:
        """Return what this site tells of the columns that would be features."""
        choice = Choice(
            label=self.label,
            features=self.features,
            id=self.id_column,
            categories=self.categories,
            matrix=self.matrix,
            threshold=self.threshold,
        )
        return survey(self.path, choice)

    @property
    def needs_layout(self) -> bool:
        """Whether sites have to agree on what is mapped before their files are read."""
        return self.layout is None and (self.categories != "error" or self.missing in FILLINGS)


def laid_out(file: SiteFile, surveys: Sequence[Survey]) -> Layout:
    """Which columns of sites' files are mapped, and as what; ``file`` says what all of them are asked.

    Raises
    ------
    DataError
        As :func:`raydr.data.categories.agree`, where columns are spelt otherwise in another file, and where a file has
        none of the columns of any other.
    """
    where = "The sites' data"
    layout = agree(surveys, file.categories, listed=file.features, where=where, threshold=file.threshold)
    there = [
        {column for column in layout.columns if survey.kinds.get(column, "empty") != "empty"}
        for survey in surveys
    ]
    if file.features is None:
        _refuse_other_spellings([set(survey.kinds) for survey in surveys], layout, where)
    for own in there:
        others = set().union(*(columns for columns in there if columns is not own))
        if own and others and not own & others:
            mine, theirs = (
                listing([column for column in layout.columns if column in which]) for which in (own, others)
            )
            raise DataError(
                f"{where}: one file has {mine} alone, and no other file has any of these; the others have {theirs}. So"
                " nothing says which of its rows are like those of others: name columns alike in all files."
            )
    return layout


def _refuse_other_spellings(files: Sequence[set[str]], layout: Layout, where: str) -> None:
    """Raise a DataError for two columns that differ in case or signs alone, of which no file has both."""
    spellings: dict[str, list[str]] = {}
    for column in layout.columns:
        spellings.setdefault(letters(column), []).append(column)
    for spelt, (first, *more) in spellings.items():
        for other in more:
            if spelt and not any({first, other} <= columns for columns in files):
                raise DataError(
                    f"{where}: the column {first!r} is {other!r} in another file, so they would be two columns, each"
                    " filled in where the other is. Write it alike in all files, or list both in data.features."
                )


@dataclass(kw_only=True, frozen=True)
class Census:
    """What the driver of a simulation knows of a client's file: everything but the rows.

    Attributes
    ----------
    ids : (rows,)
        Identities of the rows.
    labels : (rows,) str or None
        Class names, for colouring the map and for judging it.
    features : tuple of str
        Names of the features.
    fingerprint : str
        Of the rows, by which a restarted client is known to hold the same.
    source : Source
        What was read, and what of it is not among the rows.
    gaps : (features,) int64
        How many values of each feature are missing.
    looks : (features,) int64
        What each feature looks like: see :func:`raydr.data.notices.looks`.
    """

    ids: NDArray[Any]
    labels: NDArray[Any] | None
    features: tuple[str, ...]
    fingerprint: str
    source: Source
    gaps: Int64Array
    looks: Int64Array


def census(file: SiteFile) -> Census:
    """Read a file here and say everything of it but the rows."""
    table = file.read()
    labels = None if table.labels is None else np.asarray(table.label_names, np.str_)[table.labels]
    return Census(
        ids=table.ids,
        labels=labels,
        features=table.features,
        fingerprint=fingerprint(table.rows),
        source=table.read_from,
        gaps=gaps_of(table.rows),
        looks=looks(table.rows),
    )


def gaps_of(rows: FloatArray) -> Int64Array:
    """How many values of each feature are missing in rows (rows, features)."""
    return np.asarray(np.isnan(rows).sum(axis=0, dtype=np.int64))


@dataclass(frozen=True)
class Site:
    """A client whose rows are read from its own file, and the node that has it (None: any)."""

    file: SiteFile
    node: str | None
    fingerprint: str


def files_of(data: str | Path) -> list[Path] | None:
    """The files of a folder or a pattern, one for each site; None for a single file.

    Raises
    ------
    DataError
        If there are none that can be read.
    """
    path = Path(data).expanduser()
    if path.is_dir():
        found = sorted(path.iterdir())
    elif not path.exists() and glob.has_magic(str(path)):
        found = sorted(map(Path, glob.glob(str(path))))
    else:
        return None
    files = [
        file for file in found if file.is_file() and ending(file) in ENDINGS and not file.name.startswith(".")
    ]
    if not files:
        raise DataError(
            f"{data} has no file that raydr reads, of {', '.join(ENDINGS)}: give a file, a folder with a file for each"
            " site, or a pattern in quotes, such as 'data/*.csv'."
        )
    return files
