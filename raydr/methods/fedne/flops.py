"""Floating-point operations of local training, computed from the settings, for plans."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from raydr.methods.fedne.edges import steps_of
from raydr.methods.fedne.settings import ContrastiveEncoder

_STEP = 2e7
"""Cost of a step of Adam besides its products, as operations: a millisecond of calls to torch."""
_PRODUCT = 1.0 / 8.0
"""Cost of an operation in torch's products of layers, compared with others."""


def step_operations(settings: ContrastiveEncoder, features: int, rows: int | None = None) -> float:
    """Return the operations of one batch: heads and tails of edges, and negatives from all rows, forward and backward.

    A row that is drawn several times is encoded once: ``rows`` is the number of rows that edges are drawn from
    (None: no limit). If negatives are drawn from all rows, heads are encoded apart from tails and negatives.
    """
    widths = (features, *settings.widths(features), 2)
    weights = sum(before * after for before, after in pairwise(widths))
    drawn = [2.0 * settings.batch]
    if settings.negatives_from == "rows":
        drawn = [1.0 * settings.batch, (1.0 + settings.negatives) * settings.batch]
    encoded = sum(rows * -math.expm1(-count / rows) if rows else count for count in drawn)
    return _STEP + 6.0 * _PRODUCT * encoded * weights


def training_operations(settings: ContrastiveEncoder, sizes: Iterable[int], features: int) -> float:
    """Return the operations of one round over clients of these sizes."""
    operations = 0.0
    for rows in sizes:
        every = settings.local_epochs * steps_of(rows, settings.own_neighbors, settings.batch)
        operations += min(every, settings.local_steps or every) * step_operations(settings, features, rows)
    return operations


def mixing_operations(settings: ContrastiveEncoder, sizes: Iterable[int], features: int) -> float:
    """Return the operations of one round's neighbour search among own and mixed rows, if these are made again."""
    grown = [trained for rows in sizes if (trained := settings.trained_rows(rows)) > rows]
    return sum(float(rows) ** 2 * features for rows in grown)
