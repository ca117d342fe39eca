"""dSNE (Saha, Calhoun, Panta & Plis, IJCAI 2017): one map of several sites, aligned by public reference rows.

Multi-shot, as in the paper. In each iteration

1. the server sends the positions of the public reference rows;
2. each site takes a step of t-SNE on its own rows and the reference rows together; it moves its own rows, and sends the
forces on the reference rows;
3. the server moves the reference rows by the mean over sites.

At the end each site sends the positions of its own rows. Single-shot: the server maps the reference rows
alone, and each site maps its own rows around them, once.

A row interacts with rows of its own site and with the reference rows, and with no row of another site. So
only the reference rows determine how sites lie relative to each other. Where there are none, nothing does.

Two things differ from the paper. Rows start on the reference rows' principal axes, not at random, so that
sites have the same orientation. Steps are openTSNE's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from raydr.arrays import BoolArray, Float64Array, FloatArray, shaped
from raydr.errors import DataError
from raydr.federation import Federation, Loop, Rehearsal
from raydr.geometry.points import Points
from raydr.methods.dsne.clients import (
    AroundRequest,
    BeginRequest,
    CatchUpRequest,
    Reference,
    SitePlacesRequest,
    StepRequest,
)
from raydr.methods.dsne.forces import Moving
from raydr.methods.dsne.settings import FEWEST, DsneSettings
from raydr.methods.method import method
from raydr.methods.outcome import Note, Outcome, draw_map
from raydr.methods.references import novelty_by_rows, placed_by_rows, public_calibration
from raydr.privacy import Mechanism
from raydr.statistics.principal_axes import signed
from raydr.threads import one_blas_thread

_FIRST_DEVIATION = 1e-4
"""Standard deviation of the reference rows' initial layout along its first axis, as in openTSNE."""


def reference_of(federation: Federation, settings: DsneSettings) -> Reference:
    """Return the public rows, and the axes of the initial layout.

    Raises
    ------
    DataError
        If there are none or too few, if their features are not the data's, or if all are equal.
    """
    public = federation.public
    if public is None or len(public) < FEWEST:
        raise DataError(
            f"dSNE joins sites by at least {FEWEST} public reference rows, and there are"
            f" {0 if public is None else len(public)}. Set method.reference_rows, or set"
            " method.reference_path to a file of rows that are not secret."
        )
    rows = np.asarray(public, np.float64)
    if rows.shape[1] != federation.features:
        raise DataError(
            f"The reference rows have {rows.shape[1]} features and the data {federation.features}. The"
            " file of method.reference_path must hold the columns of data.features, in the same order,"
            " and no others."
        )
    centre = rows.mean(axis=0)
    centre += (rows - centre).mean(axis=0)
    with one_blas_thread():
        _, lengths, turned = np.linalg.svd(rows - centre, full_matrices=False)
    if not lengths[0] > 0.0:
        raise DataError(
            "All reference rows are equal, so they cannot align the sites. Give reference rows that differ."
        )
    axes = np.zeros((federation.features, settings.dimensions))
    found = signed(turned[: settings.dimensions].T)
    axes[:, : found.shape[1]] = found * (_FIRST_DEVIATION * np.sqrt(len(rows)) / lengths[0])
    return Reference(rows, centre, axes)


