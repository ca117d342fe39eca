"""A site that joins a finished run: its requests, its uploads, and the positions of its rows.

1. The site receives the filling, harmonization, scaling, metric and key of the run's clients, and applies them to its
own rows.
2. It uploads the same data on each record as they did (:meth:`raydr.methods.method.MethodSettings.admit`),
and the server computes a position on the unchanged map (P3, A.16). If the clients sent positions alone, the
site computes its own from the run's model for new rows, and sends these. If they kept theirs, it keeps its
own. In both cases it compares its rows with the mapped ones and keeps the result.

No client of the run is involved, except under an isometry key. Then one of them seals the secret of all clients for the
site, and the server forwards the sealed box. The site has its own secret like every client.

The run's data are read only: joining does not change the map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array, UInt8Array
from raydr.errors import ScenarioError
from raydr.federation import Client, Federation, Granularity, Range, Reply, Request, Transport, answers
from raydr.federation.blurring import blur_records
from raydr.journal import Journal
from raydr.methods.method import MethodSettings
from raydr.methods.novelty import compared
from raydr.methods.outcome import Placed
from raydr.methods.serving import Plan
from raydr.privacy.ledger import Ledger
from raydr.statistics.dissimilarity import EUCLIDEAN, Transformation, apply_transformation
from raydr.statistics.filling import FillRows
from raydr.statistics.harmonizing import HarmonizeRows
from raydr.statistics.keying import KeyAlike, keyed_metric
from raydr.statistics.noisy_survey import PreparedCells, apply_cells
from raydr.statistics.scaling import ScaleRows, Scaling
from raydr.statistics.site_effects import Common
from raydr.statistics.steering import Steering, apply_steering
from raydr.threads import one_blas_thread

MEMBER = 1
"""The client of the run that hands its secret to the site; the site is client 0."""


@dataclass(frozen=True)
class SitePlaces(
    Reply, granularity=Granularity.PER_RECORD, what="the position of every record of the site on the map"
):
    """``places`` (rows, dimensions) float64, and ``clusters`` (rows,) int64, empty without clusters."""

    places: Float64Array
    clusters: Int64Array

    @staticmethod
    def ranges(request: PlaceSite | PlaceSiteAtHome, rows: int) -> dict[str, Range]:
        """Return the range: a position and a cluster for each row."""
        clusters = rows if request.settings.offers("predict") else 0
        return {"places": Range((rows, request.dimensions)), "clusters": Range((clusters,), dtype="int64")}


@dataclass(frozen=True)
class SitePlacesAtHome(
    SitePlaces,
    granularity=Granularity.PER_RECORD,
    what="the position of every record of the site on the map, which the site keeps",
    stays=True,
):
    """Positions that the site keeps."""


@dataclass(frozen=True)
class SiteNovelty(
    Reply,
    granularity=Granularity.PER_RECORD,
    what="how unlike the mapped rows every record of the site is, which the site keeps",
    stays=True,
):
    """``novelty`` (rows,) float64: p-values that the site keeps."""

    novelty: Float64Array

    @staticmethod
    def ranges(request: CompareSite, rows: int) -> dict[str, Range]:
        """Return the range: a p-value for each row."""
        return {"novelty": Range((rows,), 1.0)}


@dataclass(frozen=True)
class CompareSite(
    Request[SiteNovelty], what="the model with which new rows are compared, as the run left it"
):
    """Request to compare a site's rows with the mapped ones: a method's settings and its model."""

    settings: MethodSettings
    model: Mapping[str, FloatArray]


@answers(CompareSite)
def keep_novelty(client: Client, request: CompareSite) -> SiteNovelty:
    """Run the client part of the comparison, and keep the result."""
    found = request.settings.novelty(request.model, client.rows)
    return SiteNovelty(np.ones(len(client.rows)) if found is None else found)


@dataclass(frozen=True)
class PlaceSite(Request[SitePlaces], what="the model that places new rows on the map, as the run left it"):
    """Request to place a site's rows: a method's name and settings, its model, and the ``dimensions`` of the map."""

    kind: str
    settings: MethodSettings
    model: Mapping[str, FloatArray]
    dimensions: int


@dataclass(frozen=True)
class PlaceSiteAtHome(
    Request[SitePlacesAtHome], what="the model that places new rows on the map, as the run left it"
):
    """As :class:`PlaceSite`, but the site keeps the positions."""

    kind: str
    settings: MethodSettings
    model: Mapping[str, FloatArray]
    dimensions: int


@answers(PlaceSite)
def post_places(client: Client, request: PlaceSite) -> SitePlaces:
    """Run the client part of step 2 if positions are sent."""
    found = placed(request.settings, request.model, client.rows)
    none = np.zeros(0, np.int64)
    return SitePlaces(
        np.asarray(found.places, np.float64), none if found.clusters is None else found.clusters
    )


@answers(PlaceSiteAtHome)
def keep_places(client: Client, request: PlaceSiteAtHome) -> SitePlacesAtHome:
    """Run the client part of step 2 if nothing is sent."""
    found = placed(request.settings, request.model, client.rows)
    none = np.zeros(0, np.int64)
    return SitePlacesAtHome(
        np.asarray(found.places, np.float64), none if found.clusters is None else found.clusters
    )


def placed(settings: MethodSettings, model: Mapping[str, FloatArray], rows: FloatArray) -> Placed:
    """Return positions of new rows (rows, features), scaled as in the run, and their clusters if the method has any.

    Raises
    ------
    ScenarioError
        If maps under these settings take no new rows.
    """
    reason = settings.why_no_new_rows()
    if reason is not None:
        raise ScenarioError(f"New rows cannot be placed on this map: {reason}.")
    with np.errstate(over="ignore", invalid="ignore"):
        places = settings.transform(model, rows)
        clusters = settings.predict(model, rows) if settings.offers("predict") else None
        novelty = settings.novelty(model, rows)
    return Placed(places, clusters, novelty)


@dataclass(frozen=True)
class ScaledBy:
    """Preprocessing of the rows by the run's clients.

    Attributes
    ----------
    scaling : Scaling or None
        Filling and scaling; None if sealed.
    sealed : (bytes,) uint8 or None
        The same under the isometry key, with the key's centre; only clients can read it.
    common : Common or None
        Common part of the harmonization; None without harmonization.
    transformation : Transformation
        Transformation for the metric; unused if sealed.
    steering : Steering or None
        The label's block; None if labels do not steer. The site's rows are new, so they lie at its mean.
    cells : PreparedCells or None
        Features of raw cells by a noisy survey; None without a survey.
    """

    scaling: Scaling | None
    sealed: UInt8Array | None = None
    common: Common | None = None
    transformation: Transformation = EUCLIDEAN
    steering: Steering | None = None
    cells: PreparedCells | None = None


def admit(
    transport: Transport,
    plan: Plan,
    model: Mapping[str, FloatArray],
    scaled_by: ScaledBy,
    dimensions: int,
    *,
    journal: Journal,
) -> tuple[Placed, Ledger]:
    """Have a site join, over a transport that reaches it alone.

    Parameters
    ----------
    transport : Transport
        Reaches the site, which holds its rows as read; under an isometry key also a client of the run, as ``MEMBER``.
    plan : Plan
        The run's plan.
    model : mapping of name to array
        The run's model for new rows.
    scaled_by : ScaledBy
        Preprocessing before the method.
    dimensions : {2, 3}
        Dimensions of the map.
    journal : Journal
        Receives the stages.

    Returns
    -------
    placed : Placed
        Positions of the site's rows.
    ledger : Ledger
        Every message between the site and the server.

    Raises
    ------
    ScenarioError
        If the level of noise is relative to a spread that the run did not keep.
    """
    require_admissible(plan)
    alone = replace(
        plan,
        participation=1.0,
        checkpoint_every=0,
        evaluate_every=0,
        public=None,
        hidden=0,
        secure=None,
        fidelity_rows=0,
    )
    with one_blas_thread():
        with journal.stage("site"):
            federation = Federation(transport, 1, alone, journal=journal)
        with federation.stage("scaling"):
            _prepare(federation, alone, scaled_by)
        settings = plan.settings
        with federation.stage("new rows"):
            found = settings.admit(federation, model)
            if found is None:
                fields = (plan.method, settings, model, dimensions)
                reply: SitePlaces
                if settings.keeps_places:
                    reply = federation.ask(PlaceSiteAtHome(*fields))[0]
                else:
                    reply = federation.ask(PlaceSite(*fields))[0]
                novelty = None
                if compared(model) is not None:
                    novelty = federation.ask(CompareSite(settings, model))[0].novelty
                found = Placed(reply.places, reply.clusters if settings.offers("predict") else None, novelty)
    return found, federation.ledger.settled(plan.budget.delta)


def require_admissible(plan: Plan) -> None:
    """Raise ScenarioError if a site cannot preprocess its rows as the run's clients did."""
    if plan.coverage is None:
        return
    noise = plan.coverage.mechanism
    if noise.on == "data" and noise.by_level:
        raise ScenarioError(
            "No site can join this run: the level of privacy.noise on data is relative to the spread"
            " of all clients' rows, and a run does not keep that spread."
        )


