"""An empirical lower bound on epsilon from one run: records made up to be found again, and whether they are.

Each of many canaries is put among the data or not, by a coin. Whoever sees what was released gives each a score, higher
where it seems to be there. If the release is mu-Gaussian differentially private, no test can have both few false alarms
a and few misses b: mu >= Phi^-1(1 - a) - Phi^-1(b) (Dong, Roth & Su 2022). Confidence bounds on both rates (Clopper &
Pearson) make of that a mu, and so an epsilon at delta, that the release surely exceeds. Canaries must not hide one
another: the bound holds where their scores are independent, as those of canaries that move a release in orthogonal
directions are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import BoolArray, Float64Array
from raydr.privacy.accounting import gaussian_epsilon


@dataclass(frozen=True)
class Audited:
    """What canaries say of a release.

    Attributes
    ----------
    epsilon : float
        Lower bound at ``delta``; 0 where they were not found again.
    delta, confidence : float
        Of the bound.
    false_alarms, misses : float
        Upper bounds of both rates.
    """

    epsilon: float
    delta: float
    confidence: float
    false_alarms: float
    misses: float


def audited_epsilon(
    scores: Float64Array, present: BoolArray, threshold: float, delta: float, *, confidence: float = 0.999
) -> Audited:
    """Lower bound on epsilon, wrong in less than ``1 - confidence`` of all runs.

    Parameters
    ----------
    scores : (canaries,)
        Higher where a canary seems to be among the data.
    present : (canaries,)
        Whether it is.
    threshold : float
        Fixed before the scores were seen: above it, a canary is said to be there.
    delta : float
        At which epsilon is told.
    confidence : float
        Of both rates together.
    """
    from scipy.stats import beta, norm

    level = 1.0 - (1.0 - confidence) / 2.0
    alarms, absent = int((scores[~present] > threshold).sum()), int((~present).sum())
    missed, there = int((scores[present] <= threshold).sum()), int(present.sum())

    def most(wrong: int, of: int) -> float:
        return 1.0 if wrong == of else float(beta.ppf(level, wrong + 1, of - wrong))

    false_alarms, misses = most(alarms, absent), most(missed, there)
    mu = float(norm.ppf(1.0 - false_alarms) - norm.ppf(misses)) if max(false_alarms, misses) < 1.0 else 0.0
    epsilon = gaussian_epsilon(1.0 / mu, delta) if mu > 0.0 else 0.0
    return Audited(epsilon, delta, confidence, false_alarms, misses)


def coins(canaries: int, seed: int) -> BoolArray:
    """Which of so many canaries to put among the data, (canaries,), each with probability one half."""
    return np.random.default_rng(seed).random(canaries) < 0.5
