"""A client's own file: its settings, and its contents read where the file is."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import FloatArray, Int64Array, fingerprint
from raydr.data.loading import ENDINGS, FILLINGS, OTHER_FILES, Missing, ending, load, survey
from raydr.data.provenance import Source
from raydr.data.survey.categories import Speller, Survey, agree
from raydr.data.survey.codebook import Codebook
from raydr.data.survey.columns import Choice, letters, listing
from raydr.data.survey.layout import Categories, Layout
from raydr.data.survey.notices import looks
from raydr.data.survey.raw_cells import raw_layout
from raydr.data.survey.spelling import DEFAULT_THRESHOLD, Threshold
from raydr.data.table import Table
from raydr.errors import DataError
from raydr.privacy.policy import Policy, SitePolicy
from raydr.privacy.policy_file import read_policy
from raydr.sparse_rows import SparseRows
from raydr.wire_types import travels


@travels
@dataclass(kw_only=True, frozen=True)
class SiteFile:
    """Settings for reading one client's rows: see :func:`raydr.data.load` for the fields.

    ``why_dense`` is why a sparse table must be made dense, as a clause with what to do; None if it stays sparse.
    ``policy`` is the file of the site's own policy, next to its data, or the name of a built-in one; None for none.
    ``general`` are policies for all sites.
    """

    path: str
    label: str | None = None
    time: str | None = None
    features: tuple[str, ...] | None = None
    id_column: str | None = None
    missing: Missing = "error"
    categories: Categories = "error"
    threshold: Threshold = DEFAULT_THRESHOLD
    layout: Layout | None = None
    matrix: str | None = None
    exclude: tuple[str, ...] = ()
    codebook: Codebook | None = None
    why_dense: str | None = "this step takes dense rows"
    cells: bool = False
    policy: str | None = None
    general: tuple[Policy, ...] = ()

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The policies that hold for the file, read where the file is."""
        return self.general if self.policy is None else (*self.general, read_policy(self.policy))

    def read(self) -> Table:
        """Read the file, on the machine that has it; make it dense if it must be."""
        table = self.stored()
        return table if self.why_dense is None else table.made_dense(self.why_dense)

    def stored(self) -> Table:
        """Read the file; a sparse table stays sparse. Refuse columns that the site's policy does not allow."""
        table = load(
            path=self.path,
            label=self.label,
            time=self.time,
            features=self.features,
            id_column=self.id_column,
            missing=self.missing,
            categories=self.categories,
            layout=self.layout,
            matrix=self.matrix,
            exclude=self.exclude,
            codebook=self.codebook,
            cells=self.cells,
            for_map=False,  # a site can have a single row
            sparse=True,
        )
        columns = [*table.layout.columns, *filter(None, (self.label, self.time, self.id_column))]
        refused = refusal_of_columns(self.site_policy, columns)
        if refused is not None:
            raise refused
        return table

    @property
    def site_policy(self) -> SitePolicy:
        """The policies of the file, with its name for errors."""
        return SitePolicy(self.policies, Path(self.path).stem)

    def survey(self) -> Survey:
        """Return this site's report on the candidate feature columns; only on those that its policy allows."""
        policy = self.site_policy
        choice = Choice(
            label=self.label,
            time=self.time,
            features=self.features,
            id=self.id_column,
            categories=self.categories,
            matrix=self.matrix,
            threshold=replace(self.threshold, rows=max(self.threshold.rows, policy.least_count)),
            exclude=self.exclude,
            codebook=self.codebook,
            cells=self.cells,
        )
        found = survey(self.path, choice)
        if not policy.rules:
            return found
        kinds = {
            column: kind
            for column, kind in found.kinds.items()
            if policy.first(Policy.refusal_of_column, column) is None
        }
        words = {
            column: words
            for column, words in found.words.items()
            if column in kinds and policy.first(Policy.refusal_of_words, column, len(words)) is None
        }
        return replace(found, kinds=kinds, words=words, least_sites=policy.least_sites)

    @property
    def needs_layout(self) -> bool:
        """Whether sites must agree on the mapped columns before their files are read."""
        surveyed = self.categories != "error" or self.codebook is not None or self.cells
        return self.layout is None and (surveyed or self.missing in FILLINGS)


def laid_out(file: SiteFile, surveys: Sequence[Survey], spell: Speller | None = None) -> Layout:
    """Return which columns of the sites' files are mapped, and in which form. ``file`` has the settings of all sites.

    ``spell`` asks for words that the surveys do not have: see :func:`raydr.data.survey.categories.agree`.

    Raises
    ------
    DataError
        As in :func:`raydr.data.survey.categories.agree`. Also if a column is spelt differently in another file, or
        if a file shares no column with the others.
    """
    where = "The sites' data"
    if file.codebook is not None:
        columns = dict.fromkeys(column for survey in surveys for column in survey.kinds)
        file.codebook.require_columns(list(columns), where, mapped=True)
    least = max(survey.least_sites for survey in surveys)
    layout = (
        raw_layout(
            list(dict.fromkeys(column for survey in surveys for column in survey.kinds)), file.codebook
        )
        if file.cells
        else agree(
            surveys,
            file.categories,
            listed=file.features,
            where=where,
            threshold=replace(file.threshold, sites=max(file.threshold.sites, least)),
            codebook=file.codebook,
            spell=spell,
        )
    )
    there = [
        {column for column in layout.columns if survey.kinds.get(column, "empty") != "empty"}
        for survey in surveys
    ]
    if file.features is None:
        _refuse_other_spellings([set(survey.kinds) for survey in surveys], layout, where)
    for column in layout.columns:
        refused = refusal_of_sites(column, sum(column in own for own in there), least, len(surveys))
        if refused is not None:
            raise refused
    for own in there:
        others = set().union(*(columns for columns in there if columns is not own))
        if own and others and not own & others:
            mine, theirs = (
                listing([column for column in layout.columns if column in which]) for which in (own, others)
            )
            raise DataError(
                f"{where}: one file has only {mine}, and no other file has any of these. The others have {theirs}. So"
                " its rows cannot be compared with the others. Use the same column names in all files."
            )
    return layout


