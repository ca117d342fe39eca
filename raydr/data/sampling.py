"""Seeded draws of rows: one random stream per purpose, and sub-samples that keep the classes' shares."""

from __future__ import annotations

import numpy as np

from raydr.arrays import FloatArray, Int64Array
from raydr.errors import DataError


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Return the random stream of one purpose, independent of every other purpose under the same seed.

    The purpose is part of the seed sequence, as the number that its letters spell. So sub-sampling draws the
    same rows whatever a partition draws later.

    Raises
    ------
    DataError
        If ``seed`` is negative.
    """
    if seed < 0:
        raise DataError(f"The seed is {seed}, but it must be a whole number of at least 0.")
    return np.random.default_rng(np.random.SeedSequence([seed, int.from_bytes(purpose.encode(), "big")]))


def apportion(shares: FloatArray, total: int, rng: np.random.Generator) -> Int64Array:
    """Round non-negative ``shares`` (parts,) that sum to ``total`` to whole numbers with the same sum.

    Uses largest remainders (Hamilton's method): every part gets its share rounded down or up. Ties are drawn
    at random, so that the order of the parts does not matter.
    """
    counts = np.floor(shares).astype(np.int64)
    short = total - int(counts.sum())
    order = np.lexsort((rng.random(len(shares)), counts - shares))
    counts[order[:short]] += 1
    return counts


def sample_rows(
    rows: int, size: int, labels: Int64Array | None, seed: int, purpose: str = "sub-sample"
) -> Int64Array:
    """Draw ``size`` of ``rows`` row numbers without replacement, in ascending order.

    With ``labels`` (rows,), each class keeps its share to within one row. A class whose share is under one
    row can disappear. The same arguments draw the same rows. Another ``purpose`` draws others.
    """
    rng = stream(seed, purpose)
    if labels is None:
        return np.sort(rng.choice(rows, size=size, replace=False))
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    wanted = apportion(counts * (size / rows), size, rng)
    shuffled = rng.permutation(rows)
    by_class = np.split(shuffled[np.argsort(codes[shuffled], kind="stable")], np.cumsum(counts)[:-1])
    return np.sort(np.concatenate([members[:take] for members, take in zip(by_class, wanted, strict=True)]))
