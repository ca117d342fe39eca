r"""Labels in distances: each client appends a block of columns for the label to its prepared rows.

The block of a row with the label :math:`y` is :math:`b = f (e_y - c)`. For one of :math:`K` classes, :math:`e_y` has a
one for the class and zeros for the others, so that any two classes have the same distance, and :math:`c` is
:math:`1 / K` for each. For a quantity, :math:`e_y` is the number :math:`y`, and :math:`c` its mean. A row without a
label, such as a new row, has :math:`b = 0`: it is equally far from all classes, and nearer than two classes are to each
other. So

.. math:: \|(x, b) - (x', b')\|^2 = \|x - x'\|^2 + \|b - b'\|^2 .

The factor gives the block the share :math:`w` of the total variance of all rows, and so of their mean squared distance:
:math:`f^2 v = V w / (1 - w)`. Here :math:`V` is the variance of the features, and :math:`v` that of the block with
:math:`f = 1`, the mean of its squared length less the squared length of its mean. All of these are sums over sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.data.loading import NO_LABEL
from raydr.errors import DataError
from raydr.federation import Cells, Client, Federation, Granularity, Range, Reply, Request, answers
from raydr.sparse_rows import SparseRows
from raydr.statistics.moments import wide_spread
from raydr.statistics.scaling import Done
from raydr.wire_types import travels

STEERING = "target"
"""Name of a model's array with the centre and the factor of the label's block."""


@travels
@dataclass(frozen=True)
class Target:
    """The label as all sites know it before a run, and its weight.

    Attributes
    ----------
    weight : float
        Share of the variance for the label's block, above 0 and below 1.
    classes : tuple of str
        Names of the classes; empty for a quantity.
    low, high : float
        Range of a quantity; 0 and 1 for classes.
    """

    weight: float
    classes: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0

    @property
    def width(self) -> int:
        """Number of columns of the block."""
        return len(self.classes) or 1

    def of(self, labels: Int64Array | None, names: Sequence[str]) -> Float64Array:
        """Return the target (rows,) of labels (rows,), which are indices of ``names``.

        It is the number of the class, or the quantity. It is NaN for a row without a label or with a class that no
        mapped row has.

        >>> Target(0.5, ("a", "b")).of(np.array([1, 0, 2]), ["a", "b", NO_LABEL])
        array([ 1.,  0., nan])
        """
        places = {name: float(place) for place, name in enumerate(self.classes)}
        known = [
            np.nan if name == NO_LABEL else places.get(name, np.nan) if self.classes else float(name)
            for name in names
        ]
        return np.array([*known, np.nan])[-1 if labels is None else labels]

    def names(self, label: str) -> tuple[str, ...]:
        """Return the names of the block's columns.

        >>> Target(0.5, ("a", "b")).names("kind")
        ('kind=a', 'kind=b')
        """
        return tuple(f"{label}={name}" for name in self.classes) or (label,)


def _block(targets: Float64Array, width: int, low: float, high: float) -> Float64Array:
    """Return the block (rows, width) before its centre and factor; a quantity is from 0 to 1, missing is NaN."""
    values = targets[:, None]
    if width == 1:
        return np.asarray((values - low) / (high - low))
    return np.where(np.isnan(values), np.nan, values == np.arange(width))


@travels
@dataclass(frozen=True)
class Steering:
    """The label's block.

    Attributes
    ----------
    centre : (width,) float64
        Place of rows without a label: 1 / K for each of K classes; for a quantity its mean, as a part of its range.
    factor : float
    low, high : float
        Range of a quantity.
    """

    centre: Float64Array
    factor: float
    low: float = 0.0
    high: float = 1.0

    @property
    def arrays(self) -> dict[str, Float64Array]:
        """Arrays that a model stores; :meth:`of` reads them back."""
        return {STEERING: np.array([self.low, self.high, self.factor, *self.centre])}

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> Steering | None:
        """Return the block from a model's arrays; None if labels do not steer."""
        if STEERING not in arrays:
            return None
        low, high, factor, *centre = np.asarray(arrays[STEERING], np.float64).tolist()
        return cls(np.array(centre), factor, low, high)

    def applied(self, rows: FloatArray, targets: Float64Array | None = None) -> FloatArray:
        """Return prepared rows with their block, (rows, features + width), in their own precision.

        ``targets`` (rows,) are NaN for rows without a label; None if no row has one.
        """
        block = np.zeros((len(rows), len(self.centre)), rows.dtype)
        if targets is not None:
            found = self.factor * (_block(targets, len(self.centre), self.low, self.high) - self.centre)
            block[:] = np.nan_to_num(found)
        if isinstance(rows, SparseRows):
            from scipy.sparse import csr_array, hstack

            return SparseRows.of(hstack([rows.csr, csr_array(block)], format="csr"))
        return np.concatenate([rows, block], axis=1)


