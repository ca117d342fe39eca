"""Euclidean distances of transformed rows are those of scikit-learn and scipy, for every partition of the rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inline_federations import cut, federate
from requests_for_tests import HandOver
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import cosine_distances

from raydr.arrays import Float64Array, FloatArray
from raydr.data.survey.coding import Coding
from raydr.data.survey.layout import JointColumns
from raydr.errors import DataError, RaydrError, ScenarioError
from raydr.federation import Client
from raydr.front.api import run
from raydr.scenarios.schema.reading import dump, read
from raydr.statistics.dissimilarity import (
    EUCLIDEAN,
    Metric,
    Transformation,
    TransformRows,
    fit_transformation,
    transform_client,
)
from raydr.statistics.preparing import Preparation
from raydr.statistics.scaling import Scaling


def transformed(
    parts: list[FloatArray],
    metric: Metric,
    words: list[tuple[int, int]] | None = None,
    circles: list[tuple[int, int]] | None = None,
) -> tuple[FloatArray, Transformation]:
    """Return the clients' transformed rows, which equal those that the model of the run gives."""
    federation = federate(parts)
    found = fit_transformation(federation, metric, JointColumns(tuple(words or ()), tuple(circles or ())))
    request = HandOver(federation.features, parts[0].dtype.name)
    held = np.concatenate([reply.rows for reply in federation.ask(request)])
    rows = np.concatenate(parts)
    scaling = Scaling(np.zeros(rows.shape[1]), np.ones(rows.shape[1]))
    prepared = Preparation(scaling, transformation=found)
    again = Preparation.of(prepared.arrays, {}, metric, None)
    assert np.array_equal(again.applied(rows), held)
    assert (
        held.shape[1] == federation.features == len(found.names([str(name) for name in range(rows.shape[1])]))
    )
    return held, found


def squared(rows: FloatArray) -> Float64Array:
    return np.asarray(cdist(rows, rows, "sqeuclidean"))


def hellinger(rows: FloatArray) -> Float64Array:
    shares = rows / rows.sum(axis=1, keepdims=True)
    return 1.0 - np.sqrt(shares[:, None] * shares).sum(axis=2)


def random_rows(seed: int, rows: int = 40, columns: int = 7) -> Float64Array:
    return np.random.default_rng(seed).normal(size=(rows, columns))


ORACLES: dict[Metric, Callable[[Any], Any]] = {
    "cosine": cosine_distances,
    "correlation": lambda rows: cdist(rows, rows, "correlation"),
    "hellinger": hellinger,
}


@pytest.mark.parametrize("metric", ORACLES)
@pytest.mark.parametrize("seed", range(3))
def test_distances_of_directions_are_those_of_the_metric(metric: Metric, seed: int) -> None:
    rows = random_rows(seed) * 10.0 ** np.arange(-3, 4) + seed
    if metric == "hellinger":
        rows = np.random.default_rng(seed).poisson(3.0, rows.shape) + np.eye(40, 7)
    held, _ = transformed(cut(rows, 5, seed), metric)
    np.testing.assert_allclose(squared(held) / 2.0, ORACLES[metric](rows), atol=1e-14)
    single, _ = transformed(cut(rows.astype(np.float32), 5, seed), metric)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, held, atol=1e-6)


@pytest.mark.parametrize("metric", ORACLES)
def test_a_row_without_a_direction_has_half_the_largest_squared_distance_of_orthogonal_rows(
    metric: Metric,
) -> None:
    """Rows of zeros, and for correlation of equal numbers, have no direction: scipy's distance is not a number."""
    rows = np.abs(random_rows(0, 6))
    rows[[1, 4]] = 0.0 if metric != "correlation" else [[0.1], [1e9 / 3.0]]
    held, _ = transformed([rows[:3], rows[3:]], metric)
    assert not held[[1, 4]].any()
    others = [0, 2, 3, 5]
    np.testing.assert_allclose(squared(held)[1, others] / 2.0, 0.5)
    np.testing.assert_allclose(squared(held[others]) / 2.0, ORACLES[metric](rows[others]), atol=1e-14)


