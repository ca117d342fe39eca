"""Composition of several private runs on the same rows.

All charged releases are Gaussian, and Gaussian releases compose exactly: a run of (epsilon, delta) costs what one
release of its noise multiplier costs, and runs of multipliers z_i cost what one of (sum 1 / z_i^2)^-1/2 costs (Dong,
Roth & Su 2022, corollary 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from raydr.privacy.accounting import gaussian_epsilon, gaussian_multiplier
from raydr.privacy.mechanism import Relation, Unit

OUTSIDE = (
    "Outside of it: the best point is chosen by metrics of the raw data, and the metrics and the page of each trial"
    " show all rows."
)
"""A sentence on what the total of a sweep does not cover."""


@dataclass(frozen=True)
class RunCost:
    """The cost of one run, as its ``privacy.json`` has it.

    Attributes
    ----------
    epsilon : float or None
        Of the whole run; None where it is infinite.
    accounted : float
        Of those of its releases that are charged; 0 where none is.
    delta : float
        At which both are stated.
    unit : {"record", "client"} or None
        What the charged releases hide; None where none is charged.
    relation : {"zero-out", "replace-one"} or None
        Under which relation.
    """

    epsilon: float | None
    accounted: float
    delta: float
    unit: Unit | None
    relation: Relation | None


@dataclass(frozen=True, kw_only=True)
class Composition:
    """The cost of several runs together.

    Attributes
    ----------
    epsilon : float or None
        Of all of them; None where it is infinite.
    delta : float
        At which it is stated.
    accounted : float or None
        Of all charged releases; None where they are of different units or relations.
    runs : int
        How many are counted.
    infinite : int
        How many of them have no epsilon.
    unfinished : int
        How many of them did not come to their end, and are counted as if they had.
    """

    epsilon: float | None
    delta: float
    accounted: float | None
    runs: int
    infinite: int
    unfinished: int

    @property
    def words(self) -> str:
        """A sentence or two for people."""
        count = f"{self.runs} run{'s' * (self.runs != 1)}"
        whole = f", {self.unfinished} of them unfinished and counted as whole" if self.unfinished else ""
        if self.epsilon is not None:
            return f"All {count} together cost epsilon {self.epsilon:.4g} at delta {self.delta:g}{whole}."
        if not self.infinite:
            return f"All {count} together have no epsilon: their claims are of different units or relations{whole}."
        some = "" if self.accounted is None else f" What noise covers in them comes to {self.accounted:.4g}."
        return (
            f"All {count} together have no epsilon, since {self.infinite} of them"
            f" {'has' if self.infinite == 1 else 'have'} none{whole}.{some}"
        )


def composed(costs: Sequence[RunCost], delta: float, *, unfinished: int = 0) -> Composition:
    """Return the cost of runs on the same rows, at ``delta``.

    Parameters
    ----------
    costs : sequence of RunCost
        One for each run.
    delta : float
        At which the total is stated.
    unfinished : int
        How many of the runs did not come to their end.

    >>> two = composed([RunCost(1.0, 1.0, 1e-5, "record", "zero-out")] * 2, 1e-5)
    >>> round(two.epsilon, 2), two.runs
    (1.45, 2)
    """
    claims = {(cost.unit, cost.relation) for cost in costs if cost.unit is not None}
    infinite = sum(cost.epsilon is None for cost in costs)
    spent = math.fsum(
        gaussian_multiplier(cost.accounted, cost.delta) ** -2 for cost in costs if cost.accounted
    )
    accounted = None
    if len(claims) < 2:
        accounted = gaussian_epsilon(1.0 / math.sqrt(spent), delta) if spent else 0.0
    return Composition(
        epsilon=None if infinite else accounted,
        delta=delta,
        accounted=accounted,
        runs=len(costs),
        infinite=infinite,
        unfinished=unfinished,
    )
