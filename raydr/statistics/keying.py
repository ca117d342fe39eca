"""Rows under an isometry key (:mod:`raydr.privacy.isometry`): scaled and keyed before any request about them.

Scaling needs moments of the original features, which would reveal to the server what the key hides. So the server adds
up sums that it cannot read. Each client adds a pad of ring integers that all clients can compute and the server
cannot, and the clients remove all pads again. Pads and key follow from a secret that the clients agree on first
(:meth:`raydr.federation.Federation.agree`).

A summand is written in five digits of 32 bits, from 2^80 down to 2^-80. So the clients need not agree on magnitudes
first, which would reveal something too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array, IntArray, UInt8Array
from raydr.data.survey.layout import JointColumns
from raydr.errors import DataError, RunError, ScenarioError
from raydr.federation import Client, Federation, Granularity, Public, Range, Reply, Request, answers
from raydr.federation.pads import pad
from raydr.federation.ring import decode, fraction_bits
from raydr.geometry.blocks import in_blocks
from raydr.privacy.isometry import Isometry
from raydr.privacy.sealing import Binding, seal, sealed_size, unseal
from raydr.privacy.secrets import Secret
from raydr.statistics.dissimilarity import Metric, RowMetric, Transformation
from raydr.statistics.moments import beyond_rounding
from raydr.statistics.scaling import (
    NOTHING_JOINT,
    Done,
    Scale,
    Scaling,
    column_width,
    inverse,
    scale_rows,
)
from raydr.wire_types import travels

KeyedScale: TypeAlias = Literal["none", "standard"]

_DIGITS, _DIGIT_BITS, _LARGEST_BITS = 5, 32, 80
_TOPS = np.ldexp(1.0, _LARGEST_BITS - _DIGIT_BITS * np.arange(_DIGITS))[:, None]
"""Bound of each digit, (5, 1)."""


@dataclass(frozen=True)
class Moments(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="for each feature, a client's mean or mean squared deviation, under a pad that only clients know",
    public=Public.SEALED,
):
    """``digits`` (5, features): see :func:`digits_of`."""

    digits: Float64Array

    @staticmethod
    def ranges(request: MomentsRequest, rows: int) -> dict[str, Range]:
        """Return the bound of each digit."""
        return {"digits": Range((_DIGITS, request.features), np.repeat(_TOPS, request.features, 1))}


@travels
@dataclass(frozen=True)
class Blind:
    """A sum that the server cannot read.

    Attributes
    ----------
    total : (5, features) int64
        The sum in the ring, under the pads of all clients asked.
    number : int
        Number of the call, which names the pads.
    clients : tuple of int
        Clients asked.
    weight : int
        Their total weight.
    """

    total: IntArray
    number: int
    clients: tuple[int, ...]
    weight: int


@dataclass(frozen=True)
class MomentsRequest(Request[Moments], what="sums so far, under pads that only clients know", padded=True):
    """Request for the mean of transformed rows, or for the variance around the mean in ``mean``."""

    features: int
    metric: RowMetric = "euclidean"
    mean: Blind | None = None


@answers(MomentsRequest)
def part_of_moments(client: Client, request: MomentsRequest) -> Moments:
    """Client part: mean of its rows, or of their squared deviations from the common mean."""
    rows = Transformation(request.metric).applied(client.rows)
    if request.mean is None:
        values = rows.mean(axis=0, dtype=np.float64)
    else:
        values = ((rows - unblinded(client, request.mean)) ** 2).mean(axis=0)
    if not (np.abs(values) < 2.0**_LARGEST_BITS / 2).all():
        raise DataError(
            "the values of a feature, or their squares, are too large to be summed under pads: express it in"
            " another unit, or name it in data.exclude"
        )
    return Moments(digits_of(values))


def digits_of(values: Float64Array) -> Float64Array:
    """Return values (features,) below 2^80 as five summands, (5, features); all but the last are whole digits.

    >>> digits_of(np.array([2.0**30 + 3.0 + 2.0**-20]))[:, 0].tolist()
    [0.0, 1073741824.0, 3.0, 9.5367431640625e-07, 0.0]
    """
    digits, rest = np.zeros((_DIGITS, values.size)), np.array(values, np.float64)
    for digit in range(_DIGITS - 1):
        unit = _LARGEST_BITS - _DIGIT_BITS * (digit + 1)
        digits[digit] = np.ldexp(np.rint(np.ldexp(rest, -unit)), unit)
        rest -= digits[digit]
    digits[-1] = rest
    return digits


def unblinded(client: Client, blind: Blind) -> Float64Array:
    """Return a padded sum as a client reads it, (features,)."""
    total = blind.total.copy()
    for index in blind.clients:
        total -= pad(client.shared, blind.number, index, "digits", total.shape)
    digits = decode(total, fraction_bits(_TOPS, blind.weight))
    return np.asarray(digits[::-1].sum(axis=0) / blind.weight)


@dataclass(frozen=True)
class Keyed(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the scaling of the features, which only clients can read",
    public=Public.SEALED,
):
    """``scaling``: shift, factor and centre of the isometry, sealed; the same at every client."""

    scaling: UInt8Array

    @staticmethod
    def ranges(request: KeyRows, rows: int) -> dict[str, Range]:
        """Return the size of three numbers for each feature and one more."""
        size = sealed_size(8 * (3 * request.features + 1))
        return {"scaling": Range((size,), dtype="uint8", sealed=True)}


@dataclass(frozen=True)
class KeyRows(Request[Keyed], what="sums under pads that only clients know", sets_state=True):
    """Sent to every client once; its rows are then scaled and keyed.

    ``joint`` (columns, 2) are the features of columns that are scaled together.
    """

    features: int
    scale: KeyedScale
    metric: RowMetric
    mean: Blind
    variance: Blind
    joint: Int64Array


@answers(KeyRows)
def key_client(client: Client, request: KeyRows) -> Keyed:
    """Client part: replace the partition and the reserve with their keyed forms."""
    mean = unblinded(client, request.mean)
    deviation = np.sqrt(beyond_rounding(unblinded(client, request.variance), mean))
    if not deviation.any():
        raise DataError(
            "Every feature is constant over all clients, so there is no geometry to map:"
            " check data.features and the label column."
        )
    joint = JointColumns(tuple((int(first), int(stop)) for first, stop in request.joint))
    keyed = KeyedScaling.of(request.scale, request.metric, mean, deviation, joint)
    client.rows = keyed.applied(client.rows, client.shared)
    if client.reserve is not None:
        client.reserve = keyed.applied(client.reserve, client.shared)
    content = np.concatenate([keyed.scaling.shift, keyed.scaling.factor, keyed.centre, [keyed.unit]])
    return Keyed(seal(content.view(np.uint8), client.shared.key("sealing"), _binding(client.run)))


@dataclass(frozen=True)
class KeyedScaling:
    """The scaling and metric of the rows, and the centre and spread of the isometry.

    Attributes
    ----------
    scaling : Scaling
        Applied first.
    metric : RowMetric
        Metric for which scaled rows are then transformed, before the isometry.
    centre : (features,) float64
    unit : float
        See :class:`Isometry`; for transformed rows.
    """

    scaling: Scaling
    metric: RowMetric
    centre: Float64Array
    unit: float

    @classmethod
    def of(
        cls,
        scale: KeyedScale,
        metric: RowMetric,
        mean: Float64Array,
        deviation: Float64Array,
        joint: JointColumns = NOTHING_JOINT,
    ) -> KeyedScaling:
        """Return the scaling for moments of the rows as read; without scaling, of the transformed rows."""
        one, zero = np.ones(len(mean)), np.zeros(len(mean))
        if scale == "standard":
            # Rows of length 1 have a mean square of 1 / features in each feature.
            unit = 1.0 if metric == "euclidean" else len(mean) ** -0.5
            return cls(Scaling(mean, inverse(column_width(deviation, scale, joint))), metric, zero, unit)
        return cls(Scaling(zero, one), metric, mean, float(np.sqrt((deviation**2).mean())))

    def applied(self, rows: FloatArray, shared: Secret) -> FloatArray:
        """Return rows (rows, features) scaled, transformed and keyed."""
        return self.isometry(shared)(self.prepared(rows))

    def prepared(self, rows: FloatArray) -> FloatArray:
        """Return rows (rows, features) scaled and transformed."""
        return Transformation(self.metric).applied(scale_rows(rows, self.scaling))

    def isometry(self, shared: Secret) -> Isometry:
        """Return the key of all clients."""
        return Isometry(shared.derived("isometry"), self.centre, self.unit)


def opened(sealed: UInt8Array, shared: Secret, run: str, metric: RowMetric) -> KeyedScaling:
    """Return what a client sealed, opened with the secret of all clients, which the evaluation has too.

    Raises
    ------
    RunError
        If it belongs to another run, or was changed.
    """
    content = unseal(sealed, shared.key("sealing"), _binding(run)).view(np.float64)
    shift, factor, centre = content[:-1].reshape(3, -1)
    return KeyedScaling(Scaling(shift, factor), metric, centre, float(content[-1]))


def keyed_rows(
    rows: FloatArray, sealed: UInt8Array, shared: Secret, run: str, metric: RowMetric
) -> FloatArray:
    """Return new rows (rows, features), scaled, transformed and keyed like the run's clients, from a sealed scaling.

    Raises the errors of :func:`opened`.
    """
    known = opened(sealed, shared, run, metric)
    return in_blocks(known.isometry(shared).motion(), known.prepared(rows))


def _binding(run: str) -> Binding:
    return Binding(run, 0, 0, "scaling under an isometry key")


@dataclass(frozen=True)
class Disclosed(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="rows set apart as anchors, under the isometry key",
    public=Public.APART,
):
    """``rows`` (count, features) float64."""

    rows: Float64Array

    @staticmethod
    def ranges(request: DiscloseRequest, rows: int) -> dict[str, Range]:
        """Return the shape: all rows from one client, none from the others."""
        return {"rows": Range((request.count, request.features))}


@dataclass(frozen=True)
class DiscloseRequest(Request[Disclosed], what="a request for the hidden anchors under the key"):
    """One client discloses the keyed anchors; the server never sees the original ones."""

    count: int
    features: int
    teller: int = 0

    def addressed_to(self, client: int) -> DiscloseRequest:
        """Ask one client for all rows, the others for none."""
        return (
            self
            if client == self.teller or not self.count
            else DiscloseRequest(0, self.features, self.teller)
        )


@answers(DiscloseRequest)
def disclose(client: Client, request: DiscloseRequest) -> Disclosed:
    """Client part: return the reserve."""
    held = np.zeros((0, request.features)) if client.reserve is None else client.reserve
    return Disclosed(held[: request.count].astype(np.float64))


@dataclass(frozen=True)
class KeyAlike(
    Request[Done], what="the scaling of the clients, sealed so that only they can read it", sets_state=True
):
    """Sent to a client that joins later: it scales and keys its rows like the others."""

    sealed: UInt8Array
    metric: RowMetric


@answers(KeyAlike)
def key_alike(client: Client, request: KeyAlike) -> Done:
    """Client part: replace the partition with its keyed form."""
    client.rows = keyed_rows(client.rows, request.sealed, client.shared, client.run, request.metric)
    return Done()


def keyed_scale(scale: Scale) -> KeyedScale:
    """Return the scale, if clients can learn it by sums that the server cannot read.

    Raises
    ------
    ScenarioError
        For minmax and maxabs, because extremes are not sums.
    """
    if scale == "minmax" or scale == "maxabs":
        raise ScenarioError(
            f"privacy.isometry_key does not work with data.scale {scale}: the server would learn the extremes of"
            " each feature, which are not sums. Set data.scale to standard or none."
        )
    return scale


def keyed_metric(metric: Metric) -> RowMetric:
    """Return the metric, if clients can transform their rows without learning anything.

    Raises
    ------
    ScenarioError
        For gower and hamming, which need extremes.
    """
    if metric == "gower" or metric == "hamming":
        raise ScenarioError(
            f"privacy.isometry_key does not work with data.metric {metric}: the server would learn the extremes of"
            " each feature, which are not sums. Choose another metric."
        )
    return metric


def _blind(federation: Federation, request: MomentsRequest) -> Blind:
    call, totals = federation.padded_sum(request, weights="rows")
    return Blind(totals["digits"], call.number, call.clients, call.total_weight)


def key_rows(
    federation: Federation,
    scale: KeyedScale,
    hidden: int,
    joint: JointColumns = NOTHING_JOINT,
    metric: RowMetric = "euclidean",
) -> UInt8Array:
    """Let every client scale and key its rows, and disclose the hidden anchors under the key.

    Parameters
    ----------
    federation : Federation
        All clients, with their rows as read.
    scale : {"none", "standard"}
        See :func:`raydr.statistics.scaling.fit_scaling`.
    hidden : int
        Number of rows in reserve. Keyed, they become the federation's public rows.
    joint : JointColumns
        See :func:`raydr.statistics.scaling.fit_scaling`.
    metric : RowMetric
        See :mod:`raydr.statistics.dissimilarity`.

    Returns
    -------
    scaling : (bytes,) uint8
        Sealed: only clients can read it.
    """
    features = federation.features
    federation.agree()
    first: RowMetric = metric if scale == "none" else "euclidean"
    mean = _blind(federation, MomentsRequest(features, first))
    variance = _blind(federation, MomentsRequest(features, first, mean))
    replies = federation.ask(
        KeyRows(
            features, scale, metric, mean, variance, np.array(joint.scaled(scale), np.int64).reshape(-1, 2)
        )
    )
    federation.keyed()
    if hidden:
        disclosed = federation.ask(DiscloseRequest(hidden, features))
        federation.disclose_public(disclosed[0].rows)
    sealed = replies[0].scaling
    if any(not np.array_equal(reply.scaling, sealed) for reply in replies):
        raise RunError("clients scaled by different sums, or have different secrets. Start the run again.")
    return sealed
