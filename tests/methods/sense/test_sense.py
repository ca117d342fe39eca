"""SENSE end to end in one process: exactness, messages, regimes, geometries, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inline_federations import federate
from pydantic import ValidationError
from scipy.spatial.distance import pdist

from raydr.arrays import Float64Array
from raydr.errors import DataError, ScenarioError
from raydr.federation import ClientHost, Federation, HostedClient, InlineTransport, fingerprint
from raydr.geometry.hyperbolic import Hyperboloid
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.journal import Journal
from raydr.methods.novelty import LEAST_GROUP
from raydr.methods.outcome import Drawn
from raydr.methods.sense.anchors import Anchors, AnchorSettings, chosen_anchors, flattened, spanning
from raydr.methods.sense.frames import AffineFrame
from raydr.methods.sense.reduced_basis import Narrow
from raydr.methods.sense.server import SENSE, Completed, completed, new_rows_model, serve
from raydr.methods.sense.spaces import EuclideanSpace
from raydr.methods.serving import Plan
from raydr.methods.serving import serve as run_plan
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.mechanism import Coverage

QUICK: dict[str, Any] = {"kind": "tsne", "early_iterations": 10, "iterations": 10}


def rows(count: int, features: int = 6, seed: int = 0) -> Float64Array:
    """Return correlated rows, so that the open part depends on the part the anchors determine."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(count, 3))
    mixing = np.random.default_rng(99).normal(size=(3, features))
    return np.asarray(latent @ mixing + 0.05 * rng.normal(size=(count, features)))


def federated(parts: list[Float64Array], *, public: Float64Array | None = None, **context: Any) -> Federation:
    shown = rows(400, parts[0].shape[1], seed=50) if public is None else public
    return federate(parts, public=shown, **context)


def multisite(seed: int = 1) -> list[Float64Array]:
    return np.split(rows(120, seed=seed), [50, 51, 51, 80])


def pointwise(count: int = 40) -> list[Float64Array]:
    return list(rows(count, seed=2)[:, None, :])


def error(outcome: Any, parts: list[Float64Array]) -> float:
    true, found = pdist(np.concatenate(parts)), pdist(outcome.geometry.coordinates.astype(np.float64))
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


@pytest.mark.parametrize("visibility", ["full", "partial"])
@pytest.mark.parametrize("regime", ["multisite", "pointwise"])
def test_enough_anchors_recover_every_distance(regime: str, visibility: str) -> None:
    parts = multisite() if regime == "multisite" else pointwise()
    settings = SENSE(regime=regime, visibility=visibility, anchors=8, embedder=QUICK)
    assert error(serve(federated(parts), settings), parts) < 1e-6


@pytest.mark.parametrize(("visibility", "most"), [("full", 0.012), ("partial", 0.012)])
def test_one_missing_anchor_leaves_a_small_error(visibility: str, most: float) -> None:
    parts = multisite()
    settings = SENSE(visibility=visibility, anchors=5, embedder=QUICK)
    assert error(serve(federated(parts), settings), parts) < most


def test_clients_send_once_what_table_6_allows() -> None:
    parts = multisite()
    federation = federated(parts)
    serve(federation, SENSE(visibility="partial", anchors=5, local_anchors=2, embedder=QUICK))
    entries = {(entry.kind, entry.direction): entry for entry in federation.ledger.entries.values()}
    assert set(entries) == {
        ("Enrol", "down"),
        ("Enrolment", "up"),
        ("AnchorRequests", "down"),
        ("AnchorDistances", "up"),
    }
    up = entries["AnchorDistances", "up"]
    assert (up.count, up.granularity, up.protection) == (len(parts), "per-record", None)
    factor_widths = [min(len(part), 6 - 4) for part in parts]
    numbers = sum(len(part) * (5 + width) + 1 for part, width in zip(parts, factor_widths, strict=True))
    assert up.bytes - 8 * numbers in range(len(parts) * 80), "these numbers once, with names and shapes"
    assert entries["AnchorRequests", "down"].seen_by == "each client its own part"


def test_pointwise_clients_send_only_their_own_distances() -> None:
    federation = federated(pointwise())
    serve(federation, SENSE(regime="pointwise", anchors=5, embedder=QUICK))
    up = next(entry for entry in federation.ledger.entries.values() if entry.kind == "AnchorDistances")
    assert up.bytes - 8 * 40 * (5 + 1) in range(40 * 80), "these numbers once, with names and shapes"


