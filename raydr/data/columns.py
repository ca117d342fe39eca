"""What every reader hands to the loader: a matrix as it is stored, and the columns that name its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import BoolArray, Int64Array
from raydr.data.layout import Categories, Layout
from raydr.data.spelling import DEFAULT_THRESHOLD, Agreement, Threshold
from raydr.errors import DataError, did_you_mean

NOT_LISTED = "not in data.features"
"""Why a column is not read that could have been."""


@dataclass(frozen=True)
class Alike:
    """The features of another file, ``what``: their names in order, and whether it named them or they were counted.

    With a ``layout`` some of its columns are more than one feature. Where columns are ``filled``, some may be absent:
    they are missing in every row.
    """

    what: str
    columns: tuple[str, ...]
    named: bool
    layout: Layout | None = None
    filled: bool = False

    def pick(self, name: str, available: Sequence[str], named: bool) -> list[str]:
        """Return which of the columns that are available the features are, in their order.

        Raises
        ------
        DataError
            When one is not there; or when the columns have no names, and there are names to match or another number
            of columns.
        """
        if not named:
            if len(available) == len(self.columns) and not (self.named and tuple(available) != self.columns):
                return list(available)
            names = f", which have names: {listing(self.columns)}" if self.named else ""
            raise DataError(
                f"{name} has {len(available)} columns without names, and {self.what} has {len(self.columns)}{names}."
                " Give a file with the same columns, and where they have names, with these (in a .npz file an array"
                " feature_names)."
            )
        lacking = [column for column in self.columns if column not in available]
        spare = [column for column in available if column not in self.columns]
        if self.filled and len(lacking) < len(self.columns):
            # What differs in case or signs alone is the column, and is not to be filled in.
            spelt = {letters(column) for column in spare}
            lacking = [column for column in lacking if letters(column) in spelt]
        if lacking:
            raise DataError(
                f"{name} lacks {len(lacking)} of the {len(self.columns)} columns of {self.what}: {listing(lacking)}"
                f"{did_you_mean(lacking[0], spare)}. Its other columns are {listing(spare) or 'none'}. Columns are"
                " matched by name, in whatever order: name them as there."
            )
        return list(self.columns)


@dataclass(kw_only=True, frozen=True)
class Choice:
    """The columns that the user named, or those of another file; None leaves one to the defaults.

    ``categories`` says what becomes of columns of text, and ``layout``, where there is one, which columns are features
    and as what; those that are ``absent`` are then missing in every row. ``matrix`` is which of an .h5ad
    file's is meant. ``threshold`` says which words sites may tell.
    """

    label: str | None = None
    features: tuple[str, ...] | None = None
    client: str | None = None
    id: str | None = None
    marks: str | None = None
    alike: Alike | None = None
    categories: Categories = "error"
    layout: Layout | None = None
    absent: bool = False
    matrix: str | None = None
    threshold: Threshold = DEFAULT_THRESHOLD

    @property
    def named(self) -> dict[str, str]:
        """Knob -> column for the columns that are not features."""
        pairs = {
            "data.label": self.label,
            "clients.partition.column": self.client,
            "data.id": self.id,
            "data.holdout.column": self.marks,
        }
        return {knob: column for knob, column in pairs.items() if column is not None}

    def pick_features(
        self, name: str, available: Sequence[str], default: Sequence[str], *, named: bool = True
    ) -> list[str]:
        """Return the names of the feature columns: those listed, else ``default`` less the named columns.

        ``named`` tells whether the source names its columns, or they are counted.

        Raises
        ------
        DataError
            For a listed feature that does not exist, is listed twice or is the label, client or id as well,
            and when no feature is left.
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
            features = [column for column in default if column not in self.named.values()]
        else:
            features = list(self.features)
            for feature in features:
                require(feature, available, knob="data.features", where=name)
            refuse_repeats(features, where="data.features", remedy="list each feature once")
            for knob, column in self.named.items():
                if column in features:
                    raise DataError(
                        f"{name}: the column {column!r} is both {knob} and one of data.features, so the map "
                        f"would be drawn from it; take it out of one of the two."
                    )
        if not features:
            raise DataError(
                f"{name} has no feature column left: its columns are {listing(available)}, and data.label, "
                f"clients.partition.column and data.id are not features. Add a numeric column or list data.features."
            )
        return features


@dataclass(frozen=True, eq=False)
class Key:
    """A categorical column: ``codes`` (rows,) int64 into ``names``, -1 where the cell is empty."""

    column: str
    codes: Int64Array
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Identity:
    """The id column: ``values`` (rows,) int64 or str, and which cells are ``missing``."""

    column: str
    values: NDArray[Any]
    missing: BoolArray


