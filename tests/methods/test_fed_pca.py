"""Federated PCA equals the pooled principal components, for any partition and any offset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attacked import federation_seen, scored
from inline_federations import cut, federate
from pydantic import ValidationError
from tiny import tiny_run

from raydr.arrays import FloatArray
from raydr.attacks import Side, View
from raydr.attacks.projection import projection
from raydr.errors import DataError
from raydr.journal import Journal
from raydr.methods.fed_pca import FedPCA, serve
from raydr.methods.outcome import Outcome
from raydr.statistics.converged_axes import Product, leading_axes


def components(rows: FloatArray, count: int) -> FloatArray:
    """Principal components by the SVD of centred rows, with the largest entry of each axis positive."""
    seen = rows - rows.mean(axis=0)
    seen -= seen.mean(axis=0)
    _, _, axes = np.linalg.svd(seen, full_matrices=False)
    axes = axes[:count]
    return seen @ (axes * np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]).T


def table(rows: int, features: int, seed: int = 0) -> FloatArray:
    """Return a few directions of different widths, in noise."""
    random = np.random.default_rng(seed)
    few = min(6, features)
    wide = random.normal(size=(rows, few)) * np.linspace(6.0, 3.0, few)
    return wide @ np.linalg.qr(random.normal(size=(features, few)))[0].T + 0.5 * random.normal(
        size=(rows, features)
    )


def mapped(parts: list[FloatArray], seed: int = 0, **settings: Any) -> Outcome:
    return serve(federate(parts, seed=seed), FedPCA(**settings))


@pytest.mark.parametrize(
    ("rows", "features", "parts"),
    [(120, 5, 4), (120, 40, 7), (60, 300, 60), (60, 8_000, 5)],
    ids=["one sum", "several", "one row a client", "8,000 features"],
)
@pytest.mark.parametrize("dimensions", [2, 3])
def test_map_equals_pooled_principal_components(
    rows: int, features: int, parts: int, dimensions: int
) -> None:
    pooled = table(rows, features)
    found = mapped(cut(pooled, parts, 1) if parts < rows else list(pooled[:, None]), dimensions=dimensions)
    expected = components(pooled, dimensions)
    np.testing.assert_allclose(found.embedding, expected, atol=1e-10 * np.abs(expected).max())


def test_map_far_from_the_origin_differs_only_by_rounding() -> None:
    rows = table(80, 30) + 1e8
    found, expected = mapped(cut(rows, 5, 0)), components(rows, 2)
    np.testing.assert_allclose(found.embedding, expected, atol=30 * np.spacing(1e8))


def test_seed_packing_and_partition_change_nothing() -> None:
    rows = table(70, 25)
    here = mapped([rows[:30], rows[30:]]).embedding
    np.testing.assert_array_equal(mapped([rows[:30], rows[30:]], seed=5).embedding, here)
    np.testing.assert_allclose(mapped(list(rows[:, None])).embedding, here, atol=1e-10 * np.abs(here).max())
    parts = cut(rows, 6, 3)
    one, other = (serve(federate(parts, packing=packing), FedPCA()) for packing in ([6], [1, 2, 3]))
    np.testing.assert_array_equal(one.embedding, other.embedding)


def test_sign_of_tied_axes_does_not_depend_on_the_partition() -> None:
    """The axis of two opposite columns is (1, -1): rounding must not decide its sign."""
    column = np.random.default_rng(0).normal(size=41)
    rows = np.stack([column, -column], axis=1)
    for parts in ([rows], [rows[:3], rows[3:20], rows[20:]], list(rows[:, None])):
        found = mapped(parts)
        np.testing.assert_allclose(found.embedding[:, 0], np.sqrt(2.0) * (column - column.mean()), atol=1e-12)


@pytest.mark.parametrize("features", [1, 2])
def test_missing_features_leave_map_axes_at_zero(features: int) -> None:
    rows = table(20, features)
    found = mapped([rows[:7], rows[7:]], dimensions=3).embedding
    assert found.shape == (20, 3)
    assert not found[:, features:].any()
    np.testing.assert_allclose(found[:, :features], components(rows, features), atol=1e-12)


def test_equal_rows_are_refused() -> None:
    with pytest.raises(DataError, match="are equal"):
        mapped([np.ones((3, 4)), np.ones((2, 4))])


def test_new_rows_are_projected_onto_the_pooled_axes() -> None:
    rows, new = table(60, 12), table(5, 12, seed=9)
    found = mapped(cut(rows, 4, 0))
    pooled = FedPCA().central({}, rows, 0, Journal())
    np.testing.assert_allclose(FedPCA().transform(found.model, rows), found.embedding, atol=1e-12)
    np.testing.assert_allclose(pooled.embedding, found.embedding, atol=1e-10)
    assert pooled.place is not None
    np.testing.assert_allclose(FedPCA().transform(found.model, new), pooled.place(new), atol=1e-10)


def test_sums_stop_when_the_rows_are_exhausted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks give all directions of 9 rows; a flat spectrum takes all available sums."""
    rows = np.random.default_rng(0).normal(size=(9, 500))
    rows -= rows.mean(axis=0)
    few = leading_axes(lambda directions: rows.T @ (rows @ directions) / 9, 500, 2)
    assert few.sums <= 2
    assert few.turned < 1e-12
    monkeypatch.setattr("raydr.statistics.converged_axes.MOST_SUMS", 6)
    spectrum = np.linspace(1.0, 0.999, 300)[:, None]
    many = leading_axes(lambda directions: spectrum * directions, 300, 2)
    assert many.sums == 6
    assert 1e-12 < many.turned < 1e-3


