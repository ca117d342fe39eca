"""The reading of each column of a table, for `raydr check --json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from raydr.data.notices import CODES, MISSING_CODES, MOSTLY_EMPTY, NUMBERING, ONE_VALUE
from raydr.scenarios.running.client_data import ClientData

Role = Literal["mapped", "label", "site", "identity", "held-out mark", "left out"]
_ROLES: Mapping[str, Role] = {
    "the label": "label",
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


@dataclass(frozen=True, kw_only=True)
class ColumnReading:
    """The way in which a run reads a column.

    Attributes
    ----------
    name : str
        Name of the column.
    role : str
        Use of the column.
    kind : {"number", "words"} or None
        What a mapped column holds.
    unit : str or None
        Unit of numbers that are written with one.
    words : tuple of str
        Words of a column of words; each becomes a column of zeros and ones.
    missing : int or None
        Number of its empty cells in the rows that are mapped.
    low, high : float or None
        Least and largest number.
    looks_like : str or None
        What a column of numbers could be instead of a measurement. Its notice says what to do.
    reason : str or None
        Why a column is left out.
    """

    name: str
    role: Role
    kind: Literal["number", "words"] | None = None
    unit: str | None = None
    words: tuple[str, ...] = ()
    missing: int | None = None
    low: float | None = None
    high: float | None = None
    looks_like: str | None = None
    reason: str | None = None


def readings(client_data: ClientData) -> tuple[ColumnReading, ...]:
    """Return how each column is read: mapped columns in their order, then all others."""
    rows, layout = client_data.pooled(), client_data.layout
    lacking = np.isnan(rows).sum(axis=0)
    low, high = np.fmin.reduce(rows, axis=0), np.fmax.reduce(rows, axis=0)
    found, at = [], 0
    for column in layout.columns:
        words = layout.words.get(column, ())
        look = None if client_data.looks is None or words else int(client_data.looks[at])
        is_number = not words and lacking[at] < len(rows)
        found.append(
            ColumnReading(
                name=column,
                role="mapped",
                kind="words" if words else "number",
                unit=layout.units.get(column) or None,
                words=words,
                missing=int(lacking[at]),
                low=float(low[at]) if is_number else None,
                high=float(high[at]) if is_number else None,
                looks_like=None if look is None else _LOOKS.get(look),
            )
        )
        at += len(words) or 1
    others = {column: reason for source in client_data.sources for column, reason in source.left_out.items()}
    for column, reason in others.items():
        role = _ROLES.get(reason, "left out")
        found.append(ColumnReading(name=column, role=role, reason=reason if role == "left out" else None))
    return tuple(found)


def survey_as_json(client_data: ClientData) -> dict[str, Any]:
    """Return rows, sites, columns and notices for a JSON file."""
    sizes = np.bincount(client_data.client_of_row, minlength=len(client_data.names)).tolist()
    return {
        "rows": client_data.rows,
        "sites": [{"name": name, "rows": size} for name, size in zip(client_data.names, sizes, strict=True)],
        "columns": [asdict(column) for column in readings(client_data)],
        "notices": list(client_data.notices),
    }