@dataclass(frozen=True)
class TargetMoments(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the share of a client's rows with a label, its classes' shares or its quantity's mean, and the mean"
    " square",
):
    """``labelled`` (), ``mean`` (width,) and ``square`` (); rows without a label count as 0."""

    labelled: float
    mean: Float64Array
    square: float

    @staticmethod
    def ranges(request: TargetMomentsRequest, rows: int) -> dict[str, Range]:
        """Bound all by 1."""
        return {"labelled": Range((), 1.0), "mean": Range((request.width,), 1.0), "square": Range((), 1.0)}

    def cells(self, request: TargetMomentsRequest, client: Client) -> tuple[Cells, ...]:
        """Return the number of records with a label, and with each class."""
        shares = [self.labelled, *(self.mean if request.width > 1 else ())]
        return (Cells(np.round(np.multiply(shares, len(client.rows)))),)


@dataclass(frozen=True)
class TargetMomentsRequest(
    Request[TargetMoments], what="the number of classes of the label, or the range of a quantity"
):
    """``width`` classes, or a quantity from ``low`` to ``high`` if ``width`` is 1."""

    width: int
    low: float
    high: float

    @property
    def reads_classes(self) -> bool:
        """Whether labels take part: always."""
        return True


@answers(TargetMomentsRequest)
def target_moments(client: Client, request: TargetMomentsRequest) -> TargetMoments:
    """Client part, in float64."""
    targets = _targets(client)
    if not len(targets):
        return TargetMoments(0.0, np.zeros(request.width), 0.0)
    block = np.nan_to_num(_block(targets, request.width, request.low, request.high))
    labelled = float((~np.isnan(targets)).mean())
    return TargetMoments(labelled, block.mean(axis=0), float((block**2).sum(axis=1).mean()))


@dataclass(frozen=True)
class SteerRows(
    Request[Done],
    what="the shares of the classes, or the mean of the quantity, and the factor of the label",
    sets_state=True,
):
    """Sent to every client once; its rows then have the label's block."""

    steering: Steering

    @property
    def reads_classes(self) -> bool:
        """Whether labels take part: always."""
        return True


@answers(SteerRows)
def steer_client(client: Client, request: SteerRows) -> Done:
    """Client part: append the block to the partition."""
    client.rows = request.steering.applied(client.rows, _targets(client))
    return Done()


def _targets(client: Client) -> Float64Array:
    """Return the targets of a client's rows; a site that joins later has none."""
    return np.full(len(client.rows), np.nan) if client.targets is None else client.targets


def fit_steering(
    federation: Federation, target: Target, public_targets: Float64Array | None = None
) -> Steering:
    """Learn the label's block by sums, and append it at every client and to the public rows.

    Parameters
    ----------
    federation : Federation
        All clients, with their rows scaled and transformed.
    target : Target
        The label.
    public_targets : (public rows,) float64, optional
        Targets of the public rows. Default: they have none.

    Raises
    ------
    DataError
        If all rows of all clients are equal, or all their labels.
    """
    variance = float((wide_spread(federation).deviation ** 2).sum())
    request = TargetMomentsRequest(target.width, target.low, target.high)
    found = federation.mean(request, weights="rows")
    share = found.labelled
    centre = np.full(target.width, 1.0 / target.width)
    if not target.classes:
        centre = found.mean / (share or 1.0)
    # Of the block b = e - c of labelled rows and 0 of the others: the mean of |b|^2, less the square of the mean of b.
    squares = found.square - 2.0 * float(centre @ found.mean) + share * float((centre**2).sum())
    own = squares - float(((found.mean - share * centre) ** 2).sum())
    if not own > 1e-12 or (target.classes and found.mean.max() >= share - 1e-9):
        raise DataError(
            "data.target_weight: all labelled rows have the same label, so it cannot steer. Leave data.target_weight"
            " out, or name another column in data.label."
        )
    factor = float(np.sqrt(variance * target.weight / (1.0 - target.weight) / own))
    steering = Steering(centre, factor, target.low, target.high)
    apply_steering(federation, steering, public_targets)
    return steering


def apply_steering(
    federation: Federation, steering: Steering, public_targets: Float64Array | None = None
) -> None:
    """Append the label's block to the rows of every client and to the public rows."""
    federation.ask(SteerRows(steering))
    federation.rescale_public(lambda rows: steering.applied(rows, public_targets))
    federation.label_columns = len(steering.centre)
    federation.features += federation.label_columns
