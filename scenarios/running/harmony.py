"""How a scenario has its sites harmonized, once it is known which columns and classes there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from raydr.arrays import Int64Array
from raydr.data import Harmonized, Table
from raydr.data.columns import listing
from raydr.errors import DataError, did_you_mean
from raydr.scenarios.schema.data import LABEL, DataSettings
from raydr.statistics.harmonizing import Harmonizing
from raydr.statistics.site_effects import Covariates


def harmonizing_of(
    data: DataSettings,
    features: Sequence[str],
    words: Mapping[str, Sequence[str]],
    classes: Sequence[str] | None,
) -> Harmonizing | None:
    """What clients are to be asked; None where nothing.

    Parameters
    ----------
    data : DataSettings
        Of the scenario.
    features : sequence of str
        Names of what is mapped.
    words : mapping of column to sequence of str
        Columns that are a feature of zeros and ones for each of these words.
    classes : sequence of str or None
        Names of the classes, where the data have labels.

    Raises
    ------
    DataError
        If something is to be kept that the data do not have.
    """
    if data.harmonize is None:
        return None
    columns: list[str] = []
    for name in data.harmonize.keep:
        if name in words:
            # The first word is what the others differ from; of all of them each would follow from the others.
            columns += [f"{name}={word}" for word in list(words[name])[min(1, len(words[name]) - 1) :]]
        elif name in features:
            columns.append(name)
        elif name not in (data.label, LABEL):
            known = [*words, *features]
            raise DataError(
                f"data.harmonize.keep names {name!r}, which is neither a column that is mapped nor the label"
                f"{did_you_mean(name, known)}. Mapped are {listing(known)}."
            )
    kept = bool({data.label, LABEL} & set(data.harmonize.keep) - {*words, *features})
    if kept and not classes:
        raise DataError(
            "data.harmonize.keep names the label, and the data have none: name its column in data.label."
        )
    places = {name: place for place, name in enumerate(features)}
    covariates = Covariates(tuple(places[column] for column in columns), len(classes or ()) if kept else 0)
    labels = [f"{LABEL}={name}" for name in (classes or ())[1:]] if kept else []
    return Harmonizing(data.harmonize.kind, covariates, (*columns, *labels))


def owners_of(table: Table, names: Sequence[str]) -> Int64Array:
    """Which site's each row of a table is, as an index of ``names``.

    Raises
    ------
    DataError
        If a row is that of a site which maps none: nothing says how to adjust it.
    """
    place = {name: client for client, name in enumerate(names)}
    keys = np.zeros(len(table.rows), np.int64) if table.client_keys is None else table.client_keys
    strange = [
        name for code, name in enumerate(table.client_names) if name not in place and (keys == code).any()
    ]
    if strange or table.client_keys is None:
        raise DataError(
            f"{table.name}: rows of {listing(strange) or 'nobody knows which site'} are to be placed, and"
            " data.harmonize adjusts rows by what those of the same site say, of which none is mapped: leave these rows"
            " out, or map some of them."
        )
    return np.array([place.get(name, -1) for name in table.client_names], np.int64)[keys]


def harmonized_of(harmonizing: Harmonizing | None, features: Sequence[str]) -> Harmonized | None:
    """What data.json says of it before anything has run."""
    if harmonizing is None:
        return None
    kept = tuple(features[column] for column in harmonizing.covariates.columns)
    label = ("the label",) if harmonizing.covariates.classes else ()
    return Harmonized(harmonizing.kind, kept + label, kept)


def notices_of_sites(
    harmonizing: Harmonizing | None, names: Sequence[str], client_of_row: Int64Array
) -> tuple[str, ...]:
    """What there is to say of sites of a single row, which harmonizing takes all of."""
    if harmonizing is None or harmonizing.kind == "combat":
        return ()
    sizes = np.bincount(client_of_row, minlength=len(names))
    alone = [name for name, size in zip(names, sizes, strict=True) if size == 1]
    if not alone:
        return ()
    return (
        f"{listing(alone)}: a single row, which harmonizing takes for what its site is off by: it lies where the mean"
        " of all rows does.",
    )
