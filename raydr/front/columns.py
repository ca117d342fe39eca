"""The reading of each column of a table, for `raydr check --json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from raydr.data.survey.codebook import ColumnSettings, written
from raydr.data.survey.coding import Coding, Kind
from raydr.data.survey.notices import CODES, MISSING_CODES, MOSTLY_EMPTY, NUMBERING, ONE_VALUE, classes_among
from raydr.errors import FeatureError
from raydr.plain import listed
from raydr.report.run.mapped import FEW_COLUMNS, Fact
from raydr.scenarios.running.client_data import ClientData
from raydr.scenarios.schema.scenario import Scenario
from raydr.statistics.dissimilarity import Transformation
from raydr.statistics.preparing import Preparation
from raydr.statistics.scaling import Scaling, filled

Role = Literal["mapped", "label", "time", "site", "identity", "held-out mark", "left out"]
_ROLES: Mapping[str, Role] = {
    "the label": "label",
    "the time": "time",
    "the client": "site",
    "the identity of rows": "identity",
    "the mark of rows that are held out": "held-out mark",
}
_LOOKS = {
    NUMBERING: "identity",
    CODES: "codes of categories",
    MISSING_CODES: "has a code for missing values",
    MOSTLY_EMPTY: "mostly empty",
    ONE_VALUE: "one value at each site",
}


_PLAIN = Coding(kind="number")
_MOST_NUMBERS, _MOST_ROWS = 20_000_000, 2_000
"""Numbers of a table of whose rows all are looked at, and rows for Gower's distance, whose rows are wide."""


@dataclass(frozen=True, kw_only=True)
class ColumnReading:
    """The way in which a run reads a column.

    Attributes
    ----------
    name : str
        Name of the column.
    role : str
        Use of the column.
    kind : str or None
        What a mapped column holds: see :class:`raydr.data.survey.coding.Coding`.
    unit : str or None
        Unit of numbers that are written with one.
    words : tuple of str
        Words of a column of words; each becomes a column of zeros and ones. Words of an ordinal column from low to
        high.
    missing_codes : tuple of str
        Cells that are missing values by the codebook.
    period : float or None
        Period of a circular column.
    variance_share : float or None
        Its share of the variance of all columns after scaling: see :func:`variance_shares`.
    missing : int or None
        Number of its empty cells in the rows that are mapped.
    low, high : float or None
        Least and largest number.
    looks_like : str or None
        What a column could be instead of a measurement, or ``class``. Its notice says what to do.
    reason : str or None
        Why a column is left out.
    """

    name: str
    role: Role
    kind: Kind | None = None
    unit: str | None = None
    words: tuple[str, ...] = ()
    missing_codes: tuple[str, ...] = ()
    period: float | None = None
    variance_share: float | None = None
    missing: int | None = None
    low: float | None = None
    high: float | None = None
    looks_like: str | None = None
    reason: str | None = None


def readings(scenario: Scenario, client_data: ClientData) -> tuple[ColumnReading, ...]:
    """Return how each column is read: mapped columns in their order, then all others."""
    shares = variance_shares(scenario, client_data)
    rows, layout = client_data.pooled(), client_data.layout
    lacking = np.isnan(rows).sum(axis=0)
    low, high = np.fmin.reduce(rows, axis=0), np.fmax.reduce(rows, axis=0)
    classes = set(classes_among(layout.columns)) if client_data.labels is None else set()
    found = []
    for column, place in layout.places.items():
        at, words, coding = place.start, layout.words.get(column, ()), layout.codings.get(column, _PLAIN)
        raw = coding.kind == "cell"  # what it holds is for the noisy survey to find
        kind = None if coding.kind == "cell" else "words" if words else coding.kind
        absent = np.isnan(rows[:, place]).all(axis=1).sum() if raw else lacking[at]
        plain = kind in ("number", "ordinal")
        look = int(client_data.looks[at]) if client_data.looks is not None and plain else None
        is_number = kind == "number" and lacking[at] < len(rows)
        found.append(
            ColumnReading(
                name=column,
                role="mapped",
                kind=kind,
                unit=layout.units.get(column) or coding.unit or None,
                words=words or coding.words,
                missing_codes=coding.missing,
                period=coding.period,
                variance_share=shares.get(column),
                missing=int(absent),
                low=float(low[at]) if is_number else coding.low,
                high=float(high[at]) if is_number else coding.high,
                looks_like="class" if column in classes else None if look is None else _LOOKS.get(look),
            )
        )
    others = {column: reason for source in client_data.sources for column, reason in source.left_out.items()}
    for column, reason in others.items():
        role = _ROLES.get(reason, "left out")
        found.append(ColumnReading(name=column, role=role, reason=reason if role == "left out" else None))
    return tuple(found)