def test_hamming_distance_is_the_share_of_columns_that_differ() -> None:
    random = np.random.default_rng(0)
    numbers, codes = random.integers(-3, 4, (60, 3)).astype(float), random.integers(0, 5, 60)
    words = (codes[:, None] == np.arange(5)).astype(float)
    held, found = transformed(
        cut(np.column_stack([numbers[:, :2], words, numbers[:, 2]]), 4, 0), "hamming", [(2, 7)]
    )
    columns = np.column_stack([numbers, codes])
    np.testing.assert_allclose(squared(held), cdist(columns, columns, "hamming"), atol=1e-14)
    assert found.names(["a", "b", *"vwxyz", "c"])[:8] == (*(f"a={value}" for value in range(-3, 4)), "b=-3")
    only, _ = transformed([words], "hamming", [(0, 5)])
    np.testing.assert_allclose(squared(only), codes[:, None] != codes, atol=1e-14)
    new = found.applied(np.array([[9.0, 0.5, *np.zeros(5), 0.0]]))
    assert new.sum() == pytest.approx(np.sqrt(1.0 / 8.0)), "an unknown category is none of the known ones"


def gower(numbers: FloatArray, codes: FloatArray) -> Float64Array:
    """Gower's distance by its definition, over columns of numbers and one of words."""
    spans = np.ptp(numbers, axis=0)
    parts = np.abs(numbers[:, None] - numbers) / np.where(spans > 0.0, spans, 1.0)
    return (parts.sum(axis=2) + (codes[:, None] != codes)) / (numbers.shape[1] + 1)


def mixed(numbers: FloatArray) -> tuple[FloatArray, Float64Array]:
    """Return a column of five words between the columns of numbers, and Gower's distances."""
    codes = np.random.default_rng(9).integers(0, 5, len(numbers))
    words = (codes[:, None] == np.arange(5)).astype(float)
    return np.column_stack([numbers[:, :1], words, numbers[:, 1:]]), gower(numbers, codes)


def test_gowers_distance_is_exact_for_numbers_with_few_steps() -> None:
    """Ages, grades, halves and a constant: the borders of cells are multiples of 1, 0.1 or 0.01."""
    random = np.random.default_rng(0)
    columns = [
        random.integers(18, 100, 80),
        random.integers(1, 6, 80) - 3,
        random.integers(0, 9, 80) / 2.0,
        random.integers(0, 100, 80) / 10.0,
        36.0 + random.integers(0, 60, 80) / 100.0,
        np.full(80, 7.1),
    ]
    rows, expected = mixed(np.column_stack(columns).astype(float))
    held, _ = transformed(cut(rows, 6, 0), "gower", [(1, 6)])
    np.testing.assert_allclose(squared(held), expected, atol=1e-12)
    single, _ = transformed(cut(rows.astype(np.float32), 6, 0), "gower", [(1, 6)])
    np.testing.assert_allclose(squared(single.astype(np.float64)), expected, atol=2e-5)


def test_a_circle_counts_as_one_column_by_its_chord() -> None:
    """Two angles differ by sin((a - b) / 2) ** 2: 1 for opposite ones, and Euclidean, for any part of the circle."""
    random = np.random.default_rng(0)
    angles = np.concatenate([random.uniform(0.0, 2.0, (40, 1)), random.uniform(0.0, 6.3, (40, 1))], axis=1)
    numbers = random.integers(0, 9, (40, 2)).astype(float)
    codes = random.integers(0, 3, 40)
    words = (codes[:, None] == np.arange(3)).astype(float)
    first, second = (np.column_stack([np.sin(each), np.cos(each)]) for each in angles.T)
    rows = np.column_stack([first, numbers[:, :1], words, second, numbers[:, 1:]])
    circles = np.sin((angles[:, None] - angles) / 2.0) ** 2
    expected = (3.0 * gower(numbers, codes) + circles.sum(axis=2)) / 5.0
    held, found = transformed(cut(rows, 5, 0), "gower", [(3, 6)], [(0, 2), (6, 8)])
    np.testing.assert_allclose(squared(held), expected, atol=1e-12)
    names = found.names(["a (sine)", "a (cosine)", "x", "w=0", "w=1", "w=2", "b (sine)", "b (cosine)", "y"])
    assert names[:3] == ("a (sine)", "a (cosine)", "x>0"), "sine and cosine stay one feature each"
    poles, _ = transformed([np.array([[0.0, 1.0], [0.0, -1.0], [1.0, 0.0]])], "gower", circles=[(0, 2)])
    np.testing.assert_allclose(squared(poles)[0], [0.0, 1.0, 0.5], atol=1e-14)


def test_clients_are_not_asked_about_circles() -> None:
    """Their range is known: only columns of numbers need votes."""
    angles = np.random.default_rng(0).uniform(0.0, 6.3, 20)
    federation = federate([np.column_stack([np.sin(angles), np.cos(angles)])])
    fit_transformation(federation, "gower", JointColumns(circles=((0, 2),)))
    assert "Beyond" not in {entry["kind"] for entry in federation.ledger.as_list()}
    with pytest.raises(RaydrError, match="not whole numbers"):
        fit_transformation(federation, "hamming", JointColumns(circles=((0, 2),)))


