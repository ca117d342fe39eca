"""How a scenario has its sites harmonized, once it is known which columns and classes there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raydr.data.columns import listing, nearest
from raydr.errors import DataError
from raydr.scenarios.schema import LABEL, DataSettings
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
                f"{nearest(name, known)}. Mapped are {listing(known)}."
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