@dataclass(kw_only=True, frozen=True, eq=False)
class Columns:
    """A source as stored: nothing dropped, sampled or converted yet.

    ``matrix`` is (rows, features) of a real dtype with NaN for empty cells; ``locate`` says where a row
    stands for the reader of an error message ("line 7"). ``named`` tells whether the source names its features, or
    they are counted; ``unread`` are its other columns, each with the reason why nothing reads it; ``words`` are
    those of columns that were made columns of zeros and ones, and ``strange`` what else these hold, by column;
    ``absent`` are features that it does not have. Of a part of a source ``first`` is the number of its first row.
    ``agreement`` is what its sites said to agree on the features, if they did.
    """

    name: str
    matrix: NDArray[Any]
    features: tuple[str, ...]
    label: Key | None
    client: Key | None
    identity: Identity | None
    locate: Callable[[int], str]
    marks: Key | None = None
    named: bool = True
    unread: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    strange: Mapping[str, Sequence[str]] = field(default_factory=dict)
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
                f"{self.name}: the name {odd!a} holds half a letter, which no file can; correct it."
            )

    @property
    def keys(self) -> list[Key]:
        """The categorical columns that there are."""
        return [key for key in (self.label, self.client, self.marks) if key is not None]

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """The numbers of the features, and of the columns that name the rows."""
        return [self.matrix, *(key.codes for key in self.keys)]

    @property
    def left_out(self) -> dict[str, str]:
        """Every column that is no feature, with the reason."""
        keys = {
            "the mark of rows that are held out": self.marks,
            "the label": self.label,
            "the client": self.client,
            "the identity of rows": self.identity,
        }
        return {key.column: what for what, key in keys.items() if key is not None} | dict(self.unread)


def cells(name: str, column: str, raw: NDArray[Any]) -> tuple[NDArray[Any], BoolArray]:
    """Return a key column as comparable values, and which of its cells are empty.

    Text is stripped of surrounding blanks; a cell of nothing else is empty, as is NaN. Dates become text.
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
        f"{name}: the column {column!r} holds {raw.dtype} values, which cannot name labels, clients or rows; "
        f"use numbers or text."
    )


def encode(column: str, values: NDArray[Any], missing: BoolArray) -> Key:
    """Number the distinct values of a column in their sorted order; whole numbers are spelt without ".0"."""
    distinct, inverse = np.unique(values[~missing], return_inverse=True)
    codes = np.full(len(values), -1, dtype=np.int64)
    codes[~missing] = inverse
    return Key(column, codes, tuple(spell(value) for value in distinct))


def spell(value: Any) -> str:
    """A value as text; whole numbers without ".0"."""
    whole = isinstance(value, np.floating) and value.is_integer()
    return str(int(value)) if whole else str(value)


def identify(column: str, values: NDArray[Any], missing: BoolArray) -> Identity:
    """Return an id column as int64 where that holds every id exactly, else as text."""
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
        return Identity(column, np.where(missing, 0, values).astype(np.int64), missing)
    return Identity(column, np.array([spell(value) for value in values], dtype=np.str_), missing)


def reads_as_number(text: str) -> bool:
    """Whether a cell of text would be read as a number (Python's ``1_000`` would not)."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def first_text(values: Iterable[tuple[int, str]]) -> tuple[int, str] | None:
    """Return the (row, text) that keeps a column of text from being numbers.

    The first cell that does not read as a number; where all do (numbers stored as text), the first cell.
    """
    first: tuple[int, str] | None = None
    for row, text in values:
        if not reads_as_number(text):
            return row, text
        first = first or (row, text)
    return first


def require(column: str, available: Sequence[str], *, knob: str, where: str) -> None:
    """Raise a DataError that names the nearest column when ``column`` is not one of ``available``."""
    if column not in available:
        raise DataError(
            f"{where} has no column {column!r}, which {knob} names{did_you_mean(column, available)}. "
            f"Its columns are {listing(available)}."
        )


def refuse_repeats(names: Sequence[str], *, where: str, remedy: str) -> None:
    """Raise a DataError that lists the names that occur more than once."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{where} has more than one column named {listing(repeated)}; {remedy}.")


def letters(name: str) -> str:
    """Letters and digits of a name, small."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def listing(names: Sequence[str], limit: int = 12) -> str:
    """Return names for a message, quoted; past ``limit`` only how many more there are."""
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
