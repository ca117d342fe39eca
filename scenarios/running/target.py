"""The label that steers a map, for a scenario."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raydr.arrays import Int64Array
from raydr.data.loading import NO_LABEL
from raydr.errors import DataError
from raydr.report.colouring import colouring
from raydr.scenarios.schema.data import DataSettings
from raydr.statistics.steering import Target


def target_of(data: DataSettings, labels: Int64Array | None, names: Sequence[str]) -> Target | None:
    """Return the label as it enters distances; None if data.target_weight is 0.

    Numbers are a quantity if the page would colour them by value, and else classes.

    Parameters
    ----------
    data : DataSettings
        Data section of the scenario.
    labels : (rows,) int64 or None
        Classes of the mapped rows, indices of ``names``.
    names : sequence of str
        Names of the classes.

    Raises
    ------
    DataError
        If fewer than two classes occur.
    """
    if not data.target_weight:
        return None
    if labels is None:
        raise DataError(
            f"data.target_weight is {data.target_weight:g}, but the data have no label: name its column in data.label,"
            " or leave data.target_weight out."
        )
    found = [names[code] for code in np.unique(labels) if names[code] != NO_LABEL]
    if len(found) < 2:
        raise DataError(
            f"data.target_weight is {data.target_weight:g}, but the rows have"
            f" {f'only the label {found[0]!r}' if found else 'no label at all'}. Leave data.target_weight out, or name"
            " another column in data.label."
        )
    way = colouring("label", found)
    if way.kind == "values":
        return Target(data.target_weight, (), *way.ends)
    return Target(data.target_weight, way.names)


def notices_of_target(data: DataSettings) -> tuple[str, ...]:
    """Return the warning that a map shows its label; empty if labels do not steer."""
    if not data.target_weight:
        return ()
    return (
        f"The map shows the label, which has {data.target_weight:g} of the variance in distances (data.target_weight)."
        " Classes that lie apart are no evidence that the features separate them, so metrics of classes on the map are"
        " left out. Held-out rows (data.holdout) are placed without their label: their accuracy is such evidence.",
    )
