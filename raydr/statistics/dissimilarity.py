r"""Metrics as transformations of rows: the Euclidean distances of the transformed rows are those of the metric.

Each client transforms its own rows, so every method, attack and metric that knows Euclidean distances works unchanged.

| metric | a row :math:`x` becomes | squared Euclidean distance afterwards |
| --- | --- | --- |
| cosine | :math:`x / \|x\|` | twice the cosine distance |
| correlation | :math:`x` less its own mean, divided by its length | twice the correlation distance |
| hellinger | :math:`(x / \sum_j x_j)^{1/2}` | twice the squared Hellinger distance |
| hamming | categories as zeros and ones, over the root of twice the columns | share of columns that differ |
| gower | numbers as thermometers, categories as for hamming | Gower's distance: mean over columns of a range's part |

A row without a direction (of zeros; for correlation, of equal numbers) becomes a row of zeros. Its cosine, correlation
or squared Hellinger distance from every other row is 1/2.

Gower's distance of two numbers is :math:`|x - y|` as a part of the range, which is no squared difference. A thermometer
makes it one. It has :math:`n` cells, and :math:`x_k` is the part of cell :math:`k` below :math:`x`, from 0 to 1. For
numbers on the borders of cells, :math:`\frac1n \sum_k (x_k - y_k)^2` equals :math:`|x - y|`. For others it is smaller,
by at most :math:`1 / 2n`.

Two angles of a circular column add :math:`\sin^2((a - b) / 2)` to the sum over columns: the square of the chord
between two points, as a part of its largest, that of opposite points. It is Euclidean, from 0 to 1, and a circle
counts as one column. Its sine and cosine are divided by 2.

Two lists of words add the share of all words that only one of them has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float64Array, FloatArray
from raydr.data.survey.layout import JointColumns
from raydr.errors import FeatureError
from raydr.federation import Client, Federation, Request, answers
from raydr.geometry.points import value_blocks
from raydr.sparse_rows import SparseRows
from raydr.statistics.moments import column_extremes
from raydr.statistics.scaling import NOTHING_JOINT, Done, column_spans

Metric: TypeAlias = Literal["euclidean", "cosine", "correlation", "hellinger", "hamming", "gower"]
RowMetric: TypeAlias = Literal["euclidean", "cosine", "correlation", "hellinger"]
"""Metrics whose transformation needs no other row."""
KEEP_ZEROS: frozenset[Metric] = frozenset({"euclidean", "cosine", "hellinger"})
"""Metrics whose transformation keeps zeros, so that a sparse table stays sparse."""
BY_COLUMN: frozenset[Metric] = frozenset({"hamming", "gower"})
"""Metrics whose transformation needs the least and largest value of each column."""
AS_READ: frozenset[Metric] = frozenset({"hellinger", "hamming"})
"""Metrics of counts or categories, which no other step may change before."""
CELLS = "metric_cells"
"""Name of a model's array with the cells of a transformation."""

MOST_CATEGORIES = 50
"""Most whole numbers between the least and the largest value of a column of categories, as for words."""
_ALL_CELLS, _MOST_CELLS, _FEWEST_CELLS, _ENOUGH = 2048, 1024, 16, 64
"""Cells of all columns of numbers together, unless that leaves fewer than 16 each; most of one column; and number from
which more serve only columns of many distinct numbers. On titanic, whose fares crowd in a hundredth of their range, the
ten nearest neighbours have F-score 0.977 with 128 cells a column and 0.995 with 1,024."""
_DECIMALS = (100.0, 10.0, 1.0)


def _no_cells() -> Float64Array:
    return np.zeros((3, 0))


