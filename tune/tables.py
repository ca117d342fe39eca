"""Published tables as sweeps: cells with their scenarios and the paper's numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from raydr.runfolder.records import COSTS
from raydr.scenarios.schema.reading import copied, override
from raydr.settings import Settings

NOTHING = "-"
"""Mark for a missing number of the paper."""
_NUMBER = re.compile(r"(-?\d*\.?\d+)(?:\s*±\s*(\d*\.?\d+))?")


@dataclass(frozen=True)
class PublishedNumber:
    """A paper's number, its standard deviation if printed, and half a unit of its last digit."""

    value: float
    deviation: float | None
    rounding: float


def number(text: str) -> PublishedNumber | None:
    """Read a number as papers print it; return None for :data:`NOTHING`.

    Raises
    ------
    ValueError
        If the text is not a number.

    Examples
    --------
    >>> number("0.70 ± 0.02")
    PublishedNumber(value=0.7, deviation=0.02, rounding=0.005)
    >>> number("-") is None
    True
    """
    text = text.strip()
    if text == NOTHING:
        return None
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a number: write 0.97, 0.97 ± 0.01, or {NOTHING} for none")
    value, deviation = found.groups()
    return PublishedNumber(
        float(value), float(deviation) if deviation else None, 0.5 * 10.0 ** -len(value.partition(".")[2])
    )


def _numbers(line: str) -> str:
    for text in line.split("|"):
        number(text)
    return line


Numbers = Annotated[str, AfterValidator(_numbers)]
"""Numbers of a row, one for each column, separated by bars: ``0.97 ± 0.01 | 0.70 | -``."""


class CellSettings(Settings):
    """Settings of a column, a row or a group of rows for its cells."""

    name: str = Field(min_length=1, max_length=100, description="name in the paper")
    set: dict[str, Any] = Field({}, description="values of the scenario by dotted key")
    published: dict[str, Any] = Field(
        {}, description="values by dotted key in which the run as published differs"
    )
    absent: str | None = Field(
        None, description="why its cells cannot be run, such as data that are not available"
    )
    pooled: str | None = Field(
        None, description="name of the column or group whose cells have the pooled-data values of these"
    )


class TableColumn(CellSettings):
    """A column of a table."""

    side: Literal["federated", "central"] = Field(
        "federated",
        description="whether its cells are for the federated or the pooled-data map",
    )


class TableRow(Settings):
    """A row of a table."""

    name: str = Field(min_length=1, max_length=100, description="name in the paper")
    metric: str = Field(description="name of a metric, or of a cost such as seconds or bytes_up")
    numbers: Numbers | None = Field(
        None, description=f"the paper's numbers, one for each column, separated by bars; {NOTHING} for none"
    )
    set: dict[str, Any] = Field({}, description="values of the scenario by dotted key")
    published: dict[str, Any] = Field(
        {}, description="values by dotted key in which the run as published differs"
    )


class RowGroup(CellSettings):
    """Group of rows of a table."""

    name: str = Field("", max_length=100, description="name in the paper; empty if rows are not grouped")
    rows: tuple[TableRow, ...] = Field((), description="its rows; default: those of the table")