def _prepare(federation: Federation, plan: Plan, scaled_by: ScaledBy) -> None:
    """Have the site fill in, blur, harmonize, scale and key its rows as the run's clients did, in the same order.

    As in the run, the site estimates its own site effect and keeps it.
    """
    if scaled_by.sealed is not None:
        federation.agree(founder=MEMBER, clients=MEMBER + 1)
        federation.ask(KeyAlike(scaled_by.sealed, keyed_metric(plan.metric)))
        federation.keyed()
        return
    scaling = scaled_by.scaling
    if scaling is None:
        raise ValueError("the site's rows are neither scaled nor keyed")
    if scaled_by.cells is not None:
        apply_cells(federation, scaled_by.cells)
        return
    if scaling.fill is not None:
        federation.ask(FillRows(scaling.fill))
    noise = plan.mechanism("data")
    if noise is not None and noise.for_good:
        blur_records(federation, noise, float("nan"))
    if scaled_by.common is not None:
        federation.ask(HarmonizeRows(scaled_by.common))
    if plan.scale != "none":
        federation.ask(ScaleRows(scaling.shift, scaling.factor))
    if plan.metric != "euclidean":
        apply_transformation(federation, scaled_by.transformation)
    if scaled_by.steering is not None:
        apply_steering(federation, scaled_by.steering)
