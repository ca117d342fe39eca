"""Robust estimators: averages that a few lying clients can move only within bounds.

One client can move a mean anywhere. The rules here combine the contributions of ``n`` clients, stacked as ``(clients,
...)`` float64, so that ``f`` liars cannot, whatever they send:

================== ======================== =====================================================================
rule               withstands               then the aggregate lies
================== ======================== =====================================================================
coordinate median  f < n / 2                between the least and the largest honest value, in each coordinate
trimmed mean (k)   f <= k < n / 2           between the least and the largest honest value, in each coordinate
Krum, multi-Krum   f <= attackers,          within ``D sqrt((n - a - 2) / (n - 2 a - 1))`` of the convex hull of
(a = attackers)    n >= 2 attackers + 3     the honest, whose diameter is D; Krum's even of one of them
norm bound         f < n / 2                in the ball around 0 of the largest honest norm times ``multiple``,
                                            or of the absolute ``limit`` (then for any f)
================== ======================== =====================================================================

A test checks each of these bounds. The results do not depend on the order of the clients, bit for bit. Either only
sorted values are added, or clients are first sorted by their contributions alone.
"""

from __future__ import annotations

import hashlib

import numpy as np

from raydr.arrays import Float64Array, Int64Array

BLOCK_ENTRIES = 2**22
"""Entries of a block of coordinates, 32 MB: distances between clients are summed over blocks."""


def coordinate_median(contributions: Float64Array) -> Float64Array:
    """Return the median over clients of each coordinate (Yin et al. 2018, definition 1).

    Parameters
    ----------
    contributions : (clients, ...)
        Contributions of at least one client.

    Returns
    -------
    median : (...)
        The mean of the two middle values if the number of clients is even.

    Examples
    --------
    >>> coordinate_median(np.array([[1.0, 5.0], [2.0, 6.0], [1e9, -1e9]]))
    array([2., 5.])
    """
    return np.asarray(np.median(contributions, axis=0))


def trimmed_mean(contributions: Float64Array, trim: int) -> Float64Array:
    """Return the mean over clients of each coordinate, without its ``trim`` least and largest values.

    Yin et al. 2018, definition 2; equals ``scipy.stats.trim_mean(contributions, trim / clients)``.

    Parameters
    ----------
    contributions : (clients, ...)
        Contributions of more than ``2 * trim`` clients.
    trim : int
        At least 0.

    Examples
    --------
    >>> trimmed_mean(np.array([1.0, 2.0, 6.0, 1e9, -1e9]), 1)
    array(3.)
    """
    clients = contributions.shape[0]
    return np.asarray(np.sort(contributions, axis=0)[trim : clients - trim].mean(axis=0))


def multi_krum(contributions: Float64Array, attackers: int, keep: int) -> Float64Array:
    """Return the mean of the ``keep`` contributions closest to their neighbours (Blanchard et al. 2017).

    ``keep=1`` is Krum. The score of a client is the sum of its squared distances to its ``clients - attackers - 2``
    nearest others; the lowest scores are kept. Krum returns the contribution of one client, so honest clients must
    resemble each other.

    Parameters
    ----------
    contributions : (clients, ...)
        Contributions of at least ``2 * attackers + 3`` clients.
    attackers : int
        Number of clients that may lie.
    keep : int
        From 1 to ``clients - attackers``.

    Examples
    --------
    >>> multi_krum(np.array([[1.0, 0.0], [1.1, 0.0], [1.2, 0.0], [1.3, 0.0], [-9.0, 0.0]]), 1, keep=1)
    array([1.1, 0. ])
    """
    flat = contributions.reshape(contributions.shape[0], -1)
    order = _order_by_content(flat)
    best = np.argsort(_krum_scores(flat, order, attackers), kind="stable")[:keep]
    return np.asarray(flat[order[best]].mean(axis=0).reshape(contributions.shape[1:]))


def norm_bounded_mean(
    contributions: Float64Array, *, limit: float | None = None, multiple: float = 1.0
) -> Float64Array:
    """Return the mean of contributions, after scaling longer ones down to a norm (Sun et al. 2019).

    Parameters
    ----------
    contributions : (clients, ...)
        Contributions of at least one client.
    limit : float, optional
        Largest Euclidean norm of a contribution.
    multiple : float
        Without a limit, the largest norm is ``multiple`` times the median of the clients' norms.

    Examples
    --------
    >>> norm_bounded_mean(np.array([[3.0, 0.0], [0.0, 3.0], [0.0, 3e9]]))
    array([1., 2.])
    """
    flat = contributions.reshape(contributions.shape[0], -1)
    with np.errstate(over="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", flat, flat))
    bound = multiple * float(np.median(norms)) if limit is None else limit
    total = np.zeros(flat.shape[1])
    for client in _order_by_content(flat):
        # A client whose norm is too large for a double counts as zero.
        total += flat[client] * (bound / norms[client] if norms[client] > bound else 1.0)
    return np.asarray((total / len(flat)).reshape(contributions.shape[1:]))


def _order_by_content(flat: Float64Array) -> Int64Array:
    """Return an order of the clients that depends on their contributions and not on their indices.

    Sums and matrix products round by position. Without this order, the numbering of clients would decide near ties of
    Krum and the last bit of means. Hashing costs 2 s per GB.
    """
    digests = [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in flat]
    return np.array(sorted(range(len(flat)), key=digests.__getitem__), np.int64)


def _krum_scores(flat: Float64Array, order: Int64Array, attackers: int) -> Float64Array:
    """Return Krum's score of each row of ``flat`` (clients, entries), in the order ``order``."""
    squared = _squared_distances(flat, order)
    np.fill_diagonal(squared, np.inf)
    with np.errstate(over="ignore"):
        return np.asarray(np.sort(squared, axis=1)[:, : len(order) - attackers - 2].sum(axis=1))


def _squared_distances(flat: Float64Array, order: Int64Array) -> Float64Array:
    """Return squared distances (clients, clients) between the rows of ``flat[order]``, by one Gram matrix.

    The rounding error of a Gram matrix grows with the norms. So the median, which liars cannot move far, is subtracted
    first. Distances too large for a double become infinite or NaN; both are sorted last.
    """
    clients, entries = flat.shape
    gram = np.zeros((clients, clients))
    width = max(1, BLOCK_ENTRIES // clients)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, entries, width):
            block = flat[order, start : start + width]
            block -= np.median(block, axis=0)
            gram += block @ block.T
        norms = np.diagonal(gram)
        return np.asarray(norms[:, None] + norms - 2.0 * gram)
