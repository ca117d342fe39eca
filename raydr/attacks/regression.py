"""Regression from posts to values: ridge or k nearest neighbours, whichever has the smaller leave-one-out error.

This module does not depend on the meaning of posts and values. Values are records, some of their columns, or
the groups that they belong to. Leave-one-out errors on training rows decide, never the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.attacks.principal import principal_axes

LEAST_ROWS = 10
"""Minimum number of training rows."""
MOST_GROUPS = 20
"""Maximum number of groups of clients with the same requests. Each needs its own regression."""
NEIGHBORS = (1, 2, 3, 5, 10, 20, 50)
PENALTIES = np.logspace(-12.0, 1.0, 27)
"""Ridge penalties, in units of the largest eigenvalue of the posts' second moments."""
_JUDGED = 500  # training rows for the leave-one-out error
_AXES = 200  # principal axes of the values, for errors and averages of neighbours
_NEAR_AXES = 50  # principal axes of the posts, to find neighbours
_BLOCK = 2048


class Predictor(Protocol):
    """A fitted regression. The predicted values are ``centre + coordinates(posts) @ basis``.

    Attributes
    ----------
    name : str
        Name of the regression, as a clause.
    held_out : float
        Median leave-one-out error on the training rows.
    centre : (values,) float64
    basis : (k, values) float64 or None
        None if the coordinates are the values themselves.
    """

    @property
    def name(self) -> str:
        """Name of the regression, as a clause."""

    @property
    def held_out(self) -> float:
        """Median leave-one-out error on the training rows."""

    @property
    def centre(self) -> Float64Array:
        """Values if all coordinates are 0."""

    @property
    def basis(self) -> Float64Array | None:
        """Values of each coordinate."""

    def coordinates(self, posts: FloatArray) -> Float64Array:
        """Return the coordinates (rows, k) that are predicted from posts (rows, numbers)."""


def predicted(found: Predictor, posts: FloatArray) -> Float64Array:
    """Return the predicted values (rows, values) from posts (rows, numbers)."""
    coordinates = found.coordinates(posts)
    return np.asarray(found.centre + (coordinates if found.basis is None else coordinates @ found.basis))


def fitted(posts: FloatArray, values: FloatArray, seed: int) -> Predictor:
    """Return the better of ridge and k nearest neighbours.

    Parameters
    ----------
    posts : (rows, numbers)
        Posts about the training rows. Each number is scaled to unit variance.
    values : (rows, values)
        Values of the same rows.
    seed : int
        Seed of the choice of held-out rows.

    Raises
    ------
    ValueError
        If there are fewer than `LEAST_ROWS` rows.
    """
    if len(posts) < LEAST_ROWS:
        raise ValueError(f"{len(posts)} rows are too few to learn from. At least {LEAST_ROWS} are needed")
    units = _Units.of(np.asarray(posts, np.float64))
    targets = _Targets.of(values, seed)
    left_out = np.random.default_rng((seed, 6)).permutation(len(posts))[:_JUDGED]
    standard = units(posts)
    found: list[Predictor] = [
        _ridge(units, standard, targets, left_out),
        _nearest(units, standard, targets, left_out, seed),
    ]
    return min(found, key=lambda one: one.held_out)


@dataclass(frozen=True)
class _Units:
    """Shift and factor (numbers,) that give training posts mean 0 and variance 1. Constant numbers become 0."""

    shift: Float64Array
    factor: Float64Array

    @classmethod
    def of(cls, posts: Float64Array) -> _Units:
        shift = posts.mean(axis=0)
        deviation = posts.std(axis=0)
        varies = deviation > 1e-12 * np.maximum(np.abs(shift), np.finfo(np.float64).tiny)
        return cls(shift, np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies))

    def __call__(self, posts: FloatArray) -> Float64Array:
        return np.asarray((np.asarray(posts, np.float64) - self.shift) * self.factor)


@dataclass(frozen=True)
class _Targets:
    """Values (rows, values), their coordinates (rows, axes) on principal axes, and the squared length outside."""

    values: FloatArray
    mean: Float64Array
    basis: Float64Array | None
    coordinates: Float64Array
    outside: Float64Array

    @classmethod
    def of(cls, values: FloatArray, seed: int) -> _Targets:
        if values.shape[1] <= _AXES:
            mean = np.asarray(values.mean(axis=0, dtype=np.float64))
            return cls(values, mean, None, np.asarray(values - mean), np.zeros(len(values)))
        axes = principal_axes(values, _AXES, seed)
        coordinates = axes.coordinates(values)
        lengths = np.zeros(len(values))
        for start in range(0, len(values), _BLOCK):
            lengths[start : start + _BLOCK] = ((values[start : start + _BLOCK] - axes.mean) ** 2).sum(axis=1)
        outside = np.maximum(lengths - (coordinates**2).sum(axis=1), 0.0)
        return cls(values, axes.mean, axes.basis, coordinates, outside)

    def error(self, rows: Int64Array, misses: Float64Array) -> float:
        """Return the median error of rows whose coordinates are off by ``misses`` (rows, axes)."""
        return float(np.median(np.sqrt((misses**2).sum(axis=1) + self.outside[rows])))


