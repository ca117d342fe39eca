"""Points from posted distances, up to an isometry: what a secret frame leaves to the server.

Distances determine points up to an isometry. If the server knows the points of the posted distances, in its
own frame or in a secret one, trilateration gives the records. If it does not, the distances alone are enough.
They are a bilinear form of rows and points, and its factorisation leaves a linear map open. The mean squared
distance of each row to all points fixes that map up to a rotation (Crocco, Del Bue & Murino 2012).
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
"""Maximum dimensions for unfolding unknown points. This fits 1,891 numbers, in 3 s for 20,000 rows."""
_FITTED_ROWS = 20_000
_EQUATIONS = 2  # per unknown
_RELATIVE_RANK = 1e-7


@dataclass(frozen=True)
class Cloud:
    """Records as points in an arbitrary frame.

    Attributes
    ----------
    rows : (rows,) int64
        Numbers of the records.
    points : (rows, dimensions) float64
        Points with the distances between records that follow from the messages.
    kind : type of Reply
        Kind of the message.
    """

    rows: Int64Array
    points: Float64Array
    kind: type[Reply]


def cloud(view: View) -> Cloud:
    """Return the records as points, from distances to points that the server knows in any frame.

    Raises
    ------
    NotApplicableError
        If no distances were posted, or they are not Euclidean.
    """
    messages = posted(view)
    if any(not isinstance(message.space, EuclideanSpace) for message in messages):
        raise NotApplicableError("the records are in hyperbolic space, which this attack does not support.")
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
    """Return the records as points, from distances to points that the server does not know.

    Raises
    ------
    NotApplicableError
        If no distances were posted, or clients posted distances to different points.
    """
    messages = posted(view)
    if any(not isinstance(message.space, EuclideanSpace) for message in messages):
        raise NotApplicableError("the records are in hyperbolic space, which this attack does not support.")
    if len(messages) > 1:
        raise NotApplicableError(
            "clients posted distances to different points, and one client has too few to unfold."
        )
    (message,) = messages
    return Cloud(message.rows, unfolded(message.squared), message.kind)


def unfolded(squared: Float64Array) -> Float64Array:
    """Return points (rows, dimensions), up to an isometry, from squared distances (rows, points) to unknown points.

    Centred twice, the squared distances are -2 X A^T, with X and A relative to their means. So the right
    singular vectors V give X = U C, with U = X A^T V and an unknown matrix C. The mean of a row's squared
    distances is |x - a|^2 plus a constant, where a is the mean of the points. It is quadratic in the row of
    U, with the matrix G = C C^T. Least squares gives G, and so C up to a rotation.

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