def variance_shares(scenario: Scenario, client_data: ClientData) -> dict[str, float]:
    """Return the share of each mapped column in the variance of all columns; empty if nothing varies or it is surveyed.

    The rows are filled in, scaled and transformed for the metric as in the run, by statistics of all rows, or of every
    n-th row of a large table. Sites are not harmonized. The mean squared distance of two rows is twice the variance, so
    this is also the column's share in it.

    Raises
    ------
    DataError
        If the metric does not suit a column.
    """
    if scenario.method.surveys_columns:
        return {}
    rows, layout, data = client_data.pooled(), client_data.layout, scenario.data
    joint = layout.joint
    if np.isnan(rows).any():
        middle = np.nanmean if client_data.filling == "mean" else np.nanmedian
        rows = filled(rows, middle(rows, axis=0).astype(np.float64))
    ends = rows.min(axis=0).astype(np.float64), rows.max(axis=0).astype(np.float64)
    try:
        transformation = Transformation.of_columns(data.metric, *ends, joint)
    except FeatureError as error:
        raise error.of(client_data.feature_names) from None
    parts = np.maximum(transformation.cells[2], 1).astype(np.int64)  # features that a feature becomes
    if parts.size:
        variance = transformation.applied(rows[:: len(rows) // _MOST_ROWS + 1]).var(axis=0, dtype=np.float64)
        variance = np.add.reduceat(variance, np.cumsum([0, *parts[:-1]]))
    else:
        plain = Preparation(Scaling(np.zeros(1), np.ones(1)), transformation=transformation)
        scaled = plain.without_harmonizing(rows[:: rows.size // _MOST_NUMBERS + 1], data.scale, joint)
        variance = scaled.var(axis=0, dtype=np.float64)
    total = float(variance.sum())
    if not total:
        return {}
    # Rounded, because the last digits depend on the order of the rows.
    return {column: round(float(variance[place].sum()) / total, 6) for column, place in layout.places.items()}


def shares_of_columns(scenario: Scenario, client_data: ClientData) -> Fact:
    """Return a line on the columns' shares in the variance, the largest first."""
    if scenario.method.surveys_columns:
        return Fact("Share of the variance", "equal for all columns that the noisy survey of the run finds")
    shares = sorted(variance_shares(scenario, client_data).items(), key=lambda share: -share[1])
    each = [f"{column} {share:.1%}" for column, share in shares]
    return Fact("Share of the variance", listed(each, FEW_COLUMNS) or "none: all rows are equal")


def survey_as_json(scenario: Scenario, client_data: ClientData) -> dict[str, Any]:
    """Return rows, sites, columns and notices for a JSON file."""
    sizes = np.bincount(client_data.client_of_row, minlength=len(client_data.names)).tolist()
    return {
        "rows": client_data.rows,
        "sites": [{"name": name, "rows": size} for name, size in zip(client_data.names, sizes, strict=True)],
        "columns": [asdict(column) for column in readings(scenario, client_data)],
        "notices": list(client_data.notices),
    }


def written_codebook(scenario: Scenario, client_data: ClientData) -> str:
    """Return the codebook of a table as CSV: what the survey found, to be corrected by hand.

    Limits of numbers are only those of the codebook that the scenario has. Everybody knows a codebook, and the least
    and largest number of the rows are values of two of them.
    """
    known = client_data.layout.codings
    rows = [
        ColumnSettings(
            column=found.name,
            role=found.role,
            kind=found.kind,
            unit=found.unit,
            low=known.get(found.name, _PLAIN).low,
            high=known.get(found.name, _PLAIN).high,
            words=found.words,
            missing=found.missing_codes,
            period=found.period,
        )
        for found in readings(scenario, client_data)
        if found.role != "held-out mark"
    ]
    return written(rows)
