"""Rows under an isometry key (:mod:`raydr.privacy.isometry`): scaled and turned before anything is told of them.

Scaling needs moments of the features as they are, which would tell the server what the key hides. So they are sums that
the server adds up and cannot read: each client adds a pad of the ring's integers that all clients can compute and the
server cannot, and the clients take the pads of all off again. Pads and key follow from a secret that clients agree on
first (:meth:`raydr.federation.Federation.agree`).

A summand is written in five digits of 32 bits, from 2^80 down to 2^-80: no magnitudes have to be agreed upon first,
which would tell something too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array, UInt8Array
from raydr.errors import DataError, RunError, ScenarioError
from raydr.federation import Client, Federation, Granularity, Public, Range, Reply, Request, answers
from raydr.federation.pads import pad
from raydr.federation.ring import decode, fraction_bits
from raydr.geometry.blocks import in_blocks
from raydr.privacy.isometry import Isometry
from raydr.privacy.sealing import Binding, seal, sealed_size, unseal
from raydr.privacy.secrets import Secret
from raydr.statistics.moments import beyond_rounding
from raydr.statistics.scaling import Done, Scale, Scaling, inverse, scale_rows

KeyedScale: TypeAlias = Literal["none", "standard", "unit"]

_DIGITS, _DIGIT_BITS, _LARGEST_BITS = 5, 32, 80
_TOPS = np.ldexp(1.0, _LARGEST_BITS - _DIGIT_BITS * np.arange(_DIGITS))[:, None]
"""Bounds on each digit, (5, 1)."""


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
        """Of each digit."""
        return {"digits": Range((_DIGITS, request.features), np.repeat(_TOPS, request.features, 1))}


@dataclass(frozen=True)
class Blind:
    """A sum that the server cannot read.

    Attributes
    ----------
    total : (5, features) int64
        In the ring, under the pads of all who were asked.
    number : int
        Of the call, by which pads are named.
    clients : tuple of int
        Who was asked.
    weight : int
        Of all of them.
    """

    total: Int64Array
    number: int
    clients: tuple[int, ...]
    weight: int


@dataclass(frozen=True)
class MomentsRequest(Request[Moments], what="sums so far, under pads that only clients know", padded=True):
    """Ask for the mean, or for the variance around the mean that ``mean`` holds."""

    features: int
    scale: KeyedScale
    mean: Blind | None = None


@answers(MomentsRequest)
def part_of_moments(client: Client, request: MomentsRequest) -> Moments:
    """Client part: mean of its rows, or of the squares of their deviations from the common mean."""
    rows = _of_unit_length(client.rows, request.scale)
    if request.mean is None:
        values = rows.mean(axis=0, dtype=np.float64)
    else:
        values = ((rows - unblinded(client, request.mean)) ** 2).mean(axis=0)
    if not (np.abs(values) < 2.0**_LARGEST_BITS / 2).all():
        raise DataError(
            "the values of a feature, or their squares, are too large to be added up under pads: express it in"
            " another unit, or leave it out of data.features"
        )
    return Moments(digits_of(values))


def digits_of(values: Float64Array) -> Float64Array:
    """Values (features,) below 2^80 as five summands each, (5, features), of which all but the last are whole digits.

    >>> digits_of(np.array([2.0**50 + 3.0 + 2.0**-20]))[:, 0].tolist()
    [1125899906842624.0, 0.0, 3.00000095367431640625, 0.0, 0.0]
    """
    digits, rest = np.zeros((_DIGITS, values.size)), np.array(values, np.float64)
    for digit in range(_DIGITS - 1):
        unit = _LARGEST_BITS - _DIGIT_BITS * (digit + 1)
        digits[digit] = np.ldexp(np.rint(np.ldexp(rest, -unit)), unit)
        rest -= digits[digit]
    digits[-1] = rest
    return digits


def unblinded(client: Client, blind: Blind) -> Float64Array:
    """A client reads a padded sum: (features,)."""
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
    """``scaling``: shift, factor and what the isometry is drawn around, sealed; the same of every client."""

    scaling: UInt8Array

    @staticmethod
    def ranges(request: KeyRows, rows: int) -> dict[str, Range]:
        """Three numbers of each feature and one more."""
        size = sealed_size(8 * (3 * request.features + 1))
        return {"scaling": Range((size,), dtype="uint8", sealed=True)}


@dataclass(frozen=True)
class KeyRows(Request[Keyed], what="sums under pads that only clients know", sets_state=True):
    """Told to every client once: its rows are scaled and keyed from then on."""

    features: int
    scale: KeyedScale
    mean: Blind
    variance: Blind


@answers(KeyRows)
def key_client(client: Client, request: KeyRows) -> Keyed:
    """Client part: replace the partition, and what is held in reserve, by their keyed forms."""
    mean = unblinded(client, request.mean)
    deviation = np.sqrt(beyond_rounding(unblinded(client, request.variance), mean))
    if not deviation.any():
        raise DataError(
            "Every feature is constant over all clients, so there is no geometry to map:"
            " check data.features and the label column."
        )
    keyed = KeyedScaling.of(request.scale, mean, deviation)
    client.rows = keyed.applied(client.rows, client.shared)
    if client.reserve is not None:
        client.reserve = keyed.applied(client.reserve, client.shared)
    content = np.concatenate([keyed.scaling.shift, keyed.scaling.factor, keyed.centre, [keyed.unit]])
    return Keyed(seal(content.view(np.uint8), client.shared.key("sealing"), _binding(client.run)))


@dataclass(frozen=True)
class KeyedScaling:
    """How rows are scaled, and around what the isometry is drawn.

    Attributes
    ----------
    scaling : Scaling
        Applied first.
    centre : (features,) float64
    unit : float
        See :class:`Isometry`; of scaled rows.
    """

    scaling: Scaling
    centre: Float64Array
    unit: float

    @classmethod
    def of(cls, scale: KeyedScale, mean: Float64Array, deviation: Float64Array) -> KeyedScaling:
        """Return what moments say; those of ``unit`` are of rows of length 1."""
        one, zero = np.ones(len(mean)), np.zeros(len(mean))
        if scale == "standard":
            return cls(Scaling(mean, inverse(deviation), False), zero, 1.0)
        return cls(Scaling(zero, one, scale == "unit"), mean, float(np.sqrt((deviation**2).mean())))

    def applied(self, rows: FloatArray, shared: Secret) -> FloatArray:
        """Rows (rows, features) scaled and keyed."""
        return self.isometry(shared)(scale_rows(rows, self.scaling))

    def isometry(self, shared: Secret) -> Isometry:
        """The key of all clients."""
        return Isometry(shared.derived("isometry"), self.centre, self.unit)


def opened(sealed: UInt8Array, shared: Secret, run: str, scale: KeyedScale) -> KeyedScaling:
    """Open what a client sealed, with the secret of all clients, which the evaluation has too.

    Raises
    ------
    RunError
        If it is of another run, or changed.
    """
    content = unseal(sealed, shared.key("sealing"), _binding(run)).view(np.float64)
    shift, factor, centre = content[:-1].reshape(3, -1)
    return KeyedScaling(Scaling(shift, factor, scale == "unit"), centre, float(content[-1]))


def keyed_rows(
    rows: FloatArray, sealed: UInt8Array, shared: Secret, run: str, scale: KeyedScale
) -> FloatArray:
    """New rows (rows, features) scaled and keyed as those of the run's clients, whose scaling one of them sealed.

    Raises as :func:`opened`.
    """
    known = opened(sealed, shared, run, scale)
    return in_blocks(known.isometry(shared).motion(), scale_rows(rows, known.scaling))


def _binding(run: str) -> Binding:
    return Binding(run, 0, 0, "scaling under an isometry key")


def _of_unit_length(rows: FloatArray, scale: KeyedScale) -> FloatArray:
    if scale != "unit":
        return rows
    return scale_rows(rows, Scaling(np.zeros(rows.shape[1]), np.ones(rows.shape[1]), True))


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
        """All of them, of one client; none of the others."""
        return {"rows": Range((request.count, request.features))}


@dataclass(frozen=True)
class DiscloseRequest(Request[Disclosed], what="the question what the hidden anchors are under the key"):
    """One client tells them; the server never sees them as they are."""

    count: int
    features: int
    teller: int = 0

    def addressed_to(self, client: int) -> DiscloseRequest:
        """Ask one client for all, the others for none."""
        return (
            self
            if client == self.teller or not self.count
            else DiscloseRequest(0, self.features, self.teller)
        )


@answers(DiscloseRequest)
def disclose(client: Client, request: DiscloseRequest) -> Disclosed:
    """Client part: the rows held in reserve."""
    held = np.zeros((0, request.features)) if client.reserve is None else client.reserve
    return Disclosed(held[: request.count].astype(np.float64))


@dataclass(frozen=True)
class KeyAlike(Request[Done], what="what clients scaled by, sealed for them alone", sets_state=True):
    """Told to a client that comes later: it scales and keys its rows as the others did theirs."""

    sealed: UInt8Array
    scale: KeyedScale


@answers(KeyAlike)
def key_alike(client: Client, request: KeyAlike) -> Done:
    """Client part: replace the partition by its keyed form."""
    client.rows = keyed_rows(client.rows, request.sealed, client.shared, client.run, request.scale)
    return Done()


def keyed_scale(scale: Scale) -> KeyedScale:
    """Return the scale, where clients can learn it by sums that the server cannot read.

    Raises
    ------
    ScenarioError
        Of minmax: extremes are no sums.
    """
    if scale == "minmax":
        raise ScenarioError(
            "privacy.isometry_key: extremes of features are no sums, and would be told to the server: set data.scale to"
            " standard, unit or none."
        )
    return scale


def _blind(federation: Federation, request: MomentsRequest) -> Blind:
    call, totals = federation.padded_sum(request, weights="rows")
    return Blind(totals["digits"], call.number, call.clients, call.total_weight)


def key_rows(federation: Federation, scale: KeyedScale, hidden: int) -> UInt8Array:
    """Have every client scale and key its rows, and learn the anchors that it hides, keyed.

    Parameters
    ----------
    federation : Federation
        All clients, with their rows as read.
    scale : {"none", "standard", "unit"}
        As :func:`raydr.statistics.scaling.fit_scaling`.
    hidden : int
        Rows that clients hold in reserve; keyed, they are the federation's public rows from then on.

    Returns
    -------
    scaling : (bytes,) uint8
        Sealed: only clients can read it.
    """
    features = federation.features
    federation.agree()
    mean = _blind(federation, MomentsRequest(features, scale))
    variance = _blind(federation, MomentsRequest(features, scale, mean))
    replies = federation.ask(KeyRows(features, scale, mean, variance))
    federation.keyed()
    if hidden:
        told = federation.ask(DiscloseRequest(hidden, features))
        federation.disclose_public(told[0].rows)
    sealed = replies[0].scaling
    if any(not np.array_equal(reply.scaling, sealed) for reply in replies):
        raise RunError("clients scaled by different sums, or have different secrets: start the run anew.")
    return sealed
