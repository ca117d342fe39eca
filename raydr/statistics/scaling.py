"""Scaling of features, fitted federatedly: every client applies the scaling that all clients' sums give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.data.survey.layout import JointColumns
from raydr.errors import DataError, FeatureError
from raydr.federation import Client, Federation, Granularity, Public, Range, Reply, Request, answers
from raydr.geometry.points import value_blocks
from raydr.sparse_rows import SparseRows
from raydr.statistics.moments import column_extremes, column_sizes, spread

Scale: TypeAlias = Literal["none", "standard", "minmax", "maxabs"]
NOTHING_JOINT = JointColumns()


@dataclass(frozen=True)
class Scaling:
    """An affine map of each feature.

    Attributes
    ----------
    shift, factor : (features,) float64
        ``x`` becomes ``(x - shift) * factor``.
    fill : (features,) float64 or None
        Value that first replaces a missing ``x`` (NaN); None if no value may be missing.
    """

    shift: Float64Array
    factor: Float64Array
    fill: Float64Array | None = None

    @property
    def arrays(self) -> dict[str, Float64Array]:
        """Arrays that a model stores; :meth:`of` reads them back."""
        arrays = {"shift": self.shift, "factor": self.factor, "fill": self.fill}
        return {name: values for name, values in arrays.items() if values is not None}

    def undone(self, rows: FloatArray) -> Float64Array:
        """Return scaled rows (rows, features) in their own units; columns that scaling made constant as their shift."""
        width = np.divide(1.0, self.factor, out=np.zeros_like(self.factor), where=self.factor != 0.0)
        return np.asarray(rows * width + self.shift)

    @classmethod
    def of(cls, arrays: Mapping[str, FloatArray]) -> Scaling:
        """Return the scaling from a model's arrays; raise KeyError if one is missing."""
        kept = {
            name: np.asarray(arrays[name], np.float64)
            for name in ("shift", "factor", *{"fill"} & set(arrays))
        }
        return cls(**kept)


@dataclass(frozen=True)
class Done(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="confirmation that a client has done what it was asked",
    public=Public.EMPTY,
):
    """A reply without content."""

    @staticmethod
    def ranges(request: ScaleRows, rows: int) -> dict[str, Range]:
        """Declare no field."""
        return {}


@dataclass(frozen=True)
class ScaleRows(Request[Done], what="shift and factor of each feature", sets_state=True):
    """Sent to every client once; its rows are then scaled, and float32 if ``single``."""

    shift: Float64Array
    factor: Float64Array
    single: bool = False


@dataclass(frozen=True)
class Unshifted:
    """Sparse rows (rows, features) less ``shift`` (features,), which would make them dense."""

    rows: SparseRows
    shift: Float64Array

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows.shape

    def __len__(self) -> int:
        return len(self.rows)


@answers(ScaleRows)
def scale_client(client: Client, request: ScaleRows) -> Done:
    """Client part: replace the partition with its scaled form; of sparse rows in single precision, `Unshifted`."""
    scaling = Scaling(request.shift, request.factor)
    if request.single and isinstance(client.rows, SparseRows):
        scaled = scale_rows(client.rows, replace(scaling, shift=np.zeros_like(scaling.shift)))
        client.rows = Unshifted(scaled, scaling.shift * scaling.factor)
        return Done()
    client.rows = scale_rows(client.rows, scaling, single=request.single)
    return Done()


def scale_rows(rows: FloatArray, scaling: Scaling, *, single: bool = False) -> FloatArray:
    """Return scaled ``rows``, in their own precision or float32 if ``single``; the same rows if nothing changes."""
    dtype = np.float32 if single else rows.dtype
    if scaling.fill is not None:
        rows = filled(rows, scaling.fill)
    if not (scaling.shift.any() or (scaling.factor != 1.0).any()):
        return rows.astype(dtype, copy=False)
    if isinstance(rows, SparseRows):
        if scaling.shift.any():
            raise DataError(
                "A scaling with a shift makes a table dense that is stored sparse. Set data.scale to maxabs or none."
            )
        return rows.changed(lambda block: (block * scaling.factor).astype(dtype))
    # By blocks of rows in float64: whole tables would need two float64 copies in addition to the result.
    scaled = np.empty(rows.shape, dtype)
    for start, stop in value_blocks(*rows.shape):
        scaled[start:stop] = (rows[start:stop] - scaling.shift) * scaling.factor
    return scaled


