"""The origin and the unit of the data change no geometry and no score, and make no map worse.

Data are on a grid, so that an offset of 1e9 is exact: only raydr's own rounding can change a result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from inline_federations import federate

from raydr.arrays import FloatArray
from raydr.errors import DataError
from raydr.geometry.points import Points
from raydr.methods import METHODS
from raydr.methods.sense.reduced_basis import Lift
from raydr.methods.sense.server import SENSE, completed
from raydr.metrics import METRICS, Evidence, evaluate

GRID = 2.0**-7
SCALES = (2.0**-20, 2.0**20)
SHORT: dict[str, Any] = {"early_iterations": 100, "iterations": 150}


def grouped(count: int = 120, features: int = 5, groups: int = 4) -> tuple[FloatArray, FloatArray]:
    """Return rows of well separated groups, on a grid, and the group of each row."""
    random = np.random.default_rng(3)
    labels = np.arange(count) % groups
    centres = 20.0 * random.permutation(np.eye(features))[:groups]
    return np.round((centres[labels] + random.normal(size=(count, features))) / GRID) * GRID, labels


def varied(rows: FloatArray) -> dict[str, tuple[FloatArray, float]]:
    """Return shifted rows, rows in a small unit, and rows with one shifted column, each with its scale."""
    one_column = rows.copy()
    one_column[:, 2] += 1.7e9
    return {
        "offset 1e9": (rows + 1e9, 1.0),
        "small unit": (rows * SCALES[0], SCALES[0]),
        "one column": (one_column, 1.0),
    }


ROWS, LABELS = grouped()
VARIED = varied(ROWS)


ANCHORED = tuple(name for name, metric in METRICS.items() if "lift" in metric.needs)
"""P3, A.11 compares rows relative to the data's origin, so these depend on it.
They are not in `metrics: default`."""


INVARIANT = tuple(
    name
    for name in METRICS
    if name not in ANCHORED
    and not name.endswith(("steadiness_all", "cohesiveness_all", "fracture", "perturbation"))
)
"""Metrics under test. Those of groups of all rows are the ones of a sample with another sample. Fractures and jumps
need a map of t-SNE or UMAP, and have tests of their own."""


@pytest.fixture(scope="module")
def judged() -> tuple[Evidence, dict[str, float]]:
    """Return a map of the unchanged rows and every metric of it."""
    random = np.random.default_rng(0)
    evidence = Evidence(
        rows=ROWS,
        embedding=ROWS[:, :2] + random.normal(size=(len(ROWS), 2)),
        labels=LABELS,
        recovered=Points(ROWS + 0.3 * random.normal(size=ROWS.shape)),
        clusters=LABELS,
        sites=np.arange(len(ROWS)) % 5,
        new=Evidence(
            rows=ROWS[::2],
            embedding=ROWS[::2, :2] + random.normal(size=(len(ROWS[::2]), 2)),
            labels=LABELS[::2],
        ),
    )
    return evidence, evaluate(INVARIANT, evidence).values


@pytest.mark.parametrize(
    "name", [pytest.param("offset 1e9", marks=pytest.mark.slow), "small unit", "one column"]
)
def test_metrics_are_invariant(name: str, judged: tuple[Evidence, dict[str, float]]) -> None:
    rows, scale = VARIED[name]
    evidence, before = judged
    recovered = Points(evidence.recovered.coordinates * scale)  # type: ignore[union-attr]
    new = replace(evidence.new, rows=rows[::2])  # type: ignore[type-var]
    after = evaluate(INVARIANT, replace(evidence, rows=rows, recovered=recovered, new=new)).values
    assert set(before) == set(INVARIANT)
    assert after == pytest.approx(before, abs=1e-9)


def test_anchored_metrics_depend_on_the_origin_but_not_on_the_unit() -> None:
    off = 0.3 * np.random.default_rng(0).normal(size=ROWS.shape)

    def scores(rows: FloatArray, scale: float = 1.0) -> dict[str, float]:
        found = Points(ROWS * scale + off * scale)
        origin = rows[0] - ROWS[0] * scale
        lift = Lift(origin)
        return evaluate(
            ANCHORED, Evidence(rows=rows, embedding=ROWS[:, :2], recovered=found, lift=lift)
        ).values

    assert set(ANCHORED) == {"anchored_cosine", "anchored_frobenius"}
    here = scores(ROWS)
    for scale in SCALES:
        assert scores(ROWS * scale, scale) == pytest.approx(here, rel=1e-9)
    far = scores(ROWS + 1e6)
    assert far["anchored_cosine"] == pytest.approx(1.0, abs=1e-12)
    expected = here["anchored_frobenius"] * np.linalg.norm(ROWS) / np.linalg.norm(ROWS + 1e6)
    assert far["anchored_frobenius"] == pytest.approx(expected, rel=1e-6)
    assert far["anchored_frobenius"] < 1e-5 * here["anchored_frobenius"]


@pytest.mark.parametrize("regime", ["multisite", "pointwise"])
@pytest.mark.parametrize("visibility", ["full", "partial"])
def test_sense_geometry_is_invariant(regime: str, visibility: str) -> None:
    def found(rows: FloatArray) -> FloatArray:
        held = rows[30:]
        parts = list(held[:, None]) if regime == "pointwise" else np.split(held, [40, 41, 70])
        public = (
            np.concatenate([rows[:30]] * 8)[: 3 + 1 * len(parts)] if visibility == "partial" else rows[:4]
        )
        settings = SENSE(
            regime=regime,
            visibility=visibility,
            anchors=4,
            local_anchors=1 if visibility == "partial" else None,
        )
        federation = federate(parts, public=public)
        geometry = completed(federation, settings).geometry
        return np.sqrt(geometry.squared_distance_block(0, len(held)).astype(np.float64))

    before = found(ROWS)
    for name, (rows, scale) in VARIED.items():
        np.testing.assert_allclose(found(rows) / scale, before, atol=1e-5 * before.max(), err_msg=name)


MAPS: dict[str, dict[str, Any]] = {
    "fed-tsne": SHORT,
    "fed-tsne, learnt": {"landmarks_from": "learnt", "landmarks": 20, "rounds": 10, **SHORT},
    "fed-tsne, k-means": {"landmarks_from": "k-means", **SHORT},
    "fed-umap": {"epochs": 100},
    "fed-spectral": {"clusters": 4, "landmarks": 20, "rounds": 10, "embedder": {"kind": "tsne", **SHORT}},
    "sense": {"anchors": 4, "embedder": {"kind": "tsne", **SHORT}},
    "fedne": {"rounds": 8, "hidden": (16,)},
    "fed-pca": {"dimensions": 3},
    "dsne": {"early_iterations": 100, "iterations": 100},
    "private-map": {"epsilon": 1e4, "own": 0.0, **SHORT},
}


@pytest.mark.parametrize("method", MAPS)
def test_groups_stay_apart_on_every_map(method: str) -> None:
    kind = method.partition(",")[0]

    def separation(rows: FloatArray) -> float:
        bounds = {"bounds": (float(rows.min()), float(rows.max()))} if kind == "private-map" else {}
        settings = METHODS[kind].settings(**MAPS[method], **bounds)
        federation = federate(
            np.split(rows[4:], [30, 60, 61]), public=rows[:4] if kind in ("sense", "dsne") else None
        )
        evidence = Evidence(
            rows=rows[4:], embedding=METHODS[kind].serve(federation, settings).embedding, labels=LABELS[4:]
        )
        return evaluate(("ca_10",), evidence).values["ca_10"]

    expected = separation(ROWS)
    assert expected > 0.9
    for name, (rows, _) in VARIED.items():
        if kind == "private-map" and name == "one column":
            continue  # bounds are of all columns, so they are 1e9 times too wide for the others
        assert separation(rows) >= expected - 0.06, name


def test_offset_beyond_double_precision_is_refused() -> None:
    rows = ROWS + 1e15
    with pytest.raises(DataError, match="Double precision resolves steps of"):
        completed(federate(np.split(rows[4:], 4), public=rows[:4]), SENSE(anchors=4))