def _refuse_other_spellings(files: Sequence[set[str]], layout: Layout, where: str) -> None:
    """Raise a DataError if two columns differ only in case or punctuation and no file has both."""
    spellings: dict[str, list[str]] = {}
    for column in layout.columns:
        spellings.setdefault(letters(column), []).append(column)
    for spelt, (first, *more) in spellings.items():
        for other in more:
            if spelt and not any({first, other} <= columns for columns in files):
                raise DataError(
                    f"{where}: the column {first!r} is {other!r} in another file, so they would be two columns with"
                    " many missing values. Write it the same way in all files, or list both in data.features."
                )


@dataclass(kw_only=True, frozen=True)
class Census:
    """The driver's knowledge of a client's file: everything but the rows.

    Attributes
    ----------
    ids : (rows,)
        Identities of the rows.
    labels : (rows,) str or None
        Class names, to colour and to evaluate the map.
    features : tuple of str
        Names of the features.
    fingerprint : str
        Hash of the rows, to check that a restarted client has the same rows.
    source : Source
        What was read, and what was left out.
    gaps : (features,) int64
        Number of missing values of each feature.
    looks : (features,) int64
        What each feature looks like: see :func:`raydr.data.survey.notices.looks`.
    doubts : tuple of str
        Sentences on columns that could be read in another way.
    made_dense : int
        Bytes of the dense rows if the file is stored sparse and the run needs them dense; else 0.
    times : (rows,) str or None
        Value of each row in the column of periods.
    policies : tuple of Policy
        The policies that hold for the file.
    """

    ids: NDArray[Any]
    labels: NDArray[Any] | None
    features: tuple[str, ...]
    fingerprint: str
    source: Source
    gaps: Int64Array
    looks: Int64Array
    doubts: tuple[str, ...] = ()
    made_dense: int = 0
    times: NDArray[Any] | None = None
    policies: tuple[Policy, ...] = ()


def census(file: SiteFile) -> Census:
    """Read a file here and return everything about it but the rows."""
    stored = file.stored()
    made_dense = isinstance(stored.rows, SparseRows) and file.why_dense is not None
    table = stored if file.why_dense is None else stored.made_dense(file.why_dense)
    labels = None if table.labels is None else np.asarray(table.label_names, np.str_)[table.labels]
    return Census(
        ids=table.ids,
        labels=labels,
        features=table.features,
        fingerprint=fingerprint(table.rows),
        source=table.read_from,
        gaps=gaps_of(table.rows),
        looks=looks(table.rows),
        doubts=table.doubts,
        made_dense=table.rows.nbytes if made_dense else 0,
        times=None if table.times is None else np.asarray(table.time_names, np.str_)[table.times],
        policies=file.policies,
    )


def refusal_of_columns(policy: SitePolicy, columns: Sequence[str]) -> DataError | None:
    """Return the error if a site's policy does not allow a column; None if it allows all."""
    for column in columns:
        refusal = policy.first(Policy.refusal_of_column, column)
        if refusal is not None:
            return DataError(
                f"{policy.sentence(refusal, 'this run')}. Name it in data.exclude, or name the allowed columns in"
                " data.features."
            )
    return None


def refusal_of_sites(column: str, there: int, least: int, sites: int) -> DataError | None:
    """Return the error if fewer than ``least`` of the sites have a column, by the rule of a site's policy."""
    if there >= min(least, sites):
        return None
    return DataError(
        f"A site's policy has the rule 'least_sites: {least}', which does not allow the column {column!r}: {there} of"
        f" {sites} sites ha{'s' if there == 1 else 've'} a value of it. Name it in data.exclude."
    )


def gaps_of(rows: FloatArray) -> Int64Array:
    """Count the missing values of each feature in rows (rows, features)."""
    if isinstance(rows, SparseRows):
        return rows.gaps
    return np.asarray(np.isnan(rows).sum(axis=0, dtype=np.int64))


@dataclass(frozen=True)
class Site:
    """A client whose rows are read from its own file, and the node with that file (None: any node)."""

    file: SiteFile
    node: str | None
    fingerprint: str


def files_of(data: str | Path) -> list[Path] | None:
    """Return the files of a folder or a pattern, one per site, or None for a single file.

    Raises
    ------
    DataError
        If no file can be read.
    """
    path = Path(data).expanduser()
    if path.is_dir():
        found = [file for file in sorted(path.iterdir()) if ending(file) not in OTHER_FILES]
    elif not path.exists() and glob.has_magic(str(path)):
        found = sorted(map(Path, glob.glob(str(path))))
    else:
        return None
    files = [
        file for file in found if file.is_file() and ending(file) in ENDINGS and not file.name.startswith(".")
    ]
    if not files:
        raise DataError(
            f"{data} has no file that raydr can read ({', '.join(ENDINGS)}). Give a file, a folder with one file per"
            " site, or a pattern in quotes, such as 'data/*.csv'."
        )
    return files