@dataclass(kw_only=True, frozen=True)
class _Ridge:
    units: _Units
    weights: Float64Array  # (numbers, k)
    held_out: float
    centre: Float64Array
    basis: Float64Array | None
    name: str = "ridge regression"

    def coordinates(self, posts: FloatArray) -> Float64Array:
        return np.asarray(self.units(posts) @ self.weights)


def _ridge(units: _Units, standard: Float64Array, targets: _Targets, left_out: Int64Array) -> _Ridge:
    """Fit a ridge regression with the penalty of the smallest leave-one-out error, which has a closed form."""
    rows, numbers = standard.shape
    if rows >= numbers:
        squares, right = np.linalg.eigh(standard.T @ standard)
    else:
        squares, left = np.linalg.eigh(standard @ standard.T)
    kept = squares > 1e-13 * max(float(squares[-1]), np.finfo(np.float64).tiny)
    squares = squares[kept]
    if rows >= numbers:
        right = right[:, kept]
        left = standard @ right / np.sqrt(squares)
    else:
        left = left[:, kept]
        right = standard.T @ left / np.sqrt(squares)
    along, own = left.T @ targets.coordinates, left[left_out]
    # With at least as many numbers as rows, the fit passes through each row, except for the effect of the
    # penalty.
    # Only that effect is added up, because subtraction would leave nothing of the miss and of 1.
    beyond = targets.coordinates[left_out] - own @ along
    free = 1.0 - 1.0 / rows - (own**2).sum(axis=1)
    through = free < 1e-10
    beyond[through], free[through] = 0.0, 0.0
    least, shrunk = np.inf, np.ones_like(squares)
    for penalty in PENALTIES * (squares[-1] if len(squares) else 1.0):
        kept_back = penalty / (squares + penalty)
        misses = beyond + (own * kept_back) @ along
        error = targets.error(left_out, misses / (free + (own**2) @ kept_back)[:, None])
        if error < least:
            least, shrunk = error, 1.0 - kept_back
    weights = right * (shrunk / np.sqrt(squares))
    if targets.basis is None:
        return _Ridge(units=units, weights=weights @ along, held_out=least, centre=targets.mean, basis=None)
    basis = left.T @ (targets.values - targets.mean)  # all features, not the axes alone
    return _Ridge(units=units, weights=weights, held_out=least, centre=targets.mean, basis=basis)


@dataclass(kw_only=True, frozen=True)
class _Nearest:
    units: _Units
    axes: Float64Array  # (numbers, axes)
    places: Float64Array  # (training rows, axes)
    values: Float64Array  # (training rows, k)
    count: int
    held_out: float
    centre: Float64Array
    basis: Float64Array | None

    @property
    def name(self) -> str:
        return "the nearest row" if self.count == 1 else f"the {self.count} nearest rows"

    def coordinates(self, posts: FloatArray) -> Float64Array:
        near = _neighbors(self.units(posts) @ self.axes, self.places, self.count)
        found = np.empty((len(near), self.values.shape[1]))
        for start in range(0, len(near), _BLOCK):
            found[start : start + _BLOCK] = self.values[near[start : start + _BLOCK]].mean(axis=1)
        return found


def _nearest(
    units: _Units, standard: Float64Array, targets: _Targets, left_out: Int64Array, seed: int
) -> _Nearest:
    """Fit the mean of the k nearest training rows, with the k of the smallest leave-one-out error."""
    axes = np.eye(standard.shape[1])
    if standard.shape[1] > _NEAR_AXES:
        axes = principal_axes(standard, _NEAR_AXES, seed).basis.T
    places = standard @ axes
    most = min(NEIGHBORS[-1], len(places) - 1)
    near = _neighbors(places[left_out], places, most + 1)
    # A row is its own nearest neighbour, except among equal rows. Then the last neighbour is left out
    # instead.
    itself = near == left_out[:, None]
    itself[~itself.any(axis=1), -1] = True
    near = near[~itself].reshape(len(left_out), most)
    own, theirs = targets.coordinates[left_out], targets.coordinates[near]
    errors = {
        count: targets.error(left_out, own - theirs[:, :count].mean(axis=1))
        for count in NEIGHBORS
        if count <= most
    }
    best = min(errors, key=errors.__getitem__)
    return _Nearest(
        units=units,
        axes=axes,
        places=places,
        values=targets.coordinates,
        count=best,
        held_out=errors[best],
        centre=targets.mean,
        basis=targets.basis,
    )


def _neighbors(queries: Float64Array, places: Float64Array, count: int) -> Int64Array:
    """Return the numbers (rows, count) of the places nearest to the queries, the nearest first."""
    from sklearn.neighbors import NearestNeighbors

    if not len(queries):
        return np.zeros((0, count), np.int64)
    return np.asarray(NearestNeighbors(n_neighbors=count).fit(places).kneighbors(queries)[1])
