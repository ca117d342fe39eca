"""The codebook: how each column of a table is read, as a table that can be corrected by hand.

It has one row for each column of the data, and wins over the survey of the columns. Its content is known to all sites
and to the server. Columns that it does not name are surveyed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, Literal, TypeAlias

from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from raydr.data.survey.clock import DIGITS, SPREADSHEET, days_of
from raydr.data.survey.coding import Coding, Kind
from raydr.data.survey.word_lists import COMMA
from raydr.errors import DataError, did_you_mean
from raydr.settings import Settings
from raydr.wire_types import travels

Role: TypeAlias = Literal["mapped", "label", "time", "site", "identity", "left out"]
KNOBS: Mapping[Role, str] = {
    "label": "data.label",
    "time": "data.time",
    "site": "clients.partition.column",
    "identity": "data.id",
}
"""Keys of a scenario that name the column with a role."""
BETWEEN = " | "
"""Separator of words and missing codes in a cell of the file."""


@travels
class ColumnSettings(Settings):
    """A row of the codebook: how a column of the data is read."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    column: str = Field(description="name of the column")
    role: Role = Field("mapped", description="what the column is used for")
    kind: Kind | None = Field(
        None,
        description="what a mapped column holds; default: what the survey finds. ordinal is words in an order, circular"
        " has a period, time is a time of day, date is mapped as days, count as log(1 + x), pair is"
        " two numbers such as 120/80, and list is words such as fever; cough",
    )
    unit: str | None = Field(
        None,
        description="unit of the numbers. Of dates: empty for ISO dates, spreadsheet or spreadsheet 1904"
        " for the days of a spreadsheet, or a format such as %d.%m.%Y. Of times without a colon, such as 0430: hhmm."
        " Of lists such as fever, cough: a comma",
    )
    low: float | None = Field(
        None,
        description="least number that is possible; known to everybody. Of dates: an ISO date, or days since 1970",
    )
    high: float | None = Field(
        None, description="largest number that is possible, as low; known to everybody"
    )
    words: tuple[str, ...] = Field(
        (), description="words of the column; of an ordinal column from low to high"
    )
    missing: tuple[str, ...] = Field((), description="codes for a missing value, such as -99")
    period: float | None = Field(
        None, gt=0, description="period of a circular column: 24 for hours, 360 for degrees"
    )

    @field_validator("low", "high", mode="before")
    @classmethod
    def _days(cls, limit: Any, read: ValidationInfo) -> Any:
        days = days_of(limit) if isinstance(limit, str) and read.data.get("kind") == "date" else None
        return limit if days is None else days

    @model_validator(mode="after")
    def _consistent(self) -> ColumnSettings:
        if self.role != "mapped" and self.kind is not None:
            raise ValueError(
                f"a column with the role {self.role!r} is not mapped: empty kind, or set role to mapped"
            )
        detailed = self.unit or self.missing or self.low is not None or self.high is not None
        if self.kind is None and detailed:
            raise ValueError("unit, low, high and missing need a kind: set kind, or empty them")
        if len(set(self.words)) < len(self.words) or "" in self.words:
            raise ValueError("words has a word twice or an empty word: list each once")
        if self.words and self.kind not in ("words", "ordinal", "circular", "list"):
            raise ValueError(
                "words needs the kind words, ordinal, circular or list: set kind, or empty words"
            )
        if self.kind == "ordinal" and len(self.words) < 2:
            raise ValueError(f"an ordinal column needs its words from low to high, separated by {BETWEEN!r}")
        if self.kind == "circular" and self.period is None and len(self.words) < 3:
            raise ValueError("a circular column needs its period, or all its words in their order")
        if self.period is not None and self.kind != "circular":
            raise ValueError("period needs the kind circular: set kind, or empty period")
        if self.kind == "date" and self.unit and self.unit not in SPREADSHEET and "%" not in self.unit:
            raise ValueError(
                f"the unit of a date is {self.unit!r}, but must be empty, {', '.join(SPREADSHEET)}, or a format such as"
                " %d.%m.%Y"
            )
        if self.kind == "time" and self.unit not in (None, "", DIGITS):
            raise ValueError(f"the unit of a time is {self.unit!r}, but must be empty or {DIGITS}")
        if self.kind == "list" and self.unit not in (None, "", COMMA):
            raise ValueError(f"the unit of a list is {self.unit!r}, but must be empty or a comma")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low is {self.low:g} and high is {self.high:g}: exchange them")
        if (self.low is not None or self.high is not None) and self.kind in (
            "words",
            "ordinal",
            "circular",
            "pair",
            "time",
            "list",
        ):
            raise ValueError(
                f"low and high are for numbers, counts and dates: empty them, or change the kind {self.kind}"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_empty(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = written(self)
        return {key: value for key, value in content.items() if value not in (None, (), [])}

    @property
    def finds_words(self) -> bool:
        """Whether the survey finds the words of this column."""
        return self.kind in ("words", "list") and not self.words

    @property
    def coding(self) -> Coding | None:
        """How the cells become features, or None if the survey decides or nothing is to be done."""
        if self.role != "mapped" or self.kind is None:
            return None
        return Coding(
            kind=self.kind,
            words=() if self.kind == "words" else self.words,
            missing=self.missing,
            period=self.period,
            unit=self.unit or "",
            low=self.low,
            high=self.high,
        )


@travels
@dataclass(frozen=True)
class Codebook:
    """The rows of a codebook, in their order."""

    rows: tuple[ColumnSettings, ...]

    def __post_init__(self) -> None:
        if len(self.by_name) < len(self.rows):
            names = [row.column for row in self.rows]
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"data.codebook has the column {twice!r} twice: delete one of the two rows.")

    @cached_property
    def by_name(self) -> dict[str, ColumnSettings]:
        """The rows by column."""
        return {row.column: row for row in self.rows}

    @cached_property
    def left_out(self) -> frozenset[str]:
        """Columns that are not mapped and have no other role."""
        return frozenset(row.column for row in self.rows if row.role == "left out")

    @cached_property
    def codings(self) -> dict[str, Coding]:
        """How columns are read whose kind is known."""
        return {row.column: row.coding for row in self.rows if row.coding is not None}

    def of_features(self, available: Sequence[str]) -> Codebook:
        """Return the codebook of a table of features: without columns that it does not have and that are not mapped.

        Columns of other roles are left out.
        """
        return Codebook(
            tuple(
                row if row.role == "mapped" else row.model_copy(update={"role": "left out"})
                for row in self.rows
                if row.role == "mapped" or row.column in available
            )
        )

    def with_role(self, role: Role) -> str | None:
        """Return the first column with a role."""
        return next((row.column for row in self.rows if row.role == role), None)

    def where(self, column: str) -> str:
        """Return the place of a column's row. The line of the names is row 1, as in a spreadsheet.

        >>> Codebook((ColumnSettings(column="age"),)).where("age")
        'row 2 of data.codebook'
        """
        return f"row {list(self.by_name).index(column) + 2} of data.codebook"

    def require_columns(self, available: Sequence[str], where: str, *, mapped: bool = False) -> None:
        """Raise a DataError that names the nearest column if the data do not have a column of the codebook.

        If ``mapped``, only mapped columns are required.
        """
        there = set(available)
        for column, row in self.by_name.items():
            if column not in there and not (mapped and row.role != "mapped"):
                shown = ", ".join(map(repr, available[:12])) + (", ..." if len(available) > 12 else "")
                raise DataError(
                    f"{where} has no column {column!r}, which {self.where(column)} names"
                    f"{did_you_mean(column, available)}. Its columns are {shown}. Correct the name, or delete that row."
                )

    def require_roles(
        self, available: Sequence[str], named: Mapping[str, str], features: Sequence[str] | None
    ) -> None:
        """Raise a DataError if the scenario uses a column of the data in another way.

        Parameters
        ----------
        available : sequence of str
            Columns of the data.
        named : mapping of str to str
            Columns that keys of the scenario name.
        features : sequence of str or None
            Columns of data.features.
        """
        there = set(available)
        uses = {column: knob for knob, column in named.items()} | dict.fromkeys(
            features or (), "data.features"
        )
        for column, row in self.by_name.items():
            if column not in there:
                continue
            knob, use = KNOBS.get(row.role), uses.get(column)
            if row.role == "mapped" and use not in (None, "data.features"):
                remedy = f"{use} names it. Change its role, or name another column there"
            elif row.role == "left out" and use is not None:
                remedy = f"{use} names it. Change its role, or remove it there"
            elif knob is not None and use != knob:
                remedy = f"{knob} does not name it. Set {knob}: {column}, or change its role"
            else:
                continue
            raise DataError(
                f"{self.where(column).capitalize()}: {column!r} has the role {row.role}, but {remedy}."
            )


def codebook_of(given: str | PurePath | Iterable[Any]) -> Codebook:
    """Return the codebook of a file, or of rows as mappings.

    Raises
    ------
    DataError
        If it is no codebook.
    """
    if isinstance(given, str | PurePath):
        return read_codebook(Path(given))
    return Codebook(
        tuple(_row(content, f"The codebook, row {place}") for place, content in enumerate(given, 2))
    )


def _row(content: Any, where: str) -> ColumnSettings:
    try:
        return ColumnSettings.model_validate(content)
    except ValidationError as error:
        raise DataError(f"{where}: {_reasons(error)}.") from None


_KEYS = tuple(ColumnSettings.model_fields)
_LISTS, _NUMBERS = ("words", "missing"), ("low", "high", "period")


def read_codebook(path: Path) -> Codebook:
    """Read a codebook from a CSV file with the keys of :class:`ColumnSettings` in its first line.

    The separator is a comma, a semicolon or a tab. Numbers may have decimal commas if it is not a comma.

    Raises
    ------
    DataError
        If it is no codebook.
    """
    try:
        stored = path.expanduser().read_bytes()
    except OSError as error:
        raise DataError(
            f"The codebook {path} cannot be read ({error.strerror}). Relative paths start from the current directory,"
            f" {Path.cwd()}. `raydr init DATA --codebook {path}` writes a new one."
        ) from error
    try:
        text = stored.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = stored.decode("cp1252", errors="replace")
    first = next((line for line in text.splitlines() if line.strip()), "")
    separator = max(",;\t", key=first.count)
    try:
        read = list(csv.reader(io.StringIO(text), delimiter=separator))
    except csv.Error as error:
        raise DataError(f"The codebook {path} is not a CSV file: {error}.") from error
    names, *records = [[cell.strip() for cell in record] for record in read] or [[]]
    odd = next((name for name in names if name and name not in _KEYS), None)
    if odd is not None or "column" not in names:
        fault = (
            f"has the column {odd[:60]!r}{did_you_mean(odd, _KEYS)}"
            if odd
            else "has no column named 'column'"
        )
        raise DataError(f"The codebook {path} {fault}. Its first line must name some of {', '.join(_KEYS)}.")
    rows = []
    for place, record in enumerate(records, start=2):
        content = {name: cell for name, cell in zip(names, record, strict=False) if name and cell}
        if content:
            parsed = _parsed(content, decimal="." if separator == "," else ",")
            rows.append(_row(parsed, f"The codebook {path}, row {place}"))
    return Codebook(tuple(rows))


def _parsed(content: dict[str, Any], decimal: str) -> dict[str, Any]:
    """Return the cells of a row as values: lists as tuples, numbers with a point."""
    lists = {key: _split(content[key]) for key in _LISTS if key in content}
    numbers = {key: content[key].replace(decimal, ".") for key in _NUMBERS if key in content}
    return content | lists | numbers


def _split(cell: str) -> tuple[str, ...]:
    """Return the words of a cell. Spaces around bars are needed only if a word has a bar."""
    return tuple(word.strip() for word in cell.split(BETWEEN if BETWEEN in cell else BETWEEN.strip()))


def _reasons(error: ValidationError) -> str:
    """Return the first problem of a row in a clause."""
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"][:1]))
    if first["type"] == "literal_error":
        return f"{key} is {first['input']!r}, but must be one of {first['ctx']['expected']}"
    reason = first["msg"].removeprefix("Value error, ")
    return f"{key} is {first['input']!r}: {reason[0].lower() + reason[1:]}" if key else reason


def written(rows: Sequence[ColumnSettings]) -> str:
    """Return a codebook as CSV; :func:`read_codebook` reads it back.

    A byte order mark goes first if spreadsheets need it to find the encoding.
    """
    file = io.StringIO()
    table = csv.DictWriter(file, _KEYS, lineterminator="\n")
    table.writeheader()
    for row in rows:
        table.writerow(
            {
                "column": row.column,
                "role": row.role,
                "kind": row.kind,
                "unit": row.unit,
                **{key: _joined(getattr(row, key)) for key in _LISTS},
                **{key: _number(getattr(row, key)) for key in _NUMBERS},
            }
        )
    text = file.getvalue()
    return text if text.isascii() else f"\ufeff{text}"


def _joined(words: Sequence[str]) -> str:
    """Return words as one cell; empty if a bar in a word would split it. Then the survey finds the words."""
    cell = BETWEEN.join(words)
    return cell if _split(cell) == tuple(words) else ""


def _number(value: float | None) -> str:
    return "" if value is None else str(int(value)) if value == int(value) else repr(value)
