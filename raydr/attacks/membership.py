"""Membership inference: whether a record was in the run, from each thing that the server has.

The candidates are records of similar data, and some of them are in the run. Posts about single records reveal
members outright, because a member's own row is there. What was learnt from all records, such as landmarks or
a mean embedding, should reveal little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.attacks.contract import NotApplicableError, Scored, Side, View, attack
from raydr.attacks.landmark_lifting import last_cells
from raydr.attacks.posted_distances import Posted, posted
from raydr.federation.messages import Reply
from raydr.geometry.points import squared_distances
from raydr.methods.fedne.positions import PositionRequest, Positions, positions_of
from raydr.methods.landmarks.learning import Step, StepRequest
from raydr.methods.landmarks.mean_embedding import MeanEmbedding, MeanEmbeddingRequest
from raydr.methods.private_map.messages import CellSums

_COMPARED = 16
"""Points whose distances are compared. Two records with equal distances from all of them count as the same."""
_BLOCK = 256

Source = Callable[[View, FloatArray], tuple[str, tuple[type[Reply], ...], Float64Array] | None]


@attack("membership", "whether a record of similar data was in the run")
def membership(view: View, side: Side) -> Iterator[Scored]:
    """Make one attempt for each thing that the server has."""
    if not len(side.candidates):
        raise NotApplicableError(
            "there are no candidates: it needs records of the source that are not in the run, but all of them are."
        )
    found = False
    for source in SOURCES:
        scored = source(view, side.candidates)
        if scored is None:
            continue
        found = True
        variant, uses, scores = scored
        yield Scored(
            uses=uses,
            knows=f"{len(side.candidates):,} records of similar data, some of them in the run",
            variant=variant,
            numbers={"candidates": len(side.candidates)},
            scores=scores,
        )
    if not found:
        raise NotApplicableError("the server has nothing to compare a record with.")


def _by_posted(view: View, rows: FloatArray) -> tuple[str, tuple[type[Reply], ...], Float64Array] | None:
    """Score a record by how near its distances to the points are to those in a post."""
    try:
        messages = posted(view)
    except NotApplicableError:
        return None
    if any(message.points is None for message in messages):
        return None
    scores = np.maximum.reduce([_nearness(message, rows) for message in messages])
    return "distances posted", tuple(dict.fromkeys(message.kind for message in messages)), scores


def _nearness(message: Posted, rows: FloatArray) -> Float64Array:
    from scipy.spatial.distance import cdist

    if message.points is None:
        raise NotApplicableError("the server does not know the points.")
    few = np.unique(np.linspace(0, len(message.points) - 1, _COMPARED).round().astype(np.int64))
    points = message.space.points(message.points[few])
    own = np.sqrt(message.space.squared_distances(message.space.points(rows), points))
    there = np.sqrt(message.squared[:, few])
    scores = np.full(len(rows), -np.inf)
    if len(there):
        for start in range(0, len(rows), _BLOCK):
            some = slice(start, start + _BLOCK)
            scores[some] = -cdist(own[some], there).min(axis=1)
    return scores


def _by_map(view: View, rows: FloatArray) -> tuple[str, tuple[type[Reply], ...], Float64Array] | None:
    """Score a record by how near the encoder places it to a place on the map."""
    from scipy.spatial import cKDTree

    requests = [seen.request for seen in view.transcript if isinstance(seen.request, PositionRequest)]
    if not requests or not len(view.embedding):
        return None
    fed = view.fed(rows).astype(np.float32)
    places = positions_of(fed, requests[-1].weights, requests[-1].hidden).astype(np.float64)
    apart, _ = cKDTree(view.embedding.astype(np.float64)).query(places)
    return "encoder and published map", (Positions,), -np.asarray(apart)


def _by_landmarks(view: View, rows: FloatArray) -> tuple[str, tuple[type[Reply], ...], Float64Array] | None:
    """Score a record by how near it is to a learnt landmark."""
    requests = [seen.request for seen in view.transcript if isinstance(seen.request, StepRequest)]
    if not requests:
        return None
    apart = squared_distances(np.asarray(rows, np.float64), requests[-1].landmarks).min(axis=1)
    return "learnt landmarks", (Step,), -np.asarray(apart)


def _by_embedding(view: View, rows: FloatArray) -> tuple[str, tuple[type[Reply], ...], Float64Array] | None:
    """Score a record by how much of the mean of random features is its own."""
    for seen in view.transcript:
        if seen.client is None and isinstance(seen.reply, MeanEmbedding):
            request, embedding = seen.request, seen.reply.embedding
            if isinstance(request, MeanEmbeddingRequest):
                features = request.features
                scores = [float(features.mean(row[None].astype(np.float64)) @ embedding) for row in rows]
                return "mean embedding", (MeanEmbedding,), np.array(scores)
    return None


def _by_cells(view: View, rows: FloatArray) -> tuple[str, tuple[type[Reply], ...], Float64Array] | None:
    """Score a record by the density around it, from the learnt cells and their counts."""
    last = last_cells(view)
    if last is None:
        return None
    points = last.frame.coordinates(view.fed(rows))
    apart = squared_distances(points, last.centres)
    width = max(float(np.median(apart.min(axis=1))), np.finfo(np.float64).tiny)
    density = np.log(np.maximum(np.exp(-apart / (2.0 * width)) @ last.counts, np.finfo(np.float64).tiny))
    return "cells and their counts", (CellSums,), density


def _by_centres(view: View, rows: FloatArray) -> tuple[str, tuple[type[Reply], ...], Float64Array] | None:
    """Score a record by how near it is to the centre of a cell."""
    last = last_cells(view)
    if last is None:
        return None
    points = last.frame.coordinates(view.fed(rows))
    return "cells' centres", (CellSums,), -np.asarray(squared_distances(points, last.centres).min(axis=1))


SOURCES: tuple[Source, ...] = (_by_posted, _by_map, _by_landmarks, _by_embedding, _by_cells, _by_centres)
"""Things that the server can have."""
