"""The table that all later steps use: numbers, and the identity of each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import FloatArray, Int64Array
from raydr.data.provenance import Source
from raydr.data.survey.coding import Coding
from raydr.data.survey.layout import Layout
from raydr.data.survey.spelling import Agreement
from raydr.errors import DataError
from raydr.memory import lacking_memory
from raydr.sparse_rows import SparseRows, rows_taken


@dataclass(kw_only=True, frozen=True, eq=False)
class Table:
    """Rows of finite numbers, with their identities and, where the source has them, labels and client keys.

    Attributes
    ----------
    name : str
        The built-in name or the file name, for error messages and reports.
    rows : (rows, features) float32 or float64 array, C-contiguous
        float32 if that holds every value of the source exactly, or else float64. A `SparseRows` if the source is
        sparse and was read so.
    features : tuple of str
        One distinct name per column of ``rows``.
    ids : (rows,) int64 or str array
        The distinct identity of each row in its source. Default: its index from 0. Sub-sampling keeps it.
    labels : (rows,) int64 array or None
        Codes into ``label_names``. They are for colours and metrics, and a method never sees them.
    label_names : tuple of str
        Every class of the source. A sub-sample can have no rows of some.
    times : (rows,) int64 array or None
        Codes into ``time_names``: the value of each row in the column of periods. A method never sees them.
    time_names : tuple of str
        Every time of the source.
    client_keys : (rows,) int64 array or None
        Codes into ``client_names``: the natural owner of each row.
    client_names : tuple of str
        Every owner of the source. A sub-sample can have no rows of some.
    marks : (rows,) int64 array or None
        Codes into ``mark_names``: the value of each row in the column that marks held-out rows.
    mark_names : tuple of str
        Every mark of the source.
    source : Source or None
        What was read and what was left out, or None for a table that was made in memory.
    words : mapping of column to tuple of str
        Words of the source's columns that became one 0/1 feature per word here.
    units : mapping of column to str
        Units of the columns of numbers that some file spells as text.
    codings : mapping of column to Coding
        How columns are read that are more than numbers or words.
    doubts : tuple of str
        Sentences on columns that could be read in another way. They reveal no values.
    agreement : Agreement or None
        What sites reported to agree on the features, or None if they were not asked.
    gaps : bool
        Whether values of ``rows`` can be missing (NaN), for clients to fill in.

    Raises
    ------
    DataError
        If shapes, dtypes or codes disagree, or a value is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> table = Table(name="two", rows=np.eye(2), features=("a", "b"), ids=np.arange(2))
    >>> table.take(np.array([1])).ids
    array([1])
    """

    name: str
    rows: FloatArray
    features: tuple[str, ...]
    ids: NDArray[Any]
    labels: Int64Array | None = None
    label_names: tuple[str, ...] = ()
    times: Int64Array | None = None
    time_names: tuple[str, ...] = ()
    client_keys: Int64Array | None = None
    client_names: tuple[str, ...] = ()
    marks: Int64Array | None = None
    mark_names: tuple[str, ...] = ()
    source: Source | None = None
    gaps: bool = False
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    codings: Mapping[str, Coding] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    agreement: Agreement | None = None

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or self.rows.dtype not in (np.float32, np.float64):
            raise DataError(
                f"Table {self.name!r}: rows must be a (rows, features) float32 or float64 array; "
                f"got shape {self.rows.shape}, {self.rows.dtype}."
            )
        values = self.rows.data if isinstance(self.rows, SparseRows) else self.rows
        if isinstance(values, np.ndarray) and not values.flags.c_contiguous:
            raise DataError(f"Table {self.name!r}: rows must be C-contiguous. Use numpy.ascontiguousarray.")
        if not (np.isfinite(values) if not self.gaps else ~np.isinf(values)).all():
            raise DataError(
                f"Table {self.name!r}: rows have missing or infinite values, but all must be finite."
            )
        if len(self.features) != self.rows.shape[1] or len(set(self.features)) != len(self.features):
            raise DataError(
                f"Table {self.name!r}: {self.rows.shape[1]} columns need the same number of distinct feature names; "
                f"got {len(self.features)}, {len(set(self.features))} of them distinct."
            )
        count = len(self.rows)
        if self.ids.shape != (count,) or not (self.ids.dtype == np.int64 or self.ids.dtype.kind == "U"):
            raise DataError(
                f"Table {self.name!r}: ids must be a ({count},) int64 or str array; "
                f"got shape {self.ids.shape}, {self.ids.dtype}."
            )
        if len(np.unique(self.ids)) != count:
            raise DataError(f"Table {self.name!r}: ids are not distinct.")
        self._check_codes("labels", self.labels, self.label_names)
        self._check_codes("times", self.times, self.time_names)
        self._check_codes("client_keys", self.client_keys, self.client_names)
        self._check_codes("marks", self.marks, self.mark_names)

    def _check_codes(self, field: str, codes: Int64Array | None, names: tuple[str, ...]) -> None:
        if codes is None:
            if names:
                raise DataError(f"Table {self.name!r}: there are names for {field}, but no {field}.")
            return
        if codes.shape != (len(self.rows),) or codes.dtype != np.int64:
            raise DataError(
                f"Table {self.name!r}: {field} must be a ({len(self.rows)},) int64 array; "
                f"got shape {codes.shape}, {codes.dtype}."
            )
        if len(set(names)) != len(names):
            raise DataError(f"Table {self.name!r}: the names for {field} are not distinct.")
        if codes.size and not 0 <= codes.min() <= codes.max() < len(names):
            raise DataError(
                f"Table {self.name!r}: {field} must be codes from 0 to {len(names) - 1}; "
                f"they run from {codes.min()} to {codes.max()}."
            )

    @property
    def layout(self) -> Layout:
        """The columns of the source that are mapped, and how."""
        return Layout.of(self.features, self.words, self.units, self.codings)

    @property
    def read_from(self) -> Source:
        """The source of this table. Raises DataError if it was made in memory."""
        if self.source is None:
            raise DataError(f"Table {self.name!r} was made in memory: it has no source.")
        return self.source

    @property
    def constant_features(self) -> tuple[str, ...]:
        """Names of the features with one value in all rows, which add no distance."""
        rows = self.rows
        if isinstance(rows, SparseRows):
            constant = rows.min(axis=0) == rows.max(axis=0)
        else:
            constant = np.fmin.reduce(rows, axis=0) == np.fmax.reduce(rows, axis=0)
        return tuple(name for name, same in zip(self.features, constant, strict=True) if same)

    def made_dense(self, why: str) -> Table:
        """Return the table with dense rows, because of ``why``, a clause; the same if they are dense.

        Raises
        ------
        DataError
            If the free memory is too small for them.
        """
        if not isinstance(self.rows, SparseRows):
            return self
        lacking = lacking_memory(self.rows.dense_bytes)
        if lacking is not None:
            lacking = lacking[0].upper() + lacking[1:]
            raise DataError(
                f"{self.name} is stored sparse and must be made dense, because {why}. {lacking}."
                " Otherwise map fewer rows or columns."
            )
        return replace(self, rows=np.asarray(self.rows))

    def take(self, index: Int64Array) -> Table:
        """Return the table of the rows ``index``, in that order, under the same names.

        Parameters
        ----------
        index : (taken,) int64 array
            Distinct row numbers, from 0 to ``len(rows) - 1``.
        """
        return replace(
            self,
            rows=rows_taken(self.rows, index),
            ids=self.ids[index],
            labels=None if self.labels is None else self.labels[index],
            times=None if self.times is None else self.times[index],
            client_keys=None if self.client_keys is None else self.client_keys[index],
            marks=None if self.marks is None else self.marks[index],
        )