@dataclass(frozen=True)
class Transformation:
    """The transformation of a metric.

    Attributes
    ----------
    metric : Metric
        Its name.
    cells : (3, features) float64
        Least value, width of a cell and number of cells of each feature. 0 cells for a word, sine or cosine, which
        stays one feature and is divided by the width. (3, 0) if the metric needs no other row.
    columns : int
        Number of columns that count in the distance; a column of words or lists, or a circle, counts once.
    """

    metric: Metric = "euclidean"
    cells: Float64Array = field(default_factory=_no_cells)
    columns: int = 0

    @classmethod
    def of_columns(
        cls, metric: Metric, least: Float64Array, most: Float64Array, joint: JointColumns
    ) -> Transformation:
        """Return the transformation for the least and largest value of each feature (features,).

        Raises
        ------
        FeatureError
            If a column has too many values for categories.
        """
        if metric not in BY_COLUMN:
            return cls(metric)
        divisors = np.zeros(len(least))
        known = _known_ranges(metric, joint)
        for first, stop, largest in known:
            divisors[first:stop] = np.sqrt(largest / 2.0)
        whole = divisors > 0.0
        columns = len(least) - int(whole.sum()) + len(known)
        numbers = ~whole
        spans = column_spans(np.where(whole, 0.0, least), np.where(whole, 0.0, most))
        counts = np.zeros(len(least))
        if metric == "hamming":
            counts[numbers] = spans[numbers] + 1.0
            widest = int(counts.argmax())
            if counts[widest] > MOST_CATEGORIES:
                raise FeatureError(
                    f"data.metric hamming compares categories, and {{feature}} runs from {least[widest]:g} to"
                    f" {most[widest]:g}: at most {MOST_CATEGORIES} whole numbers can be categories. Choose data.metric"
                    " gower, or name it in data.exclude.",
                    widest,
                )
            return cls(metric, np.stack([least, np.where(whole, divisors, 1.0), counts]), columns)
        counts[numbers] = _cell_counts(spans[numbers])
        widths = np.where(whole, divisors, np.where(spans > 0.0, spans, 1.0) / np.where(whole, 1.0, counts))
        return cls(metric, np.stack([least, widths, counts]), columns)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays that a model stores; :meth:`of` reads them back."""
        return {CELLS: np.column_stack([self.cells, np.full(3, self.columns)])} if self.cells.size else {}

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], metric: Metric) -> Transformation:
        """Return the transformation from a model's arrays; raise KeyError if one is missing."""
        if metric not in BY_COLUMN:
            return cls(metric)
        kept = np.asarray(arrays[CELLS], np.float64)
        return cls(metric, kept[:, :-1], int(kept[0, -1]))

    def width(self, features: int) -> int:
        """Return the number of features of transformed rows."""
        return int(np.maximum(self.cells[2], 1.0).sum()) if self.cells.size else features

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the features of transformed rows.

        >>> Transformation.of_columns("hamming", np.zeros(1), np.ones(1), JointColumns()).names(["sex"])
        ('sex=0', 'sex=1')
        """
        if not self.cells.size:
            return tuple(features)
        sign = "=" if self.metric == "hamming" else ">"
        return tuple(
            name if not count else f"{name}{sign}{least + cell * width:g}"
            for name, least, width, count in zip(features, *self.cells, strict=True)
            for cell in range(max(int(count), 1))
        )

    def applied(self, rows: FloatArray) -> FloatArray:
        """Return transformed rows (rows, width), in their own precision; the same rows for ``euclidean``.

        Raises
        ------
        FeatureError
            If a count is negative, under ``hellinger``.
        """
        if self.metric == "euclidean":
            return rows
        require_suited(self.metric, rows, known=True)
        if isinstance(rows, SparseRows):
            return rows.changed(
                lambda block: _directions(self.metric, block.astype(np.float64)).astype(rows.dtype)
            )
        made = np.empty((len(rows), self.width(rows.shape[1])), rows.dtype)
        for start, stop in value_blocks(*made.shape):
            block = rows[start:stop].astype(np.float64)
            made[start:stop] = self._by_column(block) if self.cells.size else _directions(self.metric, block)
        return made

    def _by_column(self, block: Float64Array) -> Float64Array:
        category = 1.0 / np.sqrt(2.0 * self.columns)
        made, at = np.empty((len(block), self.width(0))), 0
        for values, least, width, count in zip(block.T, *self.cells, strict=True):
            cells = np.arange(count) if count else np.ones(1)
            into = made[:, at : at + len(cells)]
            at += len(cells)
            if not count:
                into[:] = (category / width) * values[:, None]
            elif self.metric == "hamming":
                into[:] = category * ((values - least)[:, None] == cells)
            else:
                part = 1.0 / np.sqrt(count * self.columns)
                into[:] = part * np.clip(((values - least) / width)[:, None] - cells, 0.0, 1.0)
        return made


EUCLIDEAN = Transformation()
"""Rows stay as they are."""


def _known_ranges(metric: Metric, joint: JointColumns) -> list[tuple[int, int, float]]:
    """Return the features of each column that needs no cells, and its largest squared distance.

    Two words have 2, opposite points of a circle 4, and lists the number of their words. Under ``hamming`` a circle is
    two columns of numbers.
    """
    circles = joint.circles if metric == "gower" else ()
    return [
        *((first, stop, 2.0) for first, stop in joint.words),
        *((first, stop, 4.0) for first, stop in circles),
        *((first, stop, float(stop - first)) for first, stop in joint.lists),
    ]


def _cell_counts(spans: Float64Array) -> Float64Array:
    """Return the number of cells of each column of numbers, from its range (columns,).

    Numbers with up to two decimals lie on borders, if these are few enough. What such columns leave is for the others.
    """
    steps = np.full(len(spans), np.inf)
    for decimals in _DECIMALS:  # ends with the coarsest; ranges in float32 are whole only nearly
        whole = np.rint(spans * decimals)
        steps = np.where((np.abs(spans * decimals - whole) < 1e-3) & (whole > 0.0), whole, steps)
    counts, left = np.ones(len(spans)), float(_ALL_CELLS)
    varying = np.flatnonzero(spans > 0.0)
    for place, column in enumerate(varying[np.argsort(steps[varying], kind="stable")]):
        share = float(np.clip(left // (len(varying) - place), _FEWEST_CELLS, _MOST_CELLS))
        needed = steps[column]
        counts[column] = needed * max(1.0, min(share, _ENOUGH) // needed) if needed <= share else share
        left -= counts[column]
    return counts


def _directions(metric: Metric, block: Float64Array) -> Float64Array:
    """Return rows of length 1; rows without a direction become zeros."""
    least = np.zeros((len(block), 1))
    if metric == "correlation":
        # Equal numbers differ from their mean by its rounding.
        least = (
            8.0 * np.finfo(np.float64).eps * np.abs(block).max(axis=1, keepdims=True) * block.shape[1] ** 0.5
        )
        block = block - block.mean(axis=1, keepdims=True)
    elif metric == "hellinger":
        block = np.sqrt(block)
    lengths = np.sqrt((block**2).sum(axis=1, keepdims=True))
    return np.where(lengths > least, block, 0.0) / np.where(lengths > least, lengths, 1.0)


def width_of(metric: Metric, rows: FloatArray, joint: JointColumns) -> int:
    """Return the number of features that rows (rows, features) have after the transformation; gaps do not count.

    Raises
    ------
    FeatureError
        If a column does not suit the metric.
    """
    if metric not in BY_COLUMN:
        return int(rows.shape[1])
    least, most = (np.asarray(end.reduce(rows, axis=0), np.float64) for end in (np.fmin, np.fmax))
    return Transformation.of_columns(metric, least, most, joint).width(rows.shape[1])


def require_suited(metric: Metric, rows: FloatArray, *, known: bool = False) -> None:
    """Raise FeatureError if rows (rows, features) cannot be compared by a metric; missing values are ignored.

    Categories that are new (``known``) differ from all others, so only those that a run learns must be whole numbers.
    """
    if metric == "hellinger":
        least = rows.min(axis=0)[None] if isinstance(rows, SparseRows) else rows
        negative = (least < 0).any(axis=0)
        if negative.any():
            raise FeatureError(
                "data.metric hellinger compares counts, and {feature} has values below 0. Name it in data.exclude, or"
                " choose another metric.",
                int(negative.argmax()),
            )
    elif metric == "hamming" and not known:
        broken = ((rows != np.rint(rows)) & ~np.isnan(rows)).any(axis=0)
        if broken.any():
            raise FeatureError(
                "data.metric hamming compares categories, and {feature} has values, as read or as data.missing filled"
                " them in, that are not whole numbers. Choose data.metric gower, or name it in data.exclude. To compare"
                " hours or angles as categories, give the column the kind words in data.codebook.",
                int(broken.argmax()),
            )


@dataclass(frozen=True)
class TransformRows(
    Request[Done], what="the metric, and the cells of each feature if it has any", sets_state=True
):
    """Sent to every client once; its rows are then transformed. See :class:`Transformation`."""

    metric: Metric
    cells: Float64Array
    columns: int


@answers(TransformRows)
def transform_client(client: Client, request: TransformRows) -> Done:
    """Client part: replace the partition with its transformed form."""
    require_suited(request.metric, client.rows)
    client.rows = Transformation(request.metric, request.cells, request.columns).applied(client.rows)
    return Done()


def fit_transformation(
    federation: Federation, metric: Metric, joint: JointColumns = NOTHING_JOINT
) -> Transformation:
    """Learn the transformation of a metric, and apply it at every client and to the public rows.

    Only ``hamming`` and ``gower`` ask clients for something: the least and largest value of each feature, by sums.

    Parameters
    ----------
    federation : Federation
        All clients, with their rows scaled.
    metric : Metric
        See the module.
    joint : JointColumns
        Columns of several features, which count as one column each.

    Raises
    ------
    FeatureError
        If a column does not suit the metric.
    """
    if metric == "euclidean":
        return EUCLIDEAN
    least, most = np.zeros(federation.features), np.ones(federation.features)
    known = sum(stop - first for first, stop, _ in _known_ranges(metric, joint))
    if metric in BY_COLUMN and known < federation.features:
        least, most = column_extremes(federation)
    found = Transformation.of_columns(metric, least, most, joint)
    apply_transformation(federation, found)
    return found


def apply_transformation(federation: Federation, found: Transformation) -> None:
    """Transform the rows of every client and the public rows."""
    federation.ask(TransformRows(found.metric, found.cells, found.columns))
    federation.rescale_public(found.applied)
    federation.features = found.width(federation.features)
