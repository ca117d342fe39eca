"""The private map: the server receives noisy sums, and draws a map of landmarks.

1. Clients sum their records, and the server receives the noisy mean and mean length (:mod:`...frame`).
2. They sum second moments, relative to that mean and clipped to that length: noisy principal axes, the frame.
3. In a few rounds they sum residuals and counts by cell of the frame: noisy Lloyd (:mod:`...cells`).
4. The server maps the cells by t-SNE. For few rows among many clients, it maps rows drawn from the mixture of the cells
   instead (:mod:`...drawn`). All clients receive these landmarks and their map.
5. With ``density``, clients count their records by squares of that map, each placed by the landmarks alone
   (:mod:`...density`).
6. With ``novelty_share``, clients count their records by their distance to the nearest landmark (:mod:`...novelty`).
7. Each client places its own rows among them, locally, using its own rows too (:mod:`...placing`).

Data leave a client in steps 1 to 3, 5 and 6 alone, under Gaussian noise whose multipliers together cost
``method.epsilon``. The server's work on them is post-processing. Positions stay at the clients: only the
simulation's evaluation sees them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from raydr.arrays import Float64Array, FloatArray, shaped
from raydr.embedding import principal_components
from raydr.errors import ScenarioError
from raydr.federation import Federation, Rehearsal
from raydr.geometry.blocks import in_blocks
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.methods.method import method
from raydr.methods.novelty import compared, ranked
from raydr.methods.outcome import Note, Outcome
from raydr.methods.private_map.cells import private_cells
from raydr.methods.private_map.density import Grid, PlaceCountsRequest, density_of
from raydr.methods.private_map.drawn import drawn_landmarks, draws_around
from raydr.methods.private_map.frame import FrameAxes, private_axes, view
from raydr.methods.private_map.messages import (
    CellSums,
    CellSumsRequest,
    FirstMomentsRequest,
    Frame,
    PlaceRequest,
    ScatterRequest,
    View,
    placed_rows,
)
from raydr.methods.private_map.novelty import ScoreCountsRequest, calibration_of, edges_of, scores_of
from raydr.methods.private_map.placing import Landmarks, place
from raydr.methods.private_map.settings import NoiseShares, PrivateMapSettings
from raydr.threads import cores

_SKETCH = 50
"""Number of landmarks below which a map is a sketch."""
_CELLS = "cells"
"""Array of a model with drawn landmarks: the number of cells from which they were drawn."""
_FEWEST_DRAWN = 8
"""Least number of landmarks for t-SNE; fewer are drawn along their first two principal axes."""


def draw(settings: PrivateMapSettings, centres: Float64Array, seed: int) -> Float64Array:
    """Return a map (landmarks, 2) of landmarks (landmarks, axes), centred on 0."""
    start = principal_components(centres, 2)
    if len(centres) < _FEWEST_DRAWN:
        return start
    perplexity = min(settings.perplexity or 30.0, (len(centres) - 1) / 3)
    drawn = settings.model_copy(update={"perplexity": perplexity})
    graph = nearest_neighbors(Points(centres), drawn.neighbors_needed(len(centres)), threads=cores())
    places = drawn.embed(graph, start, seed=seed, threads=cores())
    return np.asarray(places - places.mean(axis=0))


def _model_of(frame: Frame, landmarks: Landmarks) -> dict[str, FloatArray]:
    """Return the model for :func:`transform`; it holds released data alone."""
    wide = {} if frame.view.bucket is None else {"bucket": frame.view.bucket.astype(np.float64)}
    signs = {} if frame.view.sign is None else {"sign": frame.view.sign}
    frame_arrays = {
        "seen": np.array([frame.view.centre, frame.view.clip]),
        "mean": frame.mean,
        "axes": frame.axes,
    }
    return {**frame_arrays, **vars(landmarks), **wide, **signs}


def _released(model: Mapping[str, FloatArray]) -> tuple[Frame, Landmarks]:
    """Return the frame and the landmarks of a model."""
    frame = Frame(
        _view_of(model), np.asarray(model["mean"], np.float64), np.asarray(model["axes"], np.float64)
    )
    landmarks = Landmarks(*(np.asarray(model[name], np.float64) for name in ("centres", "counts", "places")))
    return frame, landmarks


def _view_of(model: Mapping[str, FloatArray]) -> View:
    centre, clip, sums = *map(float, model["seen"]), len(model["mean"])
    if "bucket" not in model:
        return View(centre, clip, None, None, sums)
    return View(
        centre, clip, np.asarray(model["bucket"], np.int64), np.asarray(model["sign"], np.float64), sums
    )


class PrivateMap(PrivateMapSettings):
    """Map under (epsilon, delta)-differential privacy for records; each client keeps the positions of its rows."""

    noise_of_its_own: ClassVar[bool] = True
    draws_all_rows: ClassVar[bool] = False
    no_novelty: ClassVar[str] = (
        "the noisy landmarks do not say how far the mapped rows lie from them: method.novelty_share"
        " spends a part of the privacy budget on it. If it is set, its noise hides them: that takes a larger part, a"
        " larger epsilon or more rows"
    )

    @property
    def keeps_places(self) -> bool:
        """True."""
        return True

    def why_dense(self, rows: int, features: int, *, pooled: bool) -> str | None:
        """Return None if the extent of rows is given: noisy sums and places take one block of rows at a time."""
        return "the noisy survey takes dense rows: set clip or bounds" if self.surveys_columns else None

    def why_no_key(self) -> str:
        """Return why rows may not be rotated: clip and bounds limit the original features."""
        return (
            "clip and bounds limit the original features, which the key rotates, and noise protects more than a key:"
            " leave it out"
        )

    def transform(self, model: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:
        """Return positions of new rows, each against the landmarks alone."""
        frame, landmarks = _released(model)
        return place(in_blocks(frame.coordinates, rows), landmarks, iterations=self.placing_iterations)

    def novelty(self, model: Mapping[str, FloatArray], rows: FloatArray) -> Float64Array | None:
        """Return the p-value (rows,) of new rows by their distance to landmarks; None without ``novelty_share``."""
        known = compared(model)
        if known is None:
            return None
        frame, landmarks = _released(model)
        return ranked(known, scores_of(rows, frame, landmarks.centres))

    def redraw_layout(
        self, model: Mapping[str, FloatArray], parts: Sequence[FloatArray], seed: int
    ) -> FloatArray:
        """Map the run's landmarks with another seed, and place each client's rows among them."""
        frame, landmarks = _released(model)
        redrawn = replace(landmarks, places=draw(self, landmarks.centres, seed))
        request = PlaceRequest(frame, redrawn, self.own, self.placing_iterations, _CELLS in model)
        return np.concatenate([placed_rows(rows, frame.coordinates(rows), request) for rows in parts])

    def rehearse(self, federation: Rehearsal) -> None:
        """Ask what :func:`serve` asks, for the largest number of cells."""
        budget = _budget(self, federation)
        seen, rows = view(federation, self), federation.rows
        noise = budget.noise(budget.first, 1.0)
        with federation.stage("frame"):
            federation.sum(FirstMomentsRequest(seen, rows, noise))
            mean = shaped((seen.sums,))
            federation.sum(ScatterRequest(seen, mean, 1.0, rows, budget.noise(budget.scatter, 1.0)))
            federation.add_operations(at_clients=2.0 * rows * seen.sums**2, at_server=10.0 * seen.sums**3)
        axes = min(self.axes, seen.sums)
        frame = Frame(seen, mean, shaped((seen.sums, axes)))
        sizes = budget.cells(self, rows)
        with federation.stage("cells"):
            for round in federation.rounds(self.rounds):
                centres = shaped((sizes[round - 1], axes))
                noise = budget.noise(budget.rounds[round - 1], 1.0)
                federation.sum(CellSumsRequest(frame, centres, 1.0, rows, noise))
                federation.add_operations(at_clients=2.0 * rows * centres.size)
        drawn = drawn_landmarks(self, sizes[-1], rows, federation.clients)
        if drawn:
            frame, centres = Frame(seen, mean, shaped((seen.sums, seen.sums))), shaped((drawn, seen.sums))
        with federation.stage("map"):
            federation.add_operations(
                at_server=1e3 * (self.early_iterations + self.iterations) * len(centres)
            )
        landmarks = Landmarks(centres, shaped((len(centres),)), shaped((len(centres), 2)))
        if self.density:
            with federation.stage("density"):
                noise = budget.noise(budget.density, 1.0)
                grid = Grid.over(landmarks.places, rows, budget.count_deviation(budget.density))
                federation.sum(
                    PlaceCountsRequest(frame, landmarks, grid, self.placing_iterations, rows, noise)
                )
                federation.add_operations(at_clients=10.0 * self.placing_iterations * rows * len(centres))
        if self.novelty_share:
            with federation.stage("novelty"):
                noise = budget.noise(budget.novelty, 1.0)
                federation.sum(ScoreCountsRequest(frame, centres, edges_of(1.0), rows, noise))
                federation.add_operations(at_clients=2.0 * rows * (centres.size + frame.axes.size))
        with federation.stage("places"):
            federation.ask(PlaceRequest(frame, landmarks, self.own, self.placing_iterations, bool(drawn)))
            federation.add_operations(at_clients=10.0 * self.placing_iterations * rows * len(centres))
            federation.guess("all cells were assumed to be in use", CellSums, CellSumsRequest)
            federation.guess(_expected(sizes[-1], drawn), PlaceRequest)


def _expected(cells: int, drawn: int) -> str:
    """Return how many landmarks to expect of a run of this many cells, as a clause.

    *Measured*, benchmarks/figures/private_survey.json, with a survey: maps of fewer than 50 cells have a
    trustworthiness of 0.75 to 0.94, those of 70 and more 0.88 to 0.97.
    """
    text = f"expect about {cells:,} landmarks"
    if drawn:
        text = f"expect {drawn:,} landmarks drawn from about {cells:,} cells"
    return (
        f"{text}, a sketch of the largest groups: more rows or a larger epsilon give more" * (cells < _SKETCH)
        or text
    )


def _budget(settings: PrivateMapSettings, federation: Federation) -> NoiseShares:
    """Return the noise of all releases, with that of the survey before the method, if there was one."""
    budget, surveyed = federation.context.budget, bool(federation.surveyed)
    return NoiseShares.of(settings, budget, federation.clients, surveyed=surveyed)


@method(PrivateMap, "Private map")
def serve(federation: Federation, settings: PrivateMap) -> Outcome:
    """Run the server part."""
    settings.check(federation.rows, federation.features)
    if settings.surveys_columns and federation.surveyed is None:
        raise ScenarioError(
            "rows of unlimited length have no sensitivity, and no noisy survey has prepared these: set bounds, the"
            " least and largest value of any feature, or clip, a norm."
        )
    budget = _budget(settings, federation)
    with federation.stage("frame"):
        axes = private_axes(federation, settings, budget)
    with federation.stage("cells"):
        centres, counts = private_cells(federation, settings, budget, axes)
    frame, cells, rows = axes.frame, len(centres), federation.rows
    with federation.stage("map"):
        drawn = drawn_landmarks(settings, budget.cells(settings, rows)[-1], rows, federation.clients)
        if drawn:
            stream = federation.stream("drawn landmarks")
            frame, centres, counts = draws_around(axes, centres, counts, drawn, stream)
        landmarks = Landmarks(centres, counts, draw(settings, centres, federation.seed))
    model = _model_of(frame, landmarks) | ({_CELLS: np.array([cells])} if drawn else {})
    if settings.density:
        with federation.stage("density"):
            noise, deviation = budget.noise(budget.density, 1.0), budget.count_deviation(budget.density)
            model |= density_of(federation, frame, landmarks, settings.placing_iterations, noise, deviation)
    if settings.novelty_share:
        with federation.stage("novelty"):
            spread, noise = float(np.sqrt(axes.variances.sum())), budget.noise(budget.novelty, 1.0)
            deviation = budget.count_deviation(budget.novelty)
            model |= calibration_of(federation, frame, centres, spread, noise, deviation)
    with federation.stage("places"):
        request = PlaceRequest(frame, landmarks, settings.own, settings.placing_iterations, bool(drawn))
        places = [reply.places for reply in federation.ask(request)]
    return Outcome(
        embedding=np.concatenate(places),
        geometry=None,
        model=model,
        notes=(_note(settings, axes, landmarks, cells if drawn else 0),),
        published=False,
    )


def _note(settings: PrivateMap, axes: FrameAxes, landmarks: Landmarks, cells: int) -> Note:
    """Return a note on what the server learnt; ``cells`` is 0 if landmarks are not drawn."""
    covered = "sums" if settings.per == "sum" else "each client's uploads"
    count = f"{len(landmarks.counts)} landmarks"
    if cells:
        count += (
            f", drawn from a mixture of {cells} noisy cells so that none is a record or a mean of records"
        )
    return Note(
        "What the server learnt",
        f"Noise on {covered} was divided so that all uploads together cost epsilon"
        f" {settings.epsilon:g}. From them the server has {len(axes.variances)} axes and"
        f" {count}, and a map of the landmarks. The position of each record"
        " on this map is known to its client alone. Only this simulation can score and picture all"
        " records.",
    )