def test_a_run_weighs_a_circle_as_the_survey_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An hour of a whole day has the variance of a column whose half is at each end."""
    from raydr.front.cli import status

    hours = np.arange(48) % 24
    ends = (np.arange(48) // 2) % 2 * 5.0
    path = table(tmp_path, np.column_stack([hours, ends]).astype(float), names=["hour", "x"])
    out = tmp_path / "check.json"
    assert status(["check", path, "--set", "data.metric=gower", "--json", str(out)]) == 0
    capsys.readouterr()
    share = {column["name"]: column["variance_share"] for column in json.loads(out.read_text())["columns"]}
    assert share == {"hour": pytest.approx(0.5), "x": pytest.approx(0.5)}, "both have variance 1/4"
    found = run(
        COUNTS | {"data": {"path": path, "metric": "gower", "categories": "one-hot"}}, out=tmp_path / "run"
    )
    circle = Coding(kind="circular", period=24.0).features(hours.astype(float))
    rows, _ = transformed([np.column_stack([circle, ends])], "gower", circles=[(0, 2)])
    np.save(tmp_path / "rows.npy", rows)
    by_hand = run(COUNTS | {"data": {"path": str(tmp_path / "rows.npy")}}, out=tmp_path / "hand")
    np.testing.assert_array_equal(found.embedding, by_hand.embedding)
    assert found.metrics["federated"] == by_hand.metrics["federated"], "the evaluation weighs it too"


@pytest.mark.parametrize(("columns", "cells"), [(1, 1024), (4, 512), (60, 34), (200, 16)])
def test_gowers_distance_of_other_numbers_is_smaller_by_at_most_half_a_cell(columns: int, cells: int) -> None:
    numbers = random_rows(0, 60, columns) ** 3
    rows, expected = mixed(numbers)
    held, found = transformed(cut(rows, 6, 0), "gower", [(1, 6)])
    assert found.width(columns + 5) == pytest.approx(cells * columns + 5, abs=60)
    less = (expected - squared(held)) * (columns + 1) / columns
    assert less.min() > -1e-12
    assert less.max() <= 0.5 / cells
    assert less.max() > 0.1 / cells, "the bound is not far from what occurs"


def test_new_numbers_beyond_the_range_count_as_its_ends() -> None:
    _, found = transformed([np.array([[0.0], [4.0]])], "gower")
    places = found.applied(np.array([[-3.0], [0.0], [4.0], [9.0], [1.0]]))
    np.testing.assert_allclose(squared(places)[4], [0.25, 0.25, 0.75, 0.75, 0.0], atol=1e-12)


def test_rows_that_do_not_suit_are_refused_by_number() -> None:
    with pytest.raises(
        RaydrError, match=r"compares counts, and feature number 1 \(the first is 0\) has values below"
    ):
        fit_transformation(federate([np.array([[1.0, 2.0]]), np.array([[1.0, -2.0]])]), "hellinger")
    with pytest.raises(RaydrError, match=r"feature number 0 \(the first is 0\) has values, as read"):
        fit_transformation(federate([np.array([[1.5, 2.0], [1.0, 2.0]])]), "hamming")
    with pytest.raises(
        DataError, match=r"number 1 \(the first is 0\) runs from 0 to 50: at most 50 whole numbers"
    ):
        fit_transformation(federate([np.array([[1.0, 0.0], [1.0, 50.0]])]), "hamming")


def test_euclidean_changes_and_sends_nothing() -> None:
    federation = federate([random_rows(0)])
    before = federation.ledger.as_list()
    assert fit_transformation(federation, "euclidean") is EUCLIDEAN
    assert federation.ledger.as_list() == before
    rows = random_rows(1)
    assert EUCLIDEAN.applied(rows) is rows
    assert TransformRows.sets_state, "a restarted client must receive it again"


@pytest.mark.parametrize("metric", ORACLES)
def test_metrics_of_rows_ask_clients_for_nothing(metric: Metric) -> None:
    federation = federate([np.abs(random_rows(0)), np.abs(random_rows(1))])
    fit_transformation(federation, metric)
    assert {entry["kind"] for entry in federation.ledger.as_list()} == {
        "Enrol",
        "Enrolment",
        "TransformRows",
        "Done",
    }


def test_rows_of_a_client_are_transformed_in_a_copy() -> None:
    rows = random_rows(0)
    client = Client(index=0, rows=rows.copy(), seed=0)
    client.rows.flags.writeable = False
    transform_client(client, TransformRows("cosine", np.zeros((3, 0)), 0))
    np.testing.assert_allclose(np.linalg.norm(client.rows, axis=1), 1.0)


# ---------------------------------------------------------------------------------------------------------- runs

COUNTS: dict[str, Any] = {
    "name": "counts",
    "clients": {"count": 3},
    "method": {"kind": "fed-tsne", "iterations": 30, "early_iterations": 10},
    "metrics": ["f_score"],
    "runtime": {"federation": "inline"},
}


def table(folder: Path, rows: FloatArray, names: Sequence[str] = "abcde") -> str:
    lines = [",".join(names), *(",".join(f"{value:g}" for value in row) for row in rows)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    return str(folder / "table.csv")


def test_unit_is_another_name_of_cosine() -> None:
    content = COUNTS | {"data": {"source": "iris", "scale": "unit"}}
    scenario = read(content)
    assert (scenario.data.scale, scenario.data.metric) == ("none", "cosine")
    assert read(content, {"data.scale": "none", "data.metric": "cosine"}) == scenario
    with pytest.raises(
        ScenarioError, match=r"scale: unit is another name of metric: cosine, but metric is gower"
    ):
        read(content, {"data.metric": "gower"})
    assert "unit" not in dump(scenario)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"data.metric": "cosin"}, "did you mean cosine"),
        ({"data.metric": "gower", "data.scale": "standard"}, "compares columns as they are read"),
        ({"data.metric": "hellinger", "data.scale": "minmax"}, "compares columns as they are read"),
        (
            {"data.metric": "hamming", "data.harmonize": "center"},
            "compares categories, and harmonize changes them",
        ),
        ({"data.metric": "gower", "privacy.isometry_key": True}, "would reveal the extremes of features"),
        (
            {
                "data.metric": "hellinger",
                "privacy.noise": {"on": "data", "sigma": 1.0, "clip": 9.0, "stage": "all"},
            },
            "compares counts, and permanent noise on records changes them",
        ),
        (
            {
                "data.metric": "hamming",
                "privacy.strict": "sums",
                "method.landmarks_from": "learnt",
                "privacy.noise": {"on": "gradient", "sigma": 1.0},
            },
            "a single row that is not suited to data.metric hamming",
        ),
    ],
)
def test_combinations_that_cannot_work_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        read(COUNTS | {"data": {"source": "iris"}, "clients": {"count": 3}}, keys)


def test_column_with_negative_counts_is_refused_by_name(tmp_path: Path) -> None:
    path = table(tmp_path, random_rows(0, 40, 5).round(2))
    with pytest.raises(DataError, match=r"compares counts, and the column 'a' has values below 0"):
        run(COUNTS | {"data": {"path": path, "metric": "hellinger"}}, out=tmp_path / "run")
    sites = [{"path": path}, {"path": path, "name": "twice"}]
    with pytest.raises(RaydrError, match=r"compares counts, and the column 'a' has values below 0"):
        run(COUNTS | {"data": {"metric": "hellinger"}, "clients": {"sites": sites}}, out=tmp_path / "sites")


@pytest.mark.parametrize("metric", ["hellinger", "gower", pytest.param("cosine", marks=pytest.mark.slow)])
def test_a_run_maps_and_scores_by_the_metric(tmp_path: Path, metric: Metric) -> None:
    """The map is that of a table of transformed rows; new rows and pooled rows are transformed too."""
    from raydr.front.finished_runs import transform

    counts = np.random.default_rng(0).poisson(2.0, (60, 5)).astype(float)
    path = table(tmp_path, counts)
    found = run(COUNTS | {"data": {"path": path, "metric": metric}}, out=tmp_path / "run")
    assert found.metrics["federated"]["f_score"] == pytest.approx(1.0, abs=0.01)
    assert found.data["metric"] == metric
    rows, _ = transformed([counts], metric)
    np.save(tmp_path / "rows.npy", rows)
    by_hand = run(COUNTS | {"data": {"path": str(tmp_path / "rows.npy")}}, out=tmp_path / "hand")
    np.testing.assert_array_equal(found.embedding, by_hand.embedding)
    placed = transform(tmp_path / "run", path, out=tmp_path / "places.parquet")
    again = transform(tmp_path / "hand", tmp_path / "rows.npy", out=tmp_path / "again.parquet")
    import pyarrow.parquet as parquet

    assert parquet.read_table(placed).equals(parquet.read_table(again))
