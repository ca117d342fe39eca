"""Points at the distances that clients posted, in no frame in particular: what a secret frame leaves to the server.

Whoever knows distances knows the points but for an isometry. Where the server knows the points to which distances were
posted, in its own frame or in a secret one, trilateration gives them. Where it does not, the distances alone do: they
are a bilinear form of rows and points, of which a factorisation leaves a linear map open, and how far each row is from
all points together fixes that map but for a rotation (Crocco, Del Bue & Murino 2012).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.attacks.contract import Estimate, NotApplicableError, View
from raydr.attacks.posted_distances import posted
from raydr.attacks.trilateration import located
from raydr.federation.messages import Reply
from raydr.methods.sense.spaces import EuclideanSpace

MOST_FREE = 60
"""Dimensions in which unknown points are unfolded, at most: 1,891 numbers are then fitted, 3 s for 20,000 rows."""
_FITTED_ROWS = 20_000
_EQUATIONS = 2  # for each unknown
_RELATIVE_RANK = 1e-7


@dataclass(frozen=True)
class Cloud:
    """Records as points of no frame in particular.

    Attributes
    ----------
    rows : (rows,) int64
        Numbers of the records.
    points : (rows, dimensions) float64
        Distances between them are those between the records, as far as the messages tell.
    kind : type of Reply
        The message.
    """

    rows: Int64Array
    points: Float64Array
    kind: type[Reply]


def cloud(view: View) -> Cloud:
    """Points from distances to points that the server knows, in whatever frame it knows them.

    Raises
    ------
    NotApplicableError
        If no distances were posted, or not in Euclidean space.
    """
    messages = posted(view)
    if any(not isinstance(message.space, EuclideanSpace) for message in messages):
        raise NotApplicableError("the records live in hyperbolic space, where it has not been worked out.")
    kind = messages[0].kind
    if any(message.points is None for message in messages):
        return unfolded_cloud(view)
    pieces = [piece for message in messages for piece in located(message)[0]]
    if len(pieces) == 1:
        return Cloud(pieces[0].rows, pieces[0].coordinates, kind)
    estimate = Estimate(tuple(pieces))
    points = np.concatenate([block.astype(np.float32) for _, block in estimate.blocks()])
    return Cloud(estimate.rows, points.astype(np.float64), kind)


def unfolded_cloud(view: View) -> Cloud:
    """Points from distances to points of which the server knows nothing.

    Raises
    ------
    NotApplicableError
        If no distances were posted, or clients posted theirs to different points.
    """
    messages = posted(view)
    if any(not isinstance(message.space, EuclideanSpace) for message in messages):
        raise NotApplicableError("the records live in hyperbolic space, where it has not been worked out.")
    if len(messages) > 1:
        raise NotApplicableError(
            "clients posted distances to different points, and those of one client are too few to unfold."
        )
    (message,) = messages
    return Cloud(message.rows, unfolded(message.squared), message.kind)


def unfolded(squared: Float64Array) -> Float64Array:
    """Points (rows, dimensions), but for an isometry, from squared distances (rows, points) to unknown points.

    Twice centred, the squared distances are -2 X A^T, X and A relative to their means, so the right singular vectors V
    give X = U C with U = X A^T V and a matrix C that is not known. The mean of a row's squared distances is
    |x - a|^2 and a constant, a the mean of the points: quadratic in the row of U, with G = C C^T as its matrix, so
    least squares give G, and with it C but for a rotation.

    Raises
    ------
    NotApplicableError
        If there are too few rows for the unknowns of two dimensions.
    """
    means = squared.mean(axis=1)
    twice = -0.5 * (squared - means[:, None] - squared.mean(axis=0) + means.mean())
    values, vectors = np.linalg.eigh(twice.T @ twice)
    order = np.argsort(-values)
    singular = np.sqrt(np.maximum(values[order], 0.0))
    rank = int((singular > _RELATIVE_RANK * max(float(singular[0]), np.finfo(np.float64).tiny)).sum())
    most = int(np.sqrt(2.0 * len(squared) / _EQUATIONS)) - 2
    free = min(rank, MOST_FREE, most)
    if free < 1:
        raise NotApplicableError(f"{len(squared)} records are too few to unfold their distances.")
    factor = twice @ vectors[:, order[:free]]
    factor /= np.sqrt((factor**2).mean(axis=0))
    some = np.random.default_rng(0).permutation(len(squared))[:_FITTED_ROWS]
    rows, columns = np.triu_indices(free)
    quadratic = factor[some][:, rows] * factor[some][:, columns] * np.where(rows == columns, 1.0, 2.0)
    design = np.hstack([quadratic, 2.0 * factor[some], np.ones((len(some), 1))])
    solution = np.linalg.lstsq(design, means[some], rcond=1e-13)[0]
    form = np.zeros((free, free))
    form[rows, columns] = solution[: len(rows)]
    form[columns, rows] = solution[: len(rows)]
    spread, turn = np.linalg.eigh(form)
    return np.asarray(factor @ (turn * np.sqrt(np.maximum(spread, 0.0))))