def test_later_client_does_not_move_the_others() -> None:
    """With anchors that leave nothing open, and with those that do, where clients are not compared."""
    for regime, parts in (("pointwise", pointwise()), ("multisite", multisite())):
        settings = SENSE(regime=regime, anchors=8 if regime == "multisite" else 5, embedder=QUICK)
        newcomer = rows(1, seed=9) if regime == "pointwise" else rows(20, seed=9)
        before = completed(federated(parts), settings).points
        after = completed(federated([*parts, newcomer]), settings).points
        np.testing.assert_allclose(after[: len(before)], before, atol=1e-5)


def test_smacof_keeps_the_closed_form_and_improves_random_starts() -> None:
    parts = multisite()
    closed = error(serve(federated(parts), SENSE(anchors=5, embedder=QUICK)), parts)
    warm = SENSE(anchors=5, solver="smacof", start="closed-form", embedder=QUICK)
    assert error(serve(federated(parts), warm), parts) == pytest.approx(closed, rel=1e-3)
    random = [
        error(serve(federated(parts), SENSE(anchors=5, solver="smacof", iterations=n, embedder=QUICK)), parts)
        for n in (0, 3, 100)
    ]
    assert random[0] > random[1] > random[2] > closed


@pytest.mark.parametrize("visibility", ["full", "partial"])
@pytest.mark.parametrize("regime", ["multisite", "pointwise"])
def test_literal_algorithm_2_equals_smacof_step_by_step(regime: str, visibility: str) -> None:
    """Both start from the same random points and stop at no tolerance."""
    parts = multisite() if regime == "multisite" else pointwise()
    found = [
        completed(
            federated(parts),
            SENSE(
                regime=regime, visibility=visibility, anchors=5, solver=solver, iterations=25, tolerance=0.0
            ),
        )
        for solver in ("smacof", "smacof-dense")
    ]
    assert len(found[0].stress) == len(found[1].stress) == 26
    np.testing.assert_allclose(found[1].stress, found[0].stress, rtol=1e-9)
    np.testing.assert_allclose(found[1].points, found[0].points, atol=1e-9)


@pytest.mark.parametrize("geometry", ["euclidean", "hyperbolic"])
@pytest.mark.parametrize("regime", ["multisite", "pointwise"])
def test_stress_equals_that_of_the_observed_distances(regime: str, geometry: str) -> None:
    """Over all observed pairs, at the start and after each iteration; a closed form has no stress."""
    table = rows(120, seed=1)
    parts = (
        list(table[:40, None]) if regime == "pointwise" else np.split(table, [50, 50, 51, 80])
    )  # one client without rows, one with a single row
    settings = SENSE(
        regime=regime, geometry=geometry, anchors=8, solver="smacof", iterations=12, tolerance=0.0
    )
    known = completed(federated(parts), settings)
    assert known.stress.shape == (13,)
    assert (np.diff(known.stress) <= 0.0).all()
    space, held = known.space, np.concatenate(parts)

    def distances(points: Float64Array) -> Float64Array:
        """Return the distances between all points, anchors first."""
        anchors = space.narrowed(space.points(known.anchors.all), known.narrow)
        return np.asarray(np.sqrt(space.squared_distances(*2 * (np.concatenate([anchors, points]),))))

    off = (distances(known.points) - distances(space.narrowed(space.points(held), known.narrow))) ** 2
    expected = off[8:, :8].sum()
    if regime == "multisite":
        owner = np.repeat(np.arange(5), [len(part) for part in parts])
        expected += off[8:, 8:][np.equal.outer(owner, owner)].sum() / 2
    assert known.stress[-1] == pytest.approx(expected, rel=1e-6)
    assert completed(federated(parts), SENSE(regime=regime, geometry=geometry, anchors=8)).stress is None


@pytest.mark.parametrize("solver", [{}, {"solver": "smacof", "start": "closed-form", "iterations": 20}])
def test_hyperbolic_records_are_exact_from_d_plus_1_anchors(solver: dict[str, Any]) -> None:
    """The closed form is exact, and the iteration stays there, where all distances are met."""
    parts = multisite()
    settings = SENSE(geometry="hyperbolic", anchors=7, curvature=0.5, embedder=QUICK, **solver)
    outcome = serve(federated(parts), settings)
    assert isinstance(outcome.geometry, Hyperboloid)
    true = settings.space.geometry(settings.space.points(np.concatenate(parts)))
    for start in range(0, 120, 40):
        np.testing.assert_allclose(
            np.sqrt(outcome.geometry.squared_distance_block(start, start + 40)),
            np.sqrt(true.squared_distance_block(start, start + 40)),
            atol=1e-6,
        )


