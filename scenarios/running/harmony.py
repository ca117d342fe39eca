"""Harmonizing of sites for a scenario, given its columns and classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raydr.arrays import Int64Array
from raydr.data import Harmonized, Layout, Table
from raydr.data.survey.columns import listing
from raydr.errors import DataError, did_you_mean
from raydr.scenarios.schema.data import LABEL, DataSettings
from raydr.statistics.harmonizing import Harmonizing
from raydr.statistics.site_effects import Covariates


def harmonizing_of(
    data: DataSettings,
    layout: Layout,
    classes: Sequence[str] | None,
) -> Harmonizing | None:
    """Return how to harmonize sites; None without data.harmonize.

    Parameters
    ----------
    data : DataSettings
        Data section of the scenario.
    layout : Layout
        The mapped columns and their features.
    classes : sequence of str or None
        Names of the classes; None if the data have no labels.

    Raises
    ------
    DataError
        If data.harmonize.keep names something that the data do not have.
    """
    if data.harmonize is None:
        return None
    columns: list[str] = []
    features = layout.features
    for name in data.harmonize.keep:
        if name in layout.columns:
            parts = layout.names_of(name)
            # The first word is the reference level; with all words, each would follow from the others.
            columns += parts[min(1, len(parts) - 1) :] if name in layout.words else parts
        elif name in features:
            columns.append(name)
        elif name not in (data.label, LABEL):
            known = list(dict.fromkeys([*layout.columns, *features]))
            raise DataError(
                f"data.harmonize.keep names {name!r}, which is neither a mapped column nor the label"
                f"{did_you_mean(name, known)}. Mapped columns: {listing(known)}."
            )
    kept = bool({data.label, LABEL} & set(data.harmonize.keep) - {*layout.columns, *features})
    if kept and not classes:
        raise DataError(
            "data.harmonize.keep names the label, but the data have none: name its column in data.label."
        )
    places = {name: place for place, name in enumerate(features)}
    covariates = Covariates(tuple(places[column] for column in columns), len(classes or ()) if kept else 0)
    labels = [f"{LABEL}={name}" for name in (classes or ())[1:]] if kept else []
    return Harmonizing(data.harmonize.kind, covariates, (*columns, *labels))


def owners_of(table: Table, names: Sequence[str]) -> Int64Array:
    """Return the site of each row of a table, as an index of ``names``.

    Raises
    ------
    DataError
        If a row belongs to a site without mapped rows, whose adjustment is unknown.
    """
    place = {name: client for client, name in enumerate(names)}
    keys = np.zeros(len(table.rows), np.int64) if table.client_keys is None else table.client_keys
    strange = [
        name for code, name in enumerate(table.client_names) if name not in place and (keys == code).any()
    ]
    if strange or table.client_keys is None:
        raise DataError(
            f"{table.name} has held-out rows of {listing(strange) or 'an unknown site'}, which has no mapped rows, so"
            " data.harmonize cannot adjust them: leave these rows out, or map some rows of the site."
        )
    return np.array([place.get(name, -1) for name in table.client_names], np.int64)[keys]


def harmonized_of(harmonizing: Harmonizing | None, features: Sequence[str]) -> Harmonized | None:
    """Return the part of data.json about harmonizing, as known before the run."""
    if harmonizing is None:
        return None
    kept = tuple(features[column] for column in harmonizing.covariates.columns)
    label = ("the label",) if harmonizing.covariates.classes else ()
    return Harmonized(harmonizing.kind, kept + label, kept)


def notices_of_sites(
    harmonizing: Harmonizing | None, names: Sequence[str], client_of_row: Int64Array
) -> tuple[str, ...]:
    """Return a notice about sites with a single row, whose values harmonizing removes completely."""
    if harmonizing is None or harmonizing.kind == "combat":
        return ()
    sizes = np.bincount(client_of_row, minlength=len(names))
    alone = [name for name, size in zip(names, sizes, strict=True) if size == 1]
    if not alone:
        return ()
    return (
        f"{listing(alone)}: only one row. Harmonizing removes all its differences from the mean: it lies at the mean of"
        " all rows.",
    )
