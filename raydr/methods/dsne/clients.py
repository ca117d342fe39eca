"""dSNE's messages and client code: a t-SNE of a site's own rows and the reference rows together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from raydr.arrays import BoolArray, Float64Array
from raydr.errors import RunError
from raydr.federation import Client, Granularity, Public, Range, RecordContent, Reply, Request, answers
from raydr.methods.dsne.forces import Moving, affinities, forces
from raydr.methods.dsne.settings import DsneSettings
from raydr.wire_types import travels

_JITTER = 1e-6
"""Separates rows that start at one point."""
LARGEST_DIVERGENCE = 100.0


@dataclass(frozen=True)
class Ready(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="confirmation that a client has followed the request",
    public=Public.EMPTY,
):
    """A reply without content."""

    @staticmethod
    def ranges(request: Any, rows: int) -> dict[str, Range]:
        """Return no field."""
        return {}


@travels
@dataclass(frozen=True)
class Reference:
    """Data that all sites know.

    Attributes
    ----------
    rows : (references, features) float64
        Public rows.
    centre : (features,) float64
        Their mean.
    axes : (features, dimensions) float64
        Axes of the common initial layout: the reference rows' principal axes, scaled.
    """

    rows: Float64Array
    centre: Float64Array
    axes: Float64Array


@dataclass(frozen=True)
class BeginRequest(
    Request[Ready], what="the public reference rows, and the axes of the first layout", sets_state=True
):
    """Request sent once: each site computes its affinities, and projects its rows on the reference axes."""

    settings: DsneSettings
    reference: Reference


@answers(BeginRequest)
def begin(client: Client, request: BeginRequest) -> Ready:
    """Run the client part of the start."""
    reference = request.reference
    own = client.rows.astype(np.float64) - reference.centre
    noise = client.stream("first places").normal(scale=_JITTER, size=(len(own), reference.axes.shape[1]))
    client.memory["dsne"] = _site(request.settings, reference, own, own @ reference.axes + noise)
    return Ready()


@dataclass(frozen=True)
class SiteState:
    """State of a site between iterations.

    ``joint`` are the affinities of reference rows, then its own; ``own`` are the positions of its own.
    """

    settings: DsneSettings
    joint: Any
    own: Moving

    def followed(self, shared: Float64Array, number: int) -> tuple[SiteState, Float64Array, float]:
        """Run an iteration with the reference rows at these positions.

        Return the new state, the forces on the reference rows, and the divergence.
        """
        exaggeration = self.settings.pace(number)
        force, divergence = forces(self.joint, np.concatenate([shared, self.own.places]), exaggeration)
        rate = self.settings.learning_rate or len(force) / exaggeration
        own = self.own.stepped(force[len(shared) :], rate)
        return replace(self, own=own), force[: len(shared)], divergence


def _site(settings: DsneSettings, reference: Reference, own: Float64Array, places: Float64Array) -> SiteState:
    points = np.concatenate([reference.rows - reference.centre, own])
    return SiteState(settings, affinities(points, settings.perplexity_of(len(points))), Moving.at(places))


def _site_of(client: Client) -> SiteState:
    site = client.memory.get("dsne")
    if not isinstance(site, SiteState):
        raise RunError(
            f"client {client.index} was asked for an iteration before it received the reference rows"
        )
    return site


@dataclass(frozen=True)
class Forces(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the force of a client's records on each public reference row of the map, and the client's"
    " divergence",
):
    """A site's contribution to an iteration.

    Attributes
    ----------
    on_reference : (references, dimensions) float64
        A quarter of the gradient of the site's divergence.
    divergence : float
        Divergence of the site, its reference rows included.
    """

    on_reference: Float64Array
    divergence: float

    @staticmethod
    def ranges(request: StepRequest, rows: int) -> dict[str, Range]:
        """Return the range for any data: affinities of a row sum to 1 at most, and d / (1 + d^2) is at most a half."""
        largest = (request.exaggeration + 1.0) / 2.0 + 1e-9
        return {
            "on_reference": Range(request.places.shape, largest),
            "divergence": Range((), LARGEST_DIVERGENCE),
        }


@dataclass(frozen=True)
class StepRequest(
    Request[Forces], what="the positions of the public reference rows on the map", sets_state=True
):
    """One iteration: each site moves its own rows, and sends forces on the reference rows (references, dimensions)."""

    places: Float64Array
    number: int
    exaggeration: float


@answers(StepRequest)
def step(client: Client, request: StepRequest) -> Forces:
    """Run the client part of an iteration."""
    client.memory["dsne"], force, divergence = _site_of(client).followed(request.places, request.number)
    return Forces(force, min(max(divergence, 0.0), LARGEST_DIVERGENCE))


@dataclass(frozen=True)
class CatchUpRequest(
    Request[Ready],
    what="the positions of the public reference rows in all iterations so far",
    sets_state=True,
):
    """Request after a resumption: each site repeats the iterations that it took part in.

    ``course`` (iterations, references, dimensions) float64, ``present`` (iterations, clients) bool.
    """

    course: Float64Array
    present: BoolArray


@answers(CatchUpRequest)
def catch_up(client: Client, request: CatchUpRequest) -> Ready:
    """Run the client part of a resumption."""
    site = _site_of(client)
    for number in np.flatnonzero(request.present[:, client.index]):
        site, _, _ = site.followed(request.course[number], int(number) + 1)
    client.memory["dsne"] = site
    return Ready()


@dataclass(frozen=True)
class SitePlaces(
    Reply,
    granularity=Granularity.PER_RECORD,
    what="the position of every record on the map",
    tells=RecordContent.PLACES,
):
    """``places`` (rows, dimensions) float64."""

    places: Float64Array

    @staticmethod
    def ranges(request: SitePlacesRequest | AroundRequest, rows: int) -> dict[str, Range]:
        """Return the range: the coordinates of each row."""
        return {"places": Range((rows, request.dimensions))}


@dataclass(frozen=True)
class SitePlacesRequest(Request[SitePlaces], what="notice that the iterations are over"):
    """Request at the end of the run."""

    dimensions: int


@answers(SitePlacesRequest)
def post_places(client: Client, request: SitePlacesRequest) -> SitePlaces:
    """Run the client part of the end."""
    return SitePlaces(_site_of(client).own.places)


@dataclass(frozen=True)
class AroundRequest(Request[SitePlaces], what="the public reference rows, and a map of them"):
    """Single-shot request: each site maps its own rows around the reference rows, which stay at ``places``."""

    settings: DsneSettings
    reference: Reference
    places: Float64Array

    @property
    def dimensions(self) -> int:
        """Dimensions of the map."""
        return int(self.places.shape[1])


@answers(AroundRequest)
def around(client: Client, request: AroundRequest) -> SitePlaces:
    """Run the client part of the single shot: each row starts at the position of the nearest reference row."""
    from raydr.geometry.points import squared_distances

    reference = request.reference
    own = client.rows.astype(np.float64) - reference.centre
    if not len(own):
        return SitePlaces(np.zeros((0, request.dimensions)))
    nearest = squared_distances(own, reference.rows - reference.centre).argmin(axis=1)
    noise = client.stream("first places").normal(scale=_JITTER, size=(len(own), request.dimensions))
    site = _site(request.settings, reference, own, request.places[nearest] + noise)
    for number in range(1, request.settings.total + 1):
        site, _, _ = site.followed(request.places, number)
    return SitePlaces(site.own.places)