class TableSearch(Settings):
    """Cells of a published table; each is a scenario, a metric of its map, and the paper's number."""

    paper: str = Field(description="the paper")
    where: str = Field(description="number of the table or figure in the paper")
    title: str = Field(description="what the table compares")
    says: str = Field("", description="explanation of the cells, if names do not suffice")
    substituted: tuple[str, ...] = Field(
        (), description="replacements for what is not available, with reasons"
    )
    unmeasured: str | None = Field(None, description="why nothing of the table can be run")
    published: dict[str, Any] = Field(
        {}, description="values by dotted key in which every run as published differs from raydr's defaults"
    )
    columns: tuple[TableColumn, ...] = Field((), description="its columns")
    rows: tuple[TableRow, ...] = Field((), description="rows of every group without rows of its own")
    groups: tuple[RowGroup, ...] = Field((RowGroup(),), description="its groups of rows")
    reduced: dict[str, Any] = Field(
        {}, description="settings that were changed to shorten a run, by key; written by raydr"
    )
    kind: Literal["table"] = "table"

    @model_validator(mode="after")
    def _cells(self) -> Self:
        if self.unmeasured is None and not (self.columns and all(map(self.rows_of, self.groups))):
            raise ValueError("it has no cells: give columns and rows, or a reason in unmeasured")
        columns, groups = [column.name for column in self.columns], [group.name for group in self.groups]
        _require_distinct(columns, "columns")
        _require_distinct(groups, "groups")
        for group in self.groups:
            _require_distinct([row.name for row in self.rows_of(group)], f"rows of {group.name!r}")
        for place, names in [(c, columns) for c in self.columns] + [(g, groups) for g in self.groups]:
            if place.pooled is not None and place.pooled not in names:
                raise ValueError(
                    f"{place.name!r} has its pooled values in {place.pooled!r}, which does not exist"
                )
        for group in self.groups:
            for row in self.rows_of(group):
                if row.numbers is not None and row.numbers.count("|") + 1 != len(columns):
                    raise ValueError(
                        f"the row {group.name} {row.name} has {row.numbers.count('|') + 1} numbers for"
                        f" {len(columns)} columns"
                    )
        return self

    @property
    def metrics(self) -> list[str]:
        """Distinct names of the measures of the rows."""
        return list(dict.fromkeys(row.metric for group in self.groups for row in self.rows_of(group)))

    def rows_of(self, group: RowGroup) -> tuple[TableRow, ...]:
        """Return the rows of a group: its own, or those of the table."""
        return group.rows or self.rows

    @property
    def of_defaults(self) -> TableSearch:
        """The same table without the runs as published."""

        def stripped(place: Any) -> Any:
            return place.model_copy(update={"published": {}})

        groups = tuple(
            stripped(group).model_copy(update={"rows": tuple(map(stripped, group.rows))})
            for group in self.groups
        )
        changed = {"columns": tuple(map(stripped, self.columns)), "rows": tuple(map(stripped, self.rows))}
        return self.model_copy(update={**changed, "published": {}, "groups": groups})

    def of_names(self, names: tuple[str, ...]) -> TableSearch:
        """Return the table with only these rows, groups of rows and columns, and what holds their pooled values.

        Without a name of a row all rows are kept, and all columns without a name of a column. A name of both means the
        row. ``reduced`` records the names.

        Raises
        ------
        ValueError
            If there is no such row, group or column.
        """
        columns = dict.fromkeys(column.name for column in self.columns)
        rows = dict.fromkeys(
            name
            for group in self.groups
            for name in (group.name, *(row.name for row in self.rows_of(group)))
            if name
        )
        for name in names:
            if name not in rows and name not in columns:
                raise ValueError(
                    f"there is no row or column {name!r}; rows are {', '.join(rows)}; columns are {', '.join(columns)}"
                )
        table, reduced = self, dict(self.reduced)
        if of_rows := [name for name in names if name in rows]:
            table, reduced["rows"] = table._of_rows(of_rows), of_rows
        if of_columns := [name for name in names if name not in rows]:
            table, reduced["columns"] = table._of_columns(of_columns), of_columns
        return table.model_copy(update={"reduced": reduced})

    def _of_rows(self, names: list[str]) -> TableSearch:
        kept: dict[str, set[str]] = {}
        for group in self.groups:
            rows = {row.name for row in self.rows_of(group) if group.name in names or row.name in names}
            for name in {group.name, group.pooled or group.name} if rows else ():
                kept.setdefault(name, set()).update(rows)
        chosen = [
            (group, tuple(row for row in self.rows_of(group) if row.name in kept.get(group.name, ())))
            for group in self.groups
        ]
        groups = tuple(group.model_copy(update={"rows": rows}) for group, rows in chosen if rows)
        return self.model_copy(update={"groups": groups})

    def _of_columns(self, names: list[str]) -> TableSearch:
        wanted = set(names)
        while more := {c.pooled for c in self.columns if c.name in wanted and c.pooled} - wanted:
            wanted |= more
        kept = [column.name in wanted for column in self.columns]

        def cut(rows: tuple[TableRow, ...]) -> tuple[TableRow, ...]:
            return tuple(
                row
                if row.numbers is None
                else row.model_copy(update={"numbers": "|".join(compress(row.numbers.split("|"), kept))})
                for row in rows
            )

        groups = tuple(group.model_copy(update={"rows": cut(group.rows)}) for group in self.groups)
        changed = {"columns": tuple(compress(self.columns, kept)), "rows": cut(self.rows), "groups": groups}
        return self.model_copy(update=changed)


def _require_distinct(names: list[str], what: str) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"two {what} have the name {twice[0]!r}")


@dataclass(kw_only=True, frozen=True)
class TableCell:
    """A cell of a table.

    Attributes
    ----------
    group, row, column : str
        Names of the group, row and column.
    measure : str
        Name of the measure in a trial's row.
    published : PublishedNumber or None
        The paper's number.
    absent : str or None
        Why the cell cannot be run.
    default, as_published : mapping of dotted key to value, or None
        Changes of the base for its scenarios; None if there is nothing to run, or no difference as published.
    pooled : tuple of str, or None
        Group, row and column of the cell with the pooled-data value; None if the cell's own run may have it.
    """

    group: str
    row: str
    column: str
    measure: str
    published: PublishedNumber | None
    absent: str | None
    default: Mapping[str, Any] | None
    as_published: Mapping[str, Any] | None
    pooled: tuple[str, str, str] | None


def cells(table: TableSearch) -> Iterator[TableCell]:
    """Yield the cells of a table, row by row."""
    for group in table.groups:
        for row in table.rows_of(group):
            line = row.numbers.split("|") if row.numbers is not None else [NOTHING] * len(table.columns)
            for column, text in zip(table.columns, line, strict=True):
                published = number(text)
                absent = table.unmeasured or column.absent or group.absent
                default = {**column.set, **group.set, **row.set}
                differs = {**table.published, **column.published, **group.published, **row.published}
                runs = absent is None
                elsewhere = column.pooled is not None or group.pooled is not None
                yield TableCell(
                    group=group.name,
                    row=row.name,
                    column=column.name,
                    measure=row.metric if row.metric in COSTS else f"{column.side}.{row.metric}",
                    published=published,
                    absent=absent,
                    default=default if runs else None,
                    # The pooled-data map is the same as in the default run.
                    as_published={**default, **differs, "compare": []}
                    if runs and differs and column.side == "federated"
                    else None,
                    pooled=(group.pooled or group.name, row.name, column.pooled or column.name)
                    if elsewhere
                    else None,
                )


def contents(
    base: Mapping[str, Any], table: TableSearch
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield values by dotted key, and the scenario, of every cell's runs; many cells share them."""
    for cell in cells(table):
        for values in (cell.default, cell.as_published):
            if values is not None:
                yield values, content_of(base, table, values)


def content_of(base: Mapping[str, Any], table: TableSearch, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scenario of a cell: the base with the cell's values and the metrics of all rows."""
    content = {**copied(base), "metrics": [name for name in table.metrics if name not in COSTS]}
    for key, value in values.items():
        override(content, key, value)
    return content
