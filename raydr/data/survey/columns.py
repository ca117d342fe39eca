"""The columns of a source: the matrix as stored, and the columns that name its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import BoolArray, Int64Array
from raydr.data.survey.codebook import Codebook
from raydr.data.survey.coding import Coding
from raydr.data.survey.layout import Categories, Layout
from raydr.data.survey.spelling import DEFAULT_THRESHOLD, Agreement, Threshold
from raydr.errors import DataError, did_you_mean

NAMELESS = "(no name)"
"""How a column without a name is listed."""
EXCLUDED = "in data.exclude"
LEFT_OUT = "left out in data.codebook"
NOT_LISTED = "not in data.features"
"""Reasons why a column that could be read is not."""


@dataclass(frozen=True)
class Alike:
    """The features of another file, ``what``: their names in order, and whether the file names or numbers them.

    With a ``layout``, some of its columns are more than one feature. If columns are ``filled``, some can be
    absent. They are then missing in every row. A warning names words that only the new rows have unless ``names_words``
    is False.
    """

    what: str
    columns: tuple[str, ...]
    named: bool
    layout: Layout | None = None
    filled: bool = False
    names_words: bool = True

    def pick(self, name: str, available: Sequence[str], named: bool) -> list[str]:
        """Return the available columns that are the features, in the order of the other file.

        Raises
        ------
        DataError
            If a column is absent. If the columns have no names, but names or another number of columns are
            needed.
        """
        if not named:
            if len(available) == len(self.columns) and not (self.named and tuple(available) != self.columns):
                return list(available)
            names = f", with the names {listing(self.columns)}" if self.named else ""
            raise DataError(
                f"{name} has {len(available)} columns without names, but {self.what} has {len(self.columns)}{names}."
                " Give a file with the same columns. If they have names there, give the same names (in a .npz file, in"
                " an array feature_names)."
            )
        lacking = [column for column in self.columns if column not in available]
        spare = [column for column in available if column not in self.columns]
        if self.filled and len(lacking) < len(self.columns):
            # A column that differs only in case or punctuation is the same column, and must not be filled in.
            spelt = {letters(column) for column in spare}
            lacking = [column for column in lacking if letters(column) in spelt]
        if lacking:
            raise DataError(
                f"{name} does not have {len(lacking)} of the {len(self.columns)} columns of {self.what}:"
                f" {listing(lacking)}{did_you_mean(lacking[0], spare)}. Its other columns are"
                f" {listing(spare) or 'none'}. Columns are matched by name, in any order. Use the same names."
            )
        return list(self.columns)


@dataclass(kw_only=True, frozen=True)
class Choice:
    """The columns that the user named, or those of another file. None means the default.

    ``categories`` decides what to do with columns of text. ``layout``, if given, lists the columns that are
    features and their form. If ``absent``, columns of the layout can be absent, and are then missing in every
    row. ``matrix`` is the matrix to read from an .h5ad file. ``threshold`` limits the words that sites may
    reveal. If ``cells``, each cell is read by itself (:mod:`raydr.data.survey.raw_cells`). Columns to
    ``exclude`` are not features. The ``codebook`` decides how its columns are read. If ``join_spellings``,
    spellings of a site's name are one site.
    """

    label: str | None = None
    features: tuple[str, ...] | None = None
    time: str | None = None
    client: str | None = None
    id: str | None = None
    marks: str | None = None
    alike: Alike | None = None
    categories: Categories = "error"
    layout: Layout | None = None
    absent: bool = False
    matrix: str | None = None
    threshold: Threshold = DEFAULT_THRESHOLD
    exclude: tuple[str, ...] = ()
    codebook: Codebook | None = None
    join_spellings: bool = False
    cells: bool = False

    @property
    def surveyed(self) -> bool:
        """Whether each column is mapped as what it holds, not as numbers."""
        return self.categories != "error" or self.codebook is not None

    @property
    def named(self) -> dict[str, str]:
        """Key -> column for the columns that are not features."""
        pairs = {
            "data.label": self.label,
            "data.time": self.time,
            "clients.partition.column": self.client,
            "data.id": self.id,
            "data.holdout.column": self.marks,
        }
        return {knob: column for knob, column in pairs.items() if column is not None}

    def pick_features(
        self, name: str, available: Sequence[str], default: Sequence[str], *, named: bool = True
    ) -> list[str]:
        """Return the names of the feature columns: those listed, or else ``default`` without the named columns.

        ``named`` is whether the source names its columns, or they are numbered.

        Raises
        ------
        DataError
            If a listed feature does not exist, is listed twice, or is also the label, client or id. If no
            feature is left.
        """
        if self.alike is not None:
            return self.alike.pick(name, available, named)
        if self.layout is not None:
            there = set(available)
            for feature in self.layout.columns:
                if not self.absent and feature not in there:
                    require(feature, available, knob="data.features", where=name)
            return list(self.layout.columns)
        if self.features is None:
            spare = {*self.named.values(), *self.exclude}
            if self.codebook is not None:
                spare |= self.codebook.left_out
            features = [column for column in default if column not in spare]
        else:
            features = list(self.features)
            for feature in features:
                require(feature, available, knob="data.features", where=name)
            refuse_repeats(features, where="data.features", remedy="list each feature once")
            for knob, column in self.named.items():
                if column in features:
                    raise DataError(
                        f"{name}: the column {column!r} is both {knob} and one of data.features, so the map "
                        f"would use it as a feature. Remove it from one of the two."
                    )
        if not features:
            raise DataError(
                f"{name} has no feature column left. Its columns are {listing(available)}, and data.label, "
                f"data.time, clients.partition.column and data.id are not features. Add a numeric column or list "
                f"data.features."
            )
        return features


@dataclass(frozen=True, eq=False)
class Key:
    """A categorical column: ``codes`` (rows,) int64 into ``names``, -1 where the cell is empty."""

    column: str
    codes: Int64Array
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class IdColumn:
    """The id column: ``values`` (rows,) int64 or str, and which cells are ``missing``."""

    column: str
    values: NDArray[Any]
    missing: BoolArray


@dataclass(kw_only=True, frozen=True, eq=False)
class Columns:
    """The columns of a source as stored, before rows are dropped, sampled or converted.

    ``matrix`` is (rows, features) of a real dtype, with NaN for empty cells. ``locate`` describes the place
    of a row for error messages ("line 7"). ``named`` is whether the source names its features, or they are
    numbered. ``unread`` maps its other columns to the reason why they are not read. ``words`` are the words
    of columns that became 0/1 columns, and ``strange`` the other words of these columns. ``units`` are those of
    numbers that some file spells as text, and ``codings`` how columns of other kinds are read. ``doubts`` are
    sentences on columns that could be read in another way. ``absent`` are features that it does not have. For a
    part of a source, ``first`` is the number of its first row. ``agreement`` is what its sites reported to agree on
    the features, if they did.
    """

    name: str
    matrix: NDArray[Any]
    features: tuple[str, ...]
    label: Key | None
    client: Key | None
    identity: IdColumn | None
    locate: Callable[[int], str]
    marks: Key | None = None
    time: Key | None = None
    named: bool = True
    unread: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    strange: Mapping[str, Sequence[str]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    codings: Mapping[str, Coding] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    first: int = 0
    agreement: Agreement | None = None

    def __post_init__(self) -> None:
        names = [*self.features, *self.left_out]
        for key in self.keys:
            names += key.names
        if self.identity is not None and self.identity.values.dtype.kind == "U":
            names += self.identity.values.tolist()
        odd = next((name for name in names if any("\ud800" <= letter <= "\udfff" for letter in name)), None)
        if odd is not None:
            raise DataError(
                f"{self.name}: the name {odd!a} holds half a surrogate pair, which no file can store. Correct it."
            )

    @property
    def keys(self) -> list[Key]:
        """The categorical columns of this source."""
        return [key for key in (self.label, self.time, self.client, self.marks) if key is not None]

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """The numbers of the features, and the codes of the columns that name the rows."""
        return [self.matrix, *(key.codes for key in self.keys)]

    @property
    def left_out(self) -> dict[str, str]:
        """Every column that is not a feature, with the reason."""
        keys = {
            "the mark of rows that are held out": self.marks,
            "the label": self.label,
            "the time": self.time,
            "the client": self.client,
            "the identity of rows": self.identity,
        }
        return {key.column: what for what, key in keys.items() if key is not None} | dict(self.unread)


def cells(name: str, column: str, raw: NDArray[Any]) -> tuple[NDArray[Any], BoolArray]:
    """Return the comparable values of a key column, and which of its cells are empty.

    Text is stripped of surrounding blanks. A blank cell and NaN are empty. Dates become text.
    """
    kind = raw.dtype.kind
    if kind == "S":
        try:
            raw = np.strings.decode(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{name}: the column {column!r} is not UTF-8 text ({error.reason}).") from error
        kind = "U"
    if kind == "U":
        stripped = np.strings.strip(raw)
        return stripped, stripped == ""
    if kind == "f":
        return raw, np.isnan(raw)
    if kind in "mM":
        return raw.astype(np.str_), np.isnat(raw)
    if kind in "biu":
        return raw, np.zeros(raw.shape, dtype=np.bool_)
    raise DataError(
        f"{name}: the column {column!r} holds {raw.dtype} values, which cannot name labels, clients or rows. "
        f"Use numbers or text."
    )


def encode(column: str, values: NDArray[Any], missing: BoolArray) -> Key:
    """Number the distinct values of a column in sorted order. Whole numbers are spelt without ".0"."""
    distinct, inverse = np.unique(values[~missing], return_inverse=True)
    codes = np.full(len(values), -1, dtype=np.int64)
    codes[~missing] = inverse
    return Key(column, codes, tuple(spell(value) for value in distinct))


def spell(value: Any) -> str:
    """Return a value as text, with whole numbers spelt without ".0"."""
    whole = isinstance(value, np.floating) and value.is_integer()
    return str(int(value)) if whole else str(value)


def identify(column: str, values: NDArray[Any], missing: BoolArray) -> IdColumn:
    """Return an id column as int64 if that holds every id exactly, or else as text."""
    known = values[~missing]
    if values.dtype.kind in "bi":
        whole = True
    elif values.dtype.kind == "u":
        whole = not known.size or int(known.max()) <= np.iinfo(np.int64).max
    elif values.dtype.kind == "f":
        whole = bool(np.all(known == np.floor(known)) and np.all(np.abs(known) < 2**53))
    else:
        whole = False
    if whole:
        return IdColumn(column, np.where(missing, 0, values).astype(np.int64), missing)
    return IdColumn(column, np.array([spell(value) for value in values], dtype=np.str_), missing)


def reads_as_number(text: str) -> bool:
    """Whether a cell of text would be read as a number (Python's ``1_000`` would not)."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def first_text(values: Iterable[tuple[int, str]]) -> tuple[int, str] | None:
    """Return the (row, text) of the cell that makes a column text.

    This is the first cell that does not read as a number. If all do (numbers stored as text), it is the first
    cell.
    """
    first: tuple[int, str] | None = None
    for row, text in values:
        if not reads_as_number(text):
            return row, text
        first = first or (row, text)
    return first


def require(column: str, available: Sequence[str], *, knob: str, where: str) -> None:
    """Raise a DataError that names the nearest column if ``column`` is not ``available``."""
    if column not in available:
        raise DataError(
            f"{where} has no column {column!r}, which {knob} names{did_you_mean(column, available)}. "
            f"Its columns are {listing(available)}."
        )


def refuse_repeats(names: Sequence[str], *, where: str, remedy: str) -> None:
    """Raise a DataError that lists the names that occur more than once."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{where} has more than one column named {listing(repeated)}: {remedy}.")


def letters(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def listing(names: Sequence[str], limit: int = 12) -> str:
    """Return names for a message, quoted. After ``limit`` names, give only the number of the rest."""
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
