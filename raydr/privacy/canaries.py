"""Statistics for canaries: lower bounds on epsilon from measured noise.

A canary moves Gaussian releases by a shift. The shift is computed without noise, so it is known exactly. The size of
the noise is measured. The sum of squares of ``count`` normal values with deviation s follows s^2 times a chi-squared
distribution, so

    s <= sqrt(sum of squares / quantile(1 - confidence; count))

holds in all but ``1 - confidence`` of the audits. The shift divided by this bound on the deviation is a lower bound on
mu. With delta, mu gives an epsilon (Dong, Roth & Su 2022; Balle & Wang 2018).
"""

from __future__ import annotations

import math

from raydr.privacy.accounting import gaussian_epsilon

CONFIDENCE = 0.999
"""Confidence of each bound: one in 1,000 audits of correct noise reports a broken claim."""


def most_deviation(squares: float, count: int, tests: int = 1) -> float:
    """Return an upper confidence bound on the deviation of ``count`` normal values.

    Parameters
    ----------
    squares : float
        Sum of their squares.
    count : int
        Number of values; for none, the bound is infinite.
    tests : int
        Number of such bounds that hold together with confidence :data:`CONFIDENCE`.
    """
    from scipy.stats import chi2

    if not count:
        return math.inf
    return math.sqrt(squares / float(chi2.ppf((1.0 - CONFIDENCE) / tests, count)))


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Return the epsilon at ``delta`` of Gaussian releases that are moved by ``mu`` deviations.

    >>> round(epsilon_of_mu(1 / 3.7304, 1e-5), 3)
    1.0
    """
    if math.isinf(mu):
        return math.inf
    return gaussian_epsilon(1.0 / mu, delta) if mu > 0.0 else 0.0