def test_notes_count_the_records_the_server_can_reconstruct() -> None:
    parts = multisite()
    flat = [part @ np.diag([1, 1, 1, 0, 0, 0]) for part in parts]
    known = serve(federated(flat, public=flat[0]), SENSE(anchors=5, embedder=QUICK)).notes[0].text
    assert "120 of 120 records (100%)" in known
    hidden = serve(federated(parts), SENSE(anchors=3, embedder=QUICK)).notes[0].text
    assert "0 of 120 records (0%)" in hidden
    assert "span 2 of them" in hidden
    alone = serve(federated(pointwise()), SENSE(regime="pointwise", anchors=3, embedder=QUICK)).notes[0].text
    assert "no method can find the open part" in alone
    assert "no method can find" not in hidden
    within = sum(len(part) * (len(part) - 1) // 2 for part in parts)
    assert f"The {within:,} distances between records of the same client" in hidden


@pytest.mark.parametrize("regime", ["multisite", "pointwise"])
def test_anchors_far_from_the_data_are_refused(regime: str) -> None:
    """Distances of 1e8 still have digits for the differences between rows, but their squares do not."""
    parts = multisite() if regime == "multisite" else pointwise()
    settings = SENSE(regime=regime, anchors=8, embedder=QUICK)
    with pytest.raises(DataError, match=r"median row of a client lies .* from the anchors"):
        serve(federated([part + 1e8 for part in parts]), settings)


@pytest.mark.parametrize("visibility", ["full", "partial"])
@pytest.mark.parametrize("geometry", ["euclidean", "hyperbolic"])
def test_notes_count_records_with_a_mirror_image(geometry: str, visibility: str) -> None:
    """Pointwise records on the line through the anchors have one image, all others two."""
    on_the_line = 7
    table = 0.3 * rows(40, features=2, seed=2)
    table[:on_the_line, 1] = 0.0
    anchors = np.column_stack([np.linspace(-1.0, 1.0, 82), np.zeros(82)])
    count = {"anchors": 2, "local_anchors": 1} if visibility == "partial" else {"anchors": 2}
    settings = SENSE(regime="pointwise", geometry=geometry, visibility=visibility, embedder=QUICK, **count)
    note = serve(federated(list(table[:, None]), public=anchors), settings).notes[0].text
    assert "its mirror image has the same distances" in note
    assert (
        f"Of 40 records, this leaves {40 - on_the_line} open, those off the span, with two images each."
        in note
    )
    assert "3 anchors in general position leave nothing open" in note


@pytest.mark.parametrize("geometry", ["euclidean", "hyperbolic"])
def test_record_and_its_mirror_image_send_the_same_message(geometry: str) -> None:
    """The server's result does not depend on which of the two a record is."""
    table = 0.3 * rows(40, features=2, seed=2)
    anchors = np.array([[-1.0, 0.0], [1.0, 0.0]])
    sides = np.where(np.random.default_rng(0).random(40) < 0.5, -1.0, 1.0)
    settings = SENSE(regime="pointwise", geometry=geometry, anchors=2, embedder=QUICK)
    drawn = [
        serve(federated(list(one[:, None]), public=anchors), settings).geometry.squared_distance_block(0, 40)
        for one in (table, table * np.column_stack([np.ones(40), sides]))
    ]
    np.testing.assert_allclose(drawn[0], drawn[1], atol=1e-6)


SHORT = {"kind": "tsne", "early_iterations": 100, "iterations": 100}
"""Long enough for groups to separate."""


def test_new_rows_join_their_group_and_the_model_holds_no_record() -> None:
    parts = list(np.split(np.repeat(np.eye(4, 6) * 9.0, 30, axis=0) + 0.1 * rows(120, seed=7), 4))
    for settings in (
        SENSE(anchors=8, embedder=SHORT),
        SENSE(anchors=8, geometry="hyperbolic", points="ball", embedder=SHORT),
        SENSE(anchors=8, geometry="hyperbolic", embedder="umap"),
    ):
        given = [part / 20.0 for part in parts] if settings.geometry == "hyperbolic" else parts
        public = rows(30, seed=50) / 20.0
        outcome = serve(federated(given, public=public), settings)
        model = outcome.model
        assert 4 <= len(model["references"]) <= 120 // LEAST_GROUP
        table = np.concatenate(given)
        assert np.abs(model["references"][:, None] - table).max(axis=2).min() > 1e-6
        new = np.concatenate([part[:3] + 1e-3 for part in given])
        placed = settings.transform(model, new)
        nearest = np.linalg.norm(placed[:, None] - outcome.embedding, axis=2).argmin(axis=1)
        np.testing.assert_array_equal(nearest // 30, np.repeat(np.arange(4), 3))


def test_placement_of_new_rows_does_not_depend_on_the_map_unit() -> None:
    """The map is the data, in any unit: new rows are close to their true positions in all."""
    known, new = rows(300, features=2), rows(20, features=2, seed=9) / 2.0
    drawn = Drawn(known, nearest_neighbors(Points(known), 15))
    anchors, space = Anchors(np.zeros((1, 2)), np.zeros((0, 0, 2))), EuclideanSpace()
    found = Completed(
        anchors=anchors,
        space=space,
        points=known,
        narrow=Narrow(None, 0),
        geometry=space.geometry(known),
        notes=(),
    )
    model = new_rows_model(SENSE(), found, drawn, np.random.default_rng(0))
    placed = SENSE().transform(model, new)
    between = nearest_neighbors(Points(model["references"]), 1).distances
    assert np.median(np.linalg.norm(placed - new, axis=1)) < 2.0 * np.median(between)
    larger = dict(model) | {"reference_positions": 1024.0 * model["reference_positions"]}
    np.testing.assert_allclose(SENSE().transform(larger, new), 1024.0 * placed, rtol=1e-6)


class TestAnchors:
    def test_default_number_of_anchors(self) -> None:
        assert AnchorSettings().per_client(features=64, rows=1000) == (63, 0)
        assert AnchorSettings().per_client(features=784, rows=780) == (390, 0)
        assert AnchorSettings(visibility="partial").per_client(features=64, rows=1000) == (32, 31)

    def test_sample_is_as_large_as_all_clients_need(self) -> None:
        settings = AnchorSettings(visibility="partial", anchors=10, local_anchors=4, anchor_source="sample")
        assert settings.public_rows(rows=100, mapped=50, features=20, clients=3) == 6 + 12
        assert settings.public_rows(rows=100, mapped=None, features=20, clients=None) == 6 + 4 * 18
        assert AnchorSettings(anchor_source="random").public_rows(100, 50, 20, 3) == 0
        with pytest.raises(DataError, match=r"sets 18 rows apart .* only 10 of 60 rows are left over"):
            settings.public_rows(rows=60, mapped=50, features=20, clients=3)

    def test_default_sample_leaves_rows_for_every_client(self) -> None:
        full, partial = AnchorSettings(anchors=10), AnchorSettings(visibility="partial", anchors=10)
        assert full.public_rows(rows=100, mapped=None, features=20, clients=3) == 10
        assert full.public_rows(rows=100, mapped=None, features=20, clients=100) == 0
        assert partial.public_rows(rows=100, mapped=None, features=20, clients=3) == 5 + 5 * 3
        assert partial.public_rows(rows=100, mapped=None, features=20, clients=None) == 0
        assert (full.source(None), full.source(np.zeros((1, 20)))) == ("random", "sample")

    def test_spanning_anchors_are_chosen_rows_of_many(self) -> None:
        settings = AnchorSettings(anchor_source="spanning", anchors=10)
        assert settings.public_rows(rows=100, mapped=50, features=20, clients=3) == 40
        assert settings.public_rows(rows=60, mapped=None, features=20, clients=3) == 30
        assert settings.public_rows(rows=100, mapped=None, features=20, clients=None) == 40, (
            "one client each for the rows that are left"
        )
        with pytest.raises(DataError, match=r"spanning sets 30 rows apart \(to choose 10 anchors\)"):
            settings.public_rows(rows=60, mapped=50, features=20, clients=3)
        with pytest.raises(ValidationError, match="set visibility: full"):
            AnchorSettings(anchor_source="spanning", visibility="partial")
        public = rows(40, seed=7)
        chosen = chosen_anchors(
            federate(multisite(), public=public), settings.model_copy(update={"anchors": 5})
        )
        kept = [np.flatnonzero((public == anchor).all(axis=1)) for anchor in chosen.common]
        assert sorted(map(len, kept)) == [1] * 5
        assert len({int(at[0]) for at in kept}) == 5

    def test_an_outlier_along_a_minor_axis_is_no_spanning_anchor(self) -> None:
        pool = np.zeros((40, 4))
        pool[:, :3] = 10.0 * np.random.default_rng(0).uniform(-1.7, 1.7, (40, 3))
        pool[0] = [0.1, 0.1, 0.1, 40.0]
        assert (spanning(pool, 4)[:, 3] == 0.0).all()
        assert (spanning(pool, 5)[:, 3] == 40.0).any()

    def test_spanning_anchors_leave_less_open(self) -> None:
        """Rows of three latent directions and noise: four anchors can span the directions."""
        left = []
        for seed in range(8):
            pool, others = rows(40, features=30, seed=seed + 100), rows(200, features=30, seed=seed + 200)
            chosen = (spanning(pool, 4), pool[:4])
            left.append([AffineFrame(anchors).squared_heights(others).mean() for anchors in chosen])
        spanned, sampled = np.mean(left, axis=0)
        assert spanned < 0.5 * sampled

    def test_random_anchors_follow_the_data_in_any_packing(self) -> None:
        parts = [part * 3.0 + 10.0 for part in multisite()]
        settings = AnchorSettings(anchor_source="random", anchors=2000)
        anchors = chosen_anchors(federate(parts), settings).common
        whole = np.concatenate(parts)
        np.testing.assert_allclose(anchors.mean(axis=0), whole.mean(axis=0), atol=0.3)
        np.testing.assert_allclose(anchors.std(axis=0), whole.std(axis=0), rtol=0.1)
        packed = federate(parts, packing=[1, 3, 1])
        assert chosen_anchors(packed, settings).common.tobytes() == anchors.tobytes()

    def test_learnt_anchors_are_landmarks(self) -> None:
        settings = AnchorSettings(anchor_source="learnt", anchors=10, learning={"rounds": 5})
        federation = federate(multisite())
        assert chosen_anchors(federation, settings).common.shape == (10, 6)
        assert federation.round == 5

    def test_flattened_anchors_have_the_requested_rank(self) -> None:
        anchors = rows(8)
        for rank in (1, 3, 6):
            flat = flattened(anchors, rank)
            assert np.linalg.matrix_rank(flat - flat.mean(axis=0), tol=1e-9) == rank
        np.testing.assert_allclose(flattened(anchors, 6), anchors, atol=1e-12)
        with pytest.raises(ScenarioError, match="anchor_rank is 7, but the 8 anchors span 6"):
            flattened(anchors, 7)

    @pytest.mark.parametrize(
        ("public", "words"),
        [
            (np.zeros((9, 5)), "5 features and the data 6"),
            (np.zeros((3, 6)), "needs 5 anchors, but there are only 3"),
            (np.zeros((9, 6)), "cannot place rows"),
        ],
    )
    def test_anchors_that_do_not_fit_are_refused(self, public: Float64Array, words: str) -> None:
        with pytest.raises(DataError, match=words):
            serve(federated(multisite(), public=public), SENSE(anchors=5, embedder=QUICK))


@pytest.mark.parametrize(
    ("scale", "metric"), [("standard", "euclidean"), ("minmax", "euclidean"), ("none", "cosine")]
)
def test_public_rows_are_scaled_like_client_rows(scale: Any, metric: Any) -> None:
    parts, public = multisite(), 7.0 + 3.0 * rows(30, seed=50)
    hosts = [
        ClientHost(
            hosted=[HostedClient(index, part, fingerprint(part)) for index, part in enumerate(parts)], seed=0
        )
    ]
    settings = SENSE(anchors=5, embedder=QUICK)
    plan = Plan(method="sense", settings=settings, scale=scale, metric=metric, seed=0, public=public)
    served = run_plan(InlineTransport(hosts), len(parts), plan, journal=Journal())
    expected = served.prepared.applied(public)[:5]
    assert np.abs(expected - public[:5]).max() > 0.1
    np.testing.assert_array_equal(served.outcome.model["anchors"], expected)


class TestNoise:
    def test_only_noisy_clients_are_marked_and_inexact(self) -> None:
        parts = pointwise()
        federation = federated(parts, coverage=Coverage(GaussianNoise(on="distances", level=0.1), 0.5))
        outcome = serve(federation, SENSE(regime="pointwise", anchors=8, embedder=QUICK))
        moved = outcome.geometry.coordinates - np.concatenate(parts)
        # Points are relative to an origin near the anchors, which shifts all of them.
        offsets = np.linalg.norm(moved - np.median(moved, axis=0), axis=1)
        assert int((offsets < 1e-5).sum()) == 20
        counts = {
            entry.protection: entry.count
            for entry in federation.ledger.entries.values()
            if entry.kind == "AnchorDistances"
        }
        assert counts == {GaussianNoise(on="distances", level=0.1): len(parts) // 2, None: len(parts) // 2}

    def test_damping_reduces_the_error_of_noisy_distances(self, monkeypatch: pytest.MonkeyPatch) -> None:
        parts = pointwise()

        def noisy() -> Federation:
            return federated(parts, coverage=Coverage(GaussianNoise(on="distances", level=0.1)))

        settings = SENSE(regime="pointwise", anchors=8, embedder=QUICK)
        damped = error(serve(noisy(), settings), parts)
        frame = EuclideanSpace.frame
        monkeypatch.setattr(EuclideanSpace, "frame", lambda self, anchors, noise=0.0: frame(self, anchors))
        assert damped < 0.6 * error(serve(noisy(), settings), parts)

    def test_noise_on_data_moves_records_by_its_deviation(self) -> None:
        parts = pointwise(400)
        federation = federated(parts, coverage=Coverage(GaussianNoise(on="data", level=0.5)))
        outcome = serve(federation, SENSE(regime="pointwise", anchors=8, embedder=QUICK))
        moved = outcome.geometry.coordinates - np.concatenate(parts)
        moved -= moved.mean(axis=0)
        deviation = np.sqrt((np.concatenate(parts).std(axis=0) ** 2).mean())
        np.testing.assert_allclose(moved.std(), 0.5 * deviation, rtol=0.1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"local_anchors": 3}, "need visibility: partial"),
        ({"anchor_source": "file"}, "give both or neither"),
        ({"anchor_path": "a.csv"}, "give both or neither"),
        ({"embedder": "cosne"}, "set geometry: hyperbolic"),
        ({"curvature": 2.0}, "apply to geometry: hyperbolic alone"),
        ({"anchors": 1}, "greater than or equal to 2"),
        ({"learning": {"landmarks": 5}}, "leave learning.landmarks out"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        SENSE(**settings)


def test_local_anchors_must_leave_common_ones() -> None:
    with pytest.raises(ScenarioError, match="Choose at most 4"):
        SENSE(visibility="partial", anchors=5, local_anchors=5).check(100, 6)


def test_pointwise_clients_with_several_records_are_refused() -> None:
    with pytest.raises(ScenarioError, match="client 0 holds 50"):
        serve(federated(multisite()), SENSE(regime="pointwise", anchors=5, embedder=QUICK))


def test_packing_changes_no_bit() -> None:
    parts = [part[:15] for part in multisite()]
    settings = SENSE(anchors=4, visibility="partial", embedder=QUICK)
    bits = []
    for packing in (None, [2, 3]):
        federation = federate(parts, packing=packing, public=rows(400, seed=50))
        outcome = serve(federation, settings)
        assert isinstance(outcome.geometry, Points)
        bits.append(outcome.embedding.tobytes() + outcome.geometry.coordinates.tobytes())
    assert len(set(bits)) == 1


def test_plan_counts_the_matrices_of_the_dense_solver() -> None:
    """Six of them, in float64, in addition to the frames that every solver has."""
    planned = {
        solver: SENSE(anchors=10, regime="pointwise", solver=solver).server_bytes(500, 20, 4)
        for solver in ("smacof", "smacof-dense")
    }
    assert planned["smacof"] == 3 * 8 * 10 * 20
    assert planned["smacof-dense"] - planned["smacof"] == 6 * 8 * 510**2
    local = SENSE(anchors=10, local_anchors=3, visibility="partial", regime="multisite", solver="smacof")
    assert local.per_client(20, 500) == (7, 3)  # of ten anchors, three are seen by one client alone
    assert local.server_bytes(500, 20, 4) == 3 * 8 * 4 * (7 + 3) * 20