class DSNE(DsneSettings):
    """dSNE: t-SNE at each site, with shared positions of public reference rows (Saha et al. 2017)."""

    noise_on: ClassVar[frozenset[str]] = frozenset({"data"})
    draws_all_rows: ClassVar[bool] = False

    @property
    def rounds_asked(self) -> int:
        """Number of iterations if sites move the reference rows together, else 0."""
        return self.total if self.shots == "multi" else 0

    @property
    def public_file(self) -> str | None:
        """Path of the file of reference rows."""
        return self.reference_path

    def releases(self, noise: Mechanism) -> int:
        """Return 1 for noise that records carry permanently; noise on anything else covers nothing."""
        return int(noise.for_good)

    def posts(self) -> str:
        """Return what is sent without noise: positions."""
        return "the position of every record on the map"

    def why_no_key(self) -> None:
        """Return None: the key may rotate rows, because all results depend on distances alone."""

    def transform(self, model: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:
        """Return positions of new rows among the reference rows alone (:mod:`raydr.methods.references`)."""
        return placed_by_rows(model, rows)

    def novelty(self, model: Mapping[str, FloatArray], rows: FloatArray) -> Float64Array | None:
        """Return p-values (rows,) by the distance to the nearest reference row."""
        return novelty_by_rows(model, rows)

    def rehearse(self, federation: Rehearsal) -> None:
        """Ask what :func:`serve` asks."""
        self.check(federation.rows, federation.features)
        reference = reference_of(federation, self)
        count, dimensions = len(reference.rows), self.dimensions
        points = [count + size for size in federation.sizes]
        pairs, searched = float(sum(size**2 for size in points)), 2.0 * federation.features
        places = shaped((count, dimensions))
        if self.shots == "single":
            with federation.stage("sites"):
                federation.ask(AroundRequest(self, reference, places))
                federation.add_operations(at_clients=pairs * (searched + 10.0 * self.total))
            return
        with federation.stage("affinities"):
            federation.ask(BeginRequest(self, reference))
            federation.add_operations(at_clients=pairs * searched)
        with federation.stage("iterations"):
            for number in federation.rounds(self.total):
                federation.mean(StepRequest(places, number, self.pace(number)))
                federation.add_operations(at_clients=10.0 * pairs)
        with federation.stage("map"):
            federation.ask(SitePlacesRequest(dimensions))


@method(DSNE, "dSNE")
def serve(federation: Federation, settings: DSNE) -> Outcome:
    """Run the server part."""
    settings.check(federation.rows, federation.features)
    reference = reference_of(federation, settings)
    if settings.shots == "single":
        places, embedding = _single_shot(federation, settings, reference)
    else:
        places, embedding = _multi_shot(federation, settings, reference)
    model: dict[str, FloatArray] = {
        "references": reference.rows,
        "reference_positions": places,
        "reference_counts": np.ones(len(places)),
    }
    if not federation.context.blurred:
        model |= public_calibration(reference.rows)
    return Outcome(embedding=embedding, geometry=None, model=model, notes=(_note(federation, len(places)),))


def _single_shot(
    federation: Federation, settings: DSNE, reference: Reference
) -> tuple[Float64Array, Float64Array]:
    """Return the positions of the reference rows, which stay, and of all rows around them."""
    rows = reference.rows - reference.centre
    alone = settings.model_copy(update={"perplexity": settings.perplexity_of(len(rows))})
    drawn = draw_map(
        Points(rows),
        rows,
        alone,
        dimensions=settings.dimensions,
        seed=federation.seed,
        journal=federation.journal,
    )
    places = np.asarray(drawn.embedding, np.float64)
    with federation.stage("sites"):
        replies = federation.ask(AroundRequest(settings, reference, places))
    return places, np.concatenate([reply.places for reply in replies])


@dataclass(kw_only=True, frozen=True)
class _Iterations(Moving):
    """The reference rows, and how sites repeat their iterations.

    Attributes
    ----------
    course : (iterations, reference rows, dimensions) float64
        Their positions before each iteration.
    present : (iterations, clients) bool
        Which clients took part.
    """

    course: Float64Array
    present: BoolArray


def _multi_shot(
    federation: Federation, settings: DSNE, reference: Reference
) -> tuple[Float64Array, Float64Array]:
    """Return the positions of the reference rows, which all sites move together, and of all rows."""
    with federation.stage("affinities"):
        federation.ask(BeginRequest(settings, reference))
    first = Moving.at((reference.rows - reference.centre) @ reference.axes)
    loop = Loop(
        _Iterations(
            **vars(first),
            course=np.zeros((0, *first.places.shape)),
            present=np.zeros((0, federation.clients), np.bool_),
        )
    )
    behind = True  # the clients of a resumed run have started again
    several = len(first.places) + federation.rows / sum(size > 0 for size in federation.sizes)
    with federation.stage("iterations"):
        for number in federation.rounds(settings.total, loop):
            if behind:
                _catch_up(federation, loop.state)
                behind = False
            now = loop.state
            exaggeration = settings.pace(number)
            answer = federation.mean(StepRequest(now.places, number, exaggeration))
            rate = settings.learning_rate or several / exaggeration
            moved = now.stepped(answer.on_reference, rate)
            loop.state = replace(
                moved,
                course=np.concatenate([now.course, now.places[None]]),
                present=np.concatenate([now.present, _present(federation)[None]]),
            )
            federation.report(objective=answer.divergence, moved=float((moved.change**2).sum()))
        if behind:
            _catch_up(federation, loop.state)
    with federation.stage("map"):
        replies = federation.ask(SitePlacesRequest(settings.dimensions))
    return loop.state.places, np.concatenate([reply.places for reply in replies])


def _catch_up(federation: Federation, state: _Iterations) -> None:
    """Have sites repeat the iterations of a resumed run."""
    if len(state.course):
        federation.ask(CatchUpRequest(state.course, state.present))


def _present(federation: Federation) -> BoolArray:
    """Return which clients took part in the iteration, (clients,)."""
    return np.isin(np.arange(federation.clients), federation.answered)


def _note(federation: Federation, references: int) -> Note:
    """Return a note on what the map can show, and what it cannot."""
    return Note(
        "How clients lie relative to each other",
        f"Each record was placed next to records of its own client and {references:,} public reference"
        " rows. No record of another client attracted or repelled it, so only the reference rows"
        " determine how clients lie relative to each other. Kinds of records that the reference rows"
        " lack may lie anywhere on the map, in a different place for each client.",
    )
