"""Summary of the novelty of placed rows: how many are unlike the mapped rows, and in which columns."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.methods.novelty import EACH, NOVEL

_LOGGER = logging.getLogger(__name__)

_CHANCE = 1e-3
"""Probability of a warning about rows drawn like the mapped ones."""
_FAR, _WIDE = 3.0, 2.0
"""Deviations between means, and factor between deviations, from which on a column is named."""
_SAME_FACTOR = 1.15
"""Largest ratio of two factors that may be one change of units."""
_UNIT = 1.25
"""Least factor of a change of units."""
_NAMED = 3
"""Maximum number of named columns."""
_LEAST_ROWS = 10
"""Rows from which on columns are compared."""


@dataclass
class Unlike:
    """Novelty of placed rows, block by block.

    Attributes
    ----------
    columns : sequence of str
        Names of the features.
    scored : int
        Mapped rows that the new rows are compared with.
    mean, deviation : (features,) float64
        Of the mapped rows. Empty if columns cannot be compared.
    """

    columns: Sequence[str]
    scored: int
    mean: Float64Array
    deviation: Float64Array
    rows: int = 0
    novel: int = 0
    _sums: Float64Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._sums = np.zeros((2, len(self.columns)))

    def add(self, rows: FloatArray, novelty: Float64Array) -> None:
        """Add rows (rows, features), in the units of the mapped rows' mean, and their p-values."""
        self.rows += len(rows)
        self.novel += int((novelty <= NOVEL).sum())
        apart = rows[:, : len(self.mean)] - self.mean
        self._sums += [apart.sum(axis=0), (apart**2).sum(axis=0)]

    @property
    def unlike(self) -> bool:
        """Whether more rows are novel than in one of a thousand tables of rows drawn like the mapped rows.

        The number of novel rows of such a table is beta-binomial at most, because p-values are ranks among the same
        scores.
        """
        from scipy.stats import betabinom

        below = int(NOVEL * (self.scored + 1))
        if self.scored < _least_scored():
            return False
        return bool(betabinom.sf(self.novel - 1, self.rows, below, self.scored + 1 - below) < _CHANCE)

    @property
    def sentence(self) -> str:
        """How many rows are novel, for people."""
        if self.scored < _least_scored():
            return (
                f"The map has {self.scored} rows to compare with, too few to call a row novel at {NOVEL:g}: that takes"
                f" {_least_scored()}."
            )
        found = f"{self.novel} of {self.rows} rows {'is' if self.novel == 1 else 'are'} novel (p at most {NOVEL:g})"
        if not self.unlike:
            return f"{found}. About {round(NOVEL * self.rows)} would be by chance."
        return (
            f"{found}, where about {round(NOVEL * self.rows)} would be by chance: do not trust their places."
        )

    def warn(self, name: str) -> None:
        """Log a warning if the rows, of a file with this name, are unlike the mapped rows."""
        if self.unlike:
            _LOGGER.warning("%s", " ".join([f"{name}: {self.sentence}", *self.differing]))

    @property
    def differing(self) -> tuple[str, ...]:
        """A sentence on each column in which the rows differ most from the mapped rows, the most different first."""
        if self.rows < _LEAST_ROWS or not self.unlike:
            return ()
        offset = self._sums[0] / self.rows
        deviation = np.sqrt(np.maximum(self._sums[1] / self.rows - offset**2, 0.0))
        known = self.deviation > 0.0
        usual = np.where(known, self.deviation, 1.0)
        away = np.where(known, np.abs(offset) / usual, np.where(np.abs(offset) > 0.0, np.inf, 0.0))
        wider = np.where(known, deviation / usual, np.where(deviation > 0.0, np.inf, 1.0))
        worst = np.argsort(-np.maximum(away / _FAR, wider / _WIDE), kind="stable")
        sentences = []
        for column in worst[:_NAMED]:
            if away[column] < _FAR and wider[column] < _WIDE:
                continue
            name, here, there = f"Column {self.columns[column]!r}", offset + self.mean, self.mean
            if _one_factor(here[column] / there[column] if there[column] else 0.0, float(wider[column])):
                sentences.append(
                    f"{name} has {wider[column]:.3g} times the values of the mapped rows. Is it in another unit?"
                )
            else:
                sentences.append(
                    f"{name} has a mean of {here[column]:.4g} and a standard deviation of {deviation[column]:.3g}."
                    f" The mapped rows have {there[column]:.4g} and {self.deviation[column]:.3g}."
                )
        return tuple(sentences)


def _one_factor(of_means: float, of_deviations: float) -> bool:
    """Return whether one factor, which is not near 1, explains the ratios of means and of standard deviations."""
    low, high = sorted((of_means, of_deviations))
    return 0.0 < high < _SAME_FACTOR * low and (low > _UNIT or high < 1.0 / _UNIT)


def _least_scored() -> int:
    """Return the number of scored rows from which on p can be NOVEL: five at least share the largest kept score."""
    return round(EACH / NOVEL) - 1
