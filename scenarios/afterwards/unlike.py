"""Summary of the novelty of placed rows: how many are unlike the mapped rows, and in which columns."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from raydr.arrays import BoolArray, Float64Array, FloatArray
from raydr.data.survey.columns import listing
from raydr.methods.novelty import EACH, NOVEL

_LOGGER = logging.getLogger(__name__)

_CHANCE = 1e-3
"""Probability of a warning about rows drawn like the mapped ones."""
_FAR, _WIDE = 3.0, 2.0
"""Deviations between means, and factor between deviations, from which on a column is named."""
_SAME_FACTOR = 1.15
"""Largest ratio of two factors that may be one change of units."""
_UNIT, _LARGE_UNIT = 1.25, 5.0
"""Least factor of a change of units, for a column that differs much and for any other."""
_SURE = 5.0
"""Least mean, in standard errors, of a column that may be in another unit."""
_NAMED = 3
"""Maximum number of named columns."""
_LEAST_ROWS = 10
"""Known values from which on a column is compared."""


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
    least : int
        Least number of rows behind a figure, by the policy of the run.
    """

    columns: Sequence[str]
    scored: int
    mean: Float64Array
    deviation: Float64Array
    least: int = 1
    rows: int = 0
    novel: int = 0
    _sums: Float64Array = field(init=False, repr=False)
    """Number, sum and sum of squares of each column's known values, relative to the mean."""

    def __post_init__(self) -> None:
        self._sums = np.zeros((3, len(self.columns)))

    def add(self, rows: FloatArray, novelty: Float64Array) -> None:
        """Add rows (rows, features), in the units of the mean and NaN where unknown, and their p-values."""
        self.rows += len(rows)
        self.novel += int((novelty <= NOVEL).sum())
        apart = rows[:, : len(self.mean)] - self.mean
        known = np.isfinite(apart)
        apart = np.where(known, apart, 0.0)
        self._sums += [known.sum(axis=0), apart.sum(axis=0), (apart**2).sum(axis=0)]

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
        if 0 < self.novel < self.least:
            return f"Fewer than {self.least} of {self.rows} rows are novel (p at most {NOVEL:g})."
        found = f"{self.novel} of {self.rows} rows {'is' if self.novel == 1 else 'are'} novel (p at most {NOVEL:g})"
        if not self.unlike:
            return f"{found}. About {round(NOVEL * self.rows)} would be by chance."
        return (
            f"{found}, where about {round(NOVEL * self.rows)} would be by chance: do not trust their places."
        )

    def warn(self, name: str) -> None:
        """Log a warning if the rows, of a file with this name, or their columns are unlike the mapped ones."""
        if self.unlike or self.differing:
            _LOGGER.warning("%s", " ".join([f"{name}: {self.sentence}", *self.differing]))

    @property
    def differing(self) -> tuple[str, ...]:
        """A sentence on each column in which the rows differ most from the mapped rows, the most different first.

        Unless more rows are novel than by chance, only on columns whose values differ by a large factor.
        """
        counts = np.maximum(self._sums[0], 1.0)
        offset = self._sums[1] / counts
        deviation = np.sqrt(np.maximum(self._sums[2] / counts - offset**2, 0.0))
        known = self.deviation > 0.0
        usual = np.where(known, self.deviation, 1.0)
        away = np.where(known, np.abs(offset) / usual, np.where(np.abs(offset) > 0.0, np.inf, 0.0))
        wider = np.where(known, deviation / usual, np.where(deviation > 0.0, np.inf, 1.0))
        worst = np.argsort(
            -np.maximum(away / _FAR, np.maximum(wider, 1.0 / np.maximum(wider, 1e-12)) / _WIDE), kind="stable"
        )
        here, there = offset + self.mean, self.mean
        # Few rows determine the mean and deviation of a column that is seldom not 0: their ratios are chance.
        sure = np.abs(here) * np.sqrt(counts) >= _SURE * deviation
        sure &= np.abs(there) * np.sqrt(self.scored) >= _SURE * self.deviation
        much = np.maximum(away / _FAR, wider / _WIDE) >= 1.0
        much &= self.unlike
        factors = np.divide(here, there, out=np.zeros_like(here), where=there != 0.0)
        unit = sure & _one_factor(factors, wider, np.where(much, _UNIT, _LARGE_UNIT))
        told = self._compared & (unit | much)
        alike: dict[int, list[int]] = {}  # columns with one factor, by the number of their sentence
        sentences: list[str] = []
        for column in worst[told[worst]].tolist():
            same = None
            if unit[column]:
                same = next((n for n, first in alike.items() if _same(wider[first[0]], wider[column])), None)
            if same is not None:
                alike[same].append(column)
            elif len(sentences) == _NAMED:
                continue
            elif unit[column]:
                alike[len(sentences)] = [column]
                sentences.append("")
            else:
                digits = _digits(here[column], there[column])
                sentences.append(
                    f"Column {self.columns[column]!r} has a mean of {here[column]:.{digits}g} and a standard deviation"
                    f" of {deviation[column]:.3g}. The mapped rows have {there[column]:.{digits}g} and"
                    f" {self.deviation[column]:.3g}."
                )
        for number, columns in alike.items():
            everywhere = len(columns) > 1 and len(columns) == int((known & self._compared).sum())
            sentences[number] = self._in_another_unit(columns, float(wider[columns[0]]), everywhere)
        return tuple(sentences)

    @property
    def _compared(self) -> BoolArray:
        """Whether a column (features,) has enough known values."""
        return np.asarray(self._sums[0] >= max(_LEAST_ROWS, self.least))

    def _in_another_unit(self, columns: Sequence[int], times: float, everywhere: bool) -> str:
        """Return a sentence on columns that differ by one factor; ``everywhere`` if these are all that vary."""
        names = listing([self.columns[column] for column in sorted(columns)], _NAMED)
        one = len(columns) == 1
        which = (
            f"All {len(columns)} columns that vary" if everywhere else f"Column{'' if one else 's'} {names}"
        )
        return (
            f"{which} {'has' if one else 'have'} {times:.3g} times the values of the mapped rows."
            f" {'Is it' if one else 'Are they'} in another unit?"
        )


def _digits(here: float, there: float) -> int:
    """Return the significant digits with which two numbers differ by about a thousand units of the last digit."""
    apart = abs(here - there)
    size = max(abs(here), abs(there))
    return 4 if apart == 0.0 else min(17, max(4, 4 + math.floor(math.log10(size / apart))))


def _same(first: float, second: float) -> bool:
    """Return whether two factors may be one change of units."""
    return max(first, second) < _SAME_FACTOR * min(first, second)


def _one_factor(of_means: Float64Array, of_deviations: Float64Array, least: Float64Array) -> BoolArray:
    """Return for which columns one factor of ``least`` or more, or its inverse, explains both ratios."""
    low, high = np.minimum(of_means, of_deviations), np.maximum(of_means, of_deviations)
    return np.asarray((high > 0.0) & (high < _SAME_FACTOR * low) & ((low > least) | (high < 1.0 / least)))


def _least_scored() -> int:
    """Return the number of scored rows from which on p can be NOVEL: five at least share the largest kept score."""
    return round(EACH / NOVEL) - 1