def counted(matrix: FloatArray, asked: list[int]) -> Product:
    """A product with a matrix that records the number of directions."""
    return lambda directions: asked.append(directions.shape[1]) or matrix @ directions  # type: ignore[func-returns-value]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_axes_report_deviations_and_rotation(scale: float) -> None:
    """In any unit: a decaying spectrum needs few sums, and no direction is requested twice."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(60, 60)))[0]
    variances = scale * np.append(0.5 ** np.arange(30), np.zeros(30))
    matrix, asked = (turn * variances) @ turn.T, list[int]()
    found = leading_axes(counted(matrix, asked), 60, 3)
    assert found.sums == len(asked) <= 6
    assert asked[0] == 8
    assert found.turned < 1e-12
    np.testing.assert_allclose(found.axes.deviations, np.sqrt(variances[:3]), rtol=1e-9)
    np.testing.assert_allclose(np.abs((found.axes.directions * turn[:, :3]).sum(axis=0)), 1.0, atol=1e-9)
    np.testing.assert_allclose(found.axes.directions.T @ found.axes.directions, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_rotation_is_in_units_of_the_largest_variance(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raydr.statistics.converged_axes.MOST_SUMS", 6)
    spectrum = scale * np.append([10.0], np.linspace(1.0, 0.999, 300))
    asked: list[int] = []
    found = leading_axes(
        lambda directions: asked.append(1) or spectrum[:, None] * directions,  # type: ignore[func-returns-value]
        301,
        2,
    )
    assert found.sums == len(asked) == 6
    axes, variances = found.axes.directions, found.axes.deviations**2
    left = np.linalg.norm(spectrum[:, None] * axes - axes * variances, axis=0)
    assert found.turned == pytest.approx(left.max() / (10.0 * scale), rel=1e-3)


def test_negative_variance_from_rounding_is_0() -> None:
    found = leading_axes(lambda directions: np.array([[1.0], [-1e-17]]) * directions, 2, 2)
    np.testing.assert_allclose(found.axes.deviations, [1.0, 0.0])


def test_full_set_of_directions_needs_no_further_sum() -> None:
    """A slightly asymmetric product rotates its axes."""
    noisy = np.diag(np.arange(5.0, 0.0, -1.0)) + 1e-9 * np.random.default_rng(1).normal(size=(5, 5))
    asked: list[int] = []
    found = leading_axes(counted(noisy, asked), 5, 9)
    assert asked == [5]
    assert found.sums == 1
    assert 1e-12 < found.turned < 1e-8
    assert found.axes.directions.shape == (5, 5)


def test_zero_matrix_has_no_rotation() -> None:
    found = leading_axes(counted(np.zeros((20, 20)), []), 20, 2)
    assert (found.turned, found.sums) == (0.0, 1)
    assert found.axes.deviations.tolist() == [0.0, 0.0]


def test_clients_send_sums_and_optional_positions() -> None:
    def reported(**settings: Any) -> set[tuple[str, str]]:
        federation = federate(cut(table(50, 30), 4, 0))
        serve(federation, FedPCA(**settings))
        entries = federation.ledger.entries.values()
        return {(entry.kind, entry.granularity) for entry in entries if entry.direction == "up"}

    sums = {("Enrolment", "per-client")}
    sums |= {(kind, "aggregate") for kind in ("Beyond", "Moment", "CovarianceProduct", "ScoreCounts")}
    assert reported() == sums | {("Components", "per-record")}
    assert reported(publish="local") == sums


def test_projection_attack_recovers_exactly_the_span() -> None:
    rows = table(40, 10)
    federation, transcript = federation_seen(cut(rows, 3, 0))
    found = serve(federation, FedPCA(dimensions=3))
    view = View(transcript=transcript, sizes=federation.sizes, embedding=found.embedding)
    (reconstruction,) = projection(view, Side(public=rows[:0]))
    scores = scored(reconstruction, rows)
    axes, seen = found.model["axes"], rows - rows.mean(axis=0)
    outer = np.linalg.norm(seen - seen @ axes @ axes.T, axis=1)
    np.testing.assert_allclose(scores.centred, outer / np.linalg.norm(seen, axis=1), rtol=1e-9)


def test_unpublished_map_with_noisy_moments_is_private(tmp_path: Path) -> None:
    method = {"kind": "fed-pca", "bounds": [-4, 4], "publish": "local"}
    privacy = {"noise": {"on": "moments", "epsilon": 2.0, "clip": 3.0}, "strict": True}
    folder = tiny_run(
        tmp_path / "run", method=method, privacy=privacy, data={"source": "iris", "scale": "none"}
    )
    reported = json.loads((folder / "privacy.json").read_text())
    assert reported["epsilon"] == pytest.approx(2.0, rel=1e-3)


def test_bounds_must_be_in_order() -> None:
    with pytest.raises(ValidationError, match="lower bound first"):
        FedPCA(bounds=(2.0, 1.0))
