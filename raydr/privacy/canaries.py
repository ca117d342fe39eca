"""Lower bounds on epsilon from noise that was measured: statistics for canaries.

A canary moves Gaussian releases by a shift that is computed without noise, and so is known exactly. The size of the
noise is measured. The sum of squares of ``count`` normal values of deviation s follows s^2 times chi-squared, so

    s <= sqrt(sum of squares / quantile(1 - confidence; count))

but for ``1 - confidence`` of all audits. A shift over a deviation that is surely no larger than this is a mu that the
releases surely do not keep to, and mu is an epsilon at delta (Dong, Roth & Su 2022; Balle & Wang 2018).
"""

from __future__ import annotations

import math

from raydr.privacy.accounting import gaussian_epsilon

CONFIDENCE = 0.999
"""Confidence of each bound: one in 1,000 audits of honest noise calls a claim broken."""


def most_deviation(squares: float, count: int, tests: int = 1) -> float:
    """Return what the deviation of ``count`` normal values is surely no larger than, each of ``tests`` times.

    Parameters
    ----------
    squares : float
        Sum of their squares.
    count : int
        How many there are; of none, the bound is infinite.
    tests : int
        How many such bounds are to hold together with :data:`CONFIDENCE`.
    """
    from scipy.stats import chi2

    if not count:
        return math.inf
    return math.sqrt(squares / float(chi2.ppf((1.0 - CONFIDENCE) / tests, count)))


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Epsilon at ``delta`` of Gaussian releases that are moved by ``mu`` deviations.

    >>> round(epsilon_of_mu(1 / 3.7304, 1e-5), 3)
    1.0
    """
    if math.isinf(mu):
        return math.inf
    return gaussian_epsilon(1.0 / mu, delta) if mu > 0.0 else 0.0
