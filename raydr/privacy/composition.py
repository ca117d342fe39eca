"""Composition of several private runs on the same rows.

All charged releases are Gaussian, and Gaussian releases compose exactly. A run with (epsilon, delta) costs the same as
one release with its noise multiplier. Runs with multipliers z_i cost the same as one with multiplier (sum 1 /
z_i^2)^-1/2 (Dong, Roth & Su 2022, corollary 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from raydr.plain import short_number
from raydr.privacy.accounting import gaussian_epsilon, gaussian_multiplier
from raydr.privacy.mechanism import Relation, Unit

OUTSIDE = (
    "This total leaves out two things. The best point is chosen by metrics of the raw data. The metrics and the"
    " page of each trial show all rows."
)
"""Sentences on what the total of a sweep does not cover."""


@dataclass(frozen=True)
class RunCost:
    """The cost of one run, as stated in its ``privacy.json``.

    Attributes
    ----------
    epsilon : float or None
        Epsilon of the whole run; None if it is infinite.
    accounted : float
        Epsilon of the charged releases; 0 if nothing is charged.
    delta : float
        Delta at which both are stated.
    unit : {"record", "client"} or None
        Unit of the charged releases; None if nothing is charged.
    relation : {"zero-out", "replace-one"} or None
        Relation of the charged releases; None if nothing is charged.
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
        Epsilon of all runs; None if it is infinite.
    delta : float
        Delta at which it is stated.
    accounted : float or None
        Epsilon of all charged releases; None if their units or relations differ.
    runs : int
        Number of runs.
    infinite : int
        Number of runs without an epsilon.
    unfinished : int
        Number of runs that did not finish. They are counted as complete.
    """

    epsilon: float | None
    delta: float
    accounted: float | None
    runs: int
    infinite: int
    unfinished: int

    @property
    def words(self) -> str:
        """The cost in one or two sentences."""
        count = f"{self.runs} run{'s' * (self.runs != 1)}"
        whole = f", with {self.unfinished} unfinished and counted as complete" if self.unfinished else ""
        if self.epsilon is not None:
            return f"All {count} together cost epsilon {self.epsilon:.4g} at delta {short_number(self.delta)}{whole}."
        if not self.infinite:
            return f"All {count} together have no common epsilon: their units or relations differ{whole}."
        some = f" The releases under noise cost epsilon {self.accounted:.4g}." if self.accounted else ""
        return (
            f"All {count} together have no epsilon, because {self.infinite} of them"
            f" {'has' if self.infinite == 1 else 'have'} none{whole}.{some}"
        )


def composed(costs: Sequence[RunCost], delta: float, *, unfinished: int = 0) -> Composition:
    """Return the total cost of runs on the same rows, at ``delta``.

    Parameters
    ----------
    costs : sequence of RunCost
        One for each run.
    delta : float
        Delta at which the total is stated.
    unfinished : int
        Number of the runs that did not finish.

    >>> two = composed([RunCost(1.0, 1.0, 1e-5, "record", "zero-out")] * 2, 1e-5)
    >>> round(two.epsilon, 2), two.runs
    (1.47, 2)
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