def filled(rows: FloatArray, values: Float64Array) -> FloatArray:
    """Return rows with ``values`` (features,) for missing ones, in their own precision; the same rows if complete."""
    if isinstance(rows, SparseRows):
        return rows  # always complete
    missing = np.isnan(rows)
    return np.where(missing, values, rows).astype(rows.dtype) if missing.any() else rows


def fit_scaling(federation: Federation, scale: Scale, joint: JointColumns = NOTHING_JOINT) -> Scaling:
    """Learn the scaling by sums, and apply it at every client and to the public rows.

    Parameters
    ----------
    federation : Federation
        All clients, with their rows as read.
    scale : {"none", "standard", "minmax", "maxabs"}
        Nothing; mean 0 and standard deviation 1 of each feature; each feature from 0 to 1; largest absolute value
        1, which keeps zeros. Constant features become 0 under ``standard`` and ``minmax``.
    joint : JointColumns
        Columns of several features, which count as one column each: see :func:`column_width`.

    Raises
    ------
    DataError
        If every feature is constant, or one spans more than double precision can express.
    """
    shift, factor = np.zeros(federation.features), np.ones(federation.features)
    match scale:
        case "standard":
            moments = spread(federation)
            shift, factor = moments.mean, inverse(column_width(moments.deviation, scale, joint))
        case "minmax":
            minimum, maximum = column_extremes(federation)
            shift, factor = minimum, inverse(column_width(column_spans(minimum, maximum), scale, joint))
        case "maxabs":
            factor = inverse(column_width(column_sizes(federation), scale, joint))
        case "none":
            pass
    scaling = Scaling(shift, factor)
    if scale != "none":
        if not np.any(factor):
            raise DataError(
                "Every feature is constant over all clients, so there is no geometry to map:"
                " check data.features and the label column."
            )
        federation.ask(ScaleRows(scaling.shift, scaling.factor))
        federation.rescale_public(lambda rows: scale_rows(rows, scaling))
    return scaling


def column_spans(minimum: Float64Array, maximum: Float64Array) -> Float64Array:
    """Return the range of each feature (features,); raise FeatureError if one is too wide for double precision."""
    with np.errstate(over="ignore"):
        width = maximum - minimum
    widest = int(np.argmax(width))
    if not np.isfinite(width[widest]):
        raise FeatureError(
            f"{{feature}} runs from {minimum[widest]:g} to {maximum[widest]:g}, which is wider than double"
            " precision can express. Express it in another unit, or name it in data.exclude.",
            widest,
        )
    return np.asarray(width)


def column_width(width: Float64Array, scale: Scale, joint: JointColumns) -> Float64Array:
    r"""Return what each feature (features,) is divided by, so that a joint column counts as one column.

    Under ``standard``, ``width`` is the standard deviation. The words of a column share
    :math:`(\sum_w \sigma_w^2)^{1/2}`, so that the column has variance 1, as a column of numbers. Under ``minmax``,
    ``width`` is the range, and under ``maxabs`` the largest absolute value. Both are multiplied by :math:`\sqrt 2`, so
    that two different words have distance 1, like the least and the largest number. This is the squared contribution
    of a column to Gower's distance. Under both, the words of lists are multiplied by the root of their number, so that
    lists with and without every word have distance 1.

    >>> column_width(np.array([3.0, 0.3, 0.4]), "standard", JointColumns(words=((1, 3),))).tolist()
    [3.0, 0.5, 0.5]
    """
    shared = np.array(width, np.float64)
    for first, stop in joint.scaled(scale):
        own = shared[first:stop]
        shared[first:stop] = np.sqrt((own**2).sum()) if scale == "standard" else np.sqrt(2.0) * own
    for first, stop in joint.lists if scale != "standard" else ():
        shared[first:stop] *= np.sqrt(stop - first)
    return shared


def inverse(width: Float64Array) -> Float64Array:
    """Return ``1 / width``; 0 if the width is 0, or so small that its inverse overflows."""
    wide = width >= np.finfo(np.float64).tiny
    return np.where(wide, 1.0 / np.where(wide, width, 1.0), 0.0)
