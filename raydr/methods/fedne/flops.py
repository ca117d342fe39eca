"""Floating-point operations of local training, computed from the settings, for plans."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from raydr.methods.fedne.edges import steps_of
from raydr.methods.fedne.settings import SURROGATE_UNITS, ContrastiveEncoder

_STEP = 2.5e7
"""Cost of a batch besides its products, as operations: calls to torch, and Adam's step."""
_PRODUCT = 1.0 / 18.0
"""Cost of an operation in torch's products of layers, compared with others. *Measured* on one core, milliseconds for
each batch of MNIST: 9.2 (plan: 8.9) with layers of 128, 22.7 (22.4) and 83 (84) with 500, 200 and 100 units and
negatives from the batch and from all rows. A search for neighbours multiplies rows as fast."""
_FELT, _FITTED = 35.0, 8_000.0
"""Cost of a hidden unit of a surrogate at the head of an edge, and of a point that a surrogate learns from, in each
epoch. *Measured* on one core: 7.6 ms for 1,024 heads and 20 surrogates, and 13 ms for 10,000 points."""


def encoded_rows(settings: ContrastiveEncoder, rows: int | None = None) -> float:
    """Return the number of rows that one batch encodes: heads, tails, and negatives from all rows.

    A row that is drawn several times is encoded once, unless heads are mixed rows, each of which is new. ``rows`` is
    the number of rows that edges are drawn from (None: no limit).
    """
    edges = settings.batch
    if rows is not None:
        steps = steps_of(rows, settings.own_neighbors, settings.batch)
        edges = -(-rows * min(settings.own_neighbors, rows - 1) // steps) if steps else 0
    drawn = (2.0 + (settings.negatives if settings.negatives_from == "rows" else 0.0)) * edges
    if settings.mixes_heads or not rows:
        return drawn
    return rows * -math.expm1(-drawn / rows)


def step_operations(settings: ContrastiveEncoder, features: int, rows: int | None = None) -> float:
    """Return the operations of one batch, forward and backward; ``rows`` as in :func:`encoded_rows`."""
    widths = (features, *settings.widths(features), 2)
    weights = sum(before * after for before, after in pairwise(widths))
    return _STEP + 6.0 * _PRODUCT * encoded_rows(settings, rows) * weights


def training_operations(settings: ContrastiveEncoder, sizes: Iterable[int], features: int) -> float:
    """Return the operations of one round over clients of these sizes."""
    return sum(_batches(settings, rows) * step_operations(settings, features, rows) for rows in sizes)


def _batches(settings: ContrastiveEncoder, rows: int) -> int:
    """Return the number of batches of a client's round."""
    every = settings.local_epochs * steps_of(rows, settings.own_neighbors, settings.batch)
    return min(every, settings.local_steps or every)


def mixing_operations(settings: ContrastiveEncoder, sizes: Iterable[int], features: int) -> float:
    """Return the operations of one round's neighbour search among own and mixed rows, if these are made again."""
    grown = [trained for rows in sizes if (trained := settings.trained_rows(rows)) > rows]
    return 2.0 * _PRODUCT * features * sum(float(rows) ** 2 for rows in grown)


def felt_operations(settings: ContrastiveEncoder, sizes: Iterable[int], networks: int) -> float:
    """Return the operations of one round's repulsion by this many surrogate networks."""
    heads = settings.batch * sum(_batches(settings, rows) for rows in sizes)
    return _FELT * heads * networks * SURROGATE_UNITS


def fitted_operations(points: Iterable[float], epochs: int) -> float:
    """Return the operations of learning one surrogate from each of these numbers of points."""
    return _FITTED * epochs * sum(points)
