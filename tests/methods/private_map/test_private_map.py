"""The private map: sensitivities, the claimed epsilon, and positions that stay with the clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attacked import federation_seen
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_federations import cut, federate
from scipy.sparse import csr_array
from sklearn.datasets import load_digits, make_blobs

from raydr.arrays import FloatArray
from raydr.embedding.placing import conditional
from raydr.errors import ScenarioError
from raydr.federation import Client, Federation, Reply, Request
from raydr.methods import METHODS, Outcome
from raydr.methods.private_map import frame, messages
from raydr.methods.private_map.cells import private_cells, shrunken_steps
from raydr.methods.private_map.frame import leading_axes, private_axes, view
from raydr.methods.private_map.messages import (
    CellSumsRequest,
    FirstMomentsRequest,
    Frame,
    ScatterRequest,
    View,
    cell_sums,
)
from raydr.methods.private_map.placing import Landmarks, own_rows, place
from raydr.methods.private_map.server import PrivateMap
from raydr.methods.private_map.settings import NoiseShares
from raydr.privacy.accounting import Budget, gaussian_multiplier
from raydr.privacy.ledger import Granularity
from raydr.privacy.statement import statement
from raydr.scenarios.schema.reading import read
from raydr.sparse_rows import SparseRows
from raydr.statistics.splitting import split

QUICK: dict[str, Any] = {"early_iterations": 10, "iterations": 10, "placing_iterations": 5}


def settings_of(**more: Any) -> PrivateMap:
    return PrivateMap(**{"epsilon": 8.0, "bounds": (0.0, 16.0), **QUICK, **more})


def served(federation: Federation, method: PrivateMap) -> Outcome:
    return METHODS["private-map"].serve(federation, method)


def digits(rows: int) -> FloatArray:
    return np.asarray(load_digits().data[:rows])


def released(request: Request[Any], rows: FloatArray) -> FloatArray:
    """Return all sums of one client as one vector."""
    reply: Reply = type(request).client_part(Client(index=0, rows=rows, seed=0), request)
    return np.concatenate([np.ravel(value) for value in vars(reply).values()])


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100.0), st.integers(1, 30))
@settings(max_examples=60)
def test_record_changes_a_sum_by_at_most_the_sensitivity(seed: int, length: float, count: int) -> None:
    random = np.random.default_rng(seed)
    rows = length * random.standard_normal((count, 6))
    whole = View(0.5, 3.0, None, None, 6)
    folded = View(0.5, 3.0, random.integers(3, size=6), random.choice(np.array([-1.0, 1.0]), 6), 3)
    for seen in (whole, folded):
        axes = np.linalg.qr(random.standard_normal((seen.sums, 2)))[0]
        frame = Frame(seen, random.standard_normal(seen.sums), axes)
        requests: list[Request[Any]] = [
            FirstMomentsRequest(seen, count),
            ScatterRequest(seen, frame.mean, 2.0, count),
            CellSumsRequest(frame, random.standard_normal((4, 2)), 1.5, count),
        ]
        for request in requests:
            moved = np.linalg.norm(released(request, rows) - released(request, rows[1:]))
            assert moved <= request.sensitivity(count)


def test_declared_sensitivity_is_reached() -> None:
    """A sensitivity that no record reaches would add noise for no reason."""
    far = np.full((1, 6), 1e6)
    frame = Frame(View(0.0, 3.0, None, None, 6), np.zeros(6), np.eye(6)[:, :2])
    requests: list[tuple[Request[Any], float]] = [
        (FirstMomentsRequest(frame.view, 1), 1.0),
        (ScatterRequest(frame.view, frame.mean, 2.0, 1), 0.7),  # the triangle has each pair once
        (CellSumsRequest(frame, np.zeros((1, 2)), 1.5, 1), 1.0),
    ]
    for request, part in requests:
        assert np.linalg.norm(released(request, far)) > part * request.sensitivity(1) - 1e-6


@pytest.mark.parametrize(("epsilon", "rounds"), [(0.5, 1), (8.0, 2)])
def test_accountant_confirms_the_claimed_epsilon(epsilon: float, rounds: int) -> None:
    federation = federate(np.array_split(digits(300), 3))
    served(federation, settings_of(epsilon=epsilon, rounds=rounds))
    reported = statement(federation.ledger, Budget())
    assert reported.infinite == ()
    client = reported.epsilon_by_adversary["client"].accounted  # one of three may collude
    assert client == pytest.approx(epsilon, rel=1e-6)
    assert client >= epsilon * (1.0 - 1e-9)
    assert reported.relation == "zero-out"
    assert reported.epsilon is not None
    assert reported.epsilon > epsilon  # each upload has less noise than the sum
    assert sum(release.releases for release in reported.releases) == rounds + 2
    assert sum(release.share or 0.0 for release in reported.releases) == pytest.approx(1.0)


def test_noise_per_client_gives_the_server_the_same_epsilon() -> None:
    federation = federate(np.array_split(digits(300), 3))
    served(federation, settings_of(per="client"))
    reported = statement(federation.ledger, Budget())
    assert reported.epsilon == pytest.approx(8.0, rel=1e-6)
    assert all(against.epsilon == reported.epsilon for against in reported.epsilon_by_adversary.values())


def test_delta_of_the_method_overrides_that_of_the_run() -> None:
    strict = NoiseShares.of(settings_of(delta=1e-9), Budget(1e-5), 1)
    assert strict == NoiseShares.of(settings_of(), Budget(1e-9), 1)
    assert strict.first > NoiseShares.of(settings_of(), Budget(1e-5), 1).first


def test_no_message_is_about_single_records() -> None:
    federation = federate(np.array_split(digits(300), 3), budget=Budget(strict=True))
    outcome = served(federation, settings_of())
    up = [entry for entry in federation.ledger.entries.values() if entry.direction == "up"]
    assert {entry.kind for entry in up} == {"Enrolment", "FirstMoments", "Scatter", "CellSums"}
    assert not any(entry.granularity is Granularity.PER_RECORD for entry in up)
    assert not any(entry.exposes_records for entry in federation.ledger.entries.values())
    (places,) = [entry for entry in federation.ledger.entries.values() if entry.kind == "Places"]
    assert places.direction == "simulation-only"
    assert places.bytes - outcome.embedding.nbytes in range(places.count * 100), "the places once"


def test_noise_has_the_accounted_strength() -> None:
    budget = NoiseShares.of(settings_of(), Budget(1e-5), 1)
    rows = np.zeros((40, 300))
    seen = View(0.0, 1.0, None, None, 300)
    for per, wanted in (("sum", np.sqrt(4 / 3)), ("client", 2.0)):
        noise = budget.noise(budget.first, 1.0).model_copy(update={"per": per})
        reported = federate(np.array_split(rows, 4)).sum(FirstMomentsRequest(seen, 40, noise))
        assert np.std(reported.packed) == pytest.approx(wanted * budget.first * np.sqrt(2.0), rel=0.15)


def test_packing_changes_no_bit() -> None:
    parts = cut(digits(400), 5, 3)
    first, *others = [
        served(federate(parts, packing=packing), settings_of(own=0.4))
        for packing in ([5], [1, 1, 1, 1, 1], [2, 3])
    ]
    for other in others:
        assert other.embedding.tobytes() == first.embedding.tobytes()
        assert all(np.array_equal(other.model[name], value) for name, value in first.model.items())


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([digits(60), digits(0), digits(1)], id="no row and one row"),
        pytest.param([np.full((50, 64), 3.0), np.full((20, 64), 3.0)], id="constant rows"),
        pytest.param([digits(4)], id="four rows"),
        pytest.param([digits(200)[:, 20:21]], id="one feature"),
        pytest.param([digits(200)[:, 20:22]], id="two features"),
        pytest.param([np.full((200, 64), 1e300)], id="rows far out of bounds"),
    ],
)
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1e4])
def test_extreme_rows_are_placed(parts: list[FloatArray], epsilon: float) -> None:
    outcome = served(federate(parts), settings_of(epsilon=epsilon))
    assert outcome.embedding.shape == (sum(map(len, parts)), 2)
    assert np.isfinite(outcome.embedding).all()


def test_shift_of_rows_and_bounds_changes_nothing() -> None:
    here = served(federate([digits(300)]), settings_of())
    there = served(federate([digits(300) + 2.0**27]), settings_of(bounds=(2.0**27, 2.0**27 + 16.0)))
    assert np.allclose(here.embedding, there.embedding, rtol=0, atol=1e-6)


@pytest.mark.parametrize("most_sums", [64, 32])
def test_sparse_rows_have_the_map_of_dense_ones(most_sums: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, also where features are folded into sums; blocks are of seven rows."""
    monkeypatch.setattr(messages, "_BLOCK_VALUES", 7 * 64)
    monkeypatch.setattr(frame, "MOST_SUMS", most_sums)
    rows = digits(240).copy()
    rows[:20] = 0.0
    parts = [rows[:20], rows[20:30], rows[30:]]
    sparse = [SparseRows.of(part) for part in parts]
    method = settings_of(clip=50.0)
    assert method.why_dense(240, 64, pooled=True) is None
    dense, found = served(federate(parts), method), served(federate(sparse), method)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.embedding, dense.embedding)
    assert np.ptp(dense.embedding) > 0


def test_wide_rows_are_folded_into_few_sums() -> None:
    wide = np.random.default_rng(0).random((60, 5000))
    method = settings_of(bounds=(0.0, 1.0))
    federation = federate([wide])
    seen = view(federation, method)
    narrow = seen.of(wide)
    assert narrow.shape == (60, seen.sums)
    assert seen.sums < 5000
    for feature in (0, 4999):  # each feature is in one sum, with its sign
        only = np.full((1, 5000), 0.5)
        only[0, feature] = 1.5
        found = seen.of(only)
        assert np.flatnonzero(found).size == 1
        assert abs(found).sum() == pytest.approx(1.0)
    lengths = np.linalg.norm(narrow, axis=1) / np.linalg.norm(wide - 0.5, axis=1)
    assert abs(lengths - 1.0).max() < 0.15
    outcome = served(federation, method)
    assert method.transform(outcome.model, wide[:3]).shape == (3, 2)


def test_folding_keeps_products_at_any_offset() -> None:
    """Without signs, rows on one side of the centre would add up in every sum."""
    wide = 0.6 + 0.1 * np.random.default_rng(0).random((20, 5000))
    seen = view(federate([wide]), settings_of(bounds=(0.0, 1.0))).of(wide)
    np.testing.assert_allclose(seen @ seen.T, (wide - 0.5) @ (wide - 0.5).T, rtol=0.1)


def test_sums_use_the_requested_rows_and_frame() -> None:
    """Cached coordinates of the last round do not change a client's reply."""
    random = np.random.default_rng(0)
    one, other = random.normal(size=(2, 50, 3))
    means, turns = (np.zeros(3), np.ones(3)), (np.eye(3)[:, :2], np.eye(3)[:, 1:])
    asked = [(rows, mean, axes) for rows in (one, other) for mean in means for axes in turns]
    for first in asked:
        for second in asked:  # some differ only in the rows, the mean or the axes
            kept = Client(index=0, rows=first[0], seed=0)
            for rows, mean, axes in (first, second):
                frame = Frame(View(0.0, 4.0, None, None, 3), mean, axes)
                request = CellSumsRequest(frame, random.normal(size=(5, 2)), 2.0, 50)
                kept.rows = rows
                found = cell_sums(kept, request)
                assert (
                    found.residuals.tobytes()
                    == cell_sums(Client(index=0, rows=rows, seed=0), request).residuals.tobytes()
                )


def test_axes_without_noise_are_the_principal_ones() -> None:
    rows = digits(500)
    axes = private_axes(
        federate([rows]), settings_of(axes=8), NoiseShares.of(settings_of(epsilon=1e9), Budget(1e-5), 1)
    )
    centred = rows - rows.mean(axis=0)
    # Seen from the mean, rows are cut to their mean length: what is beyond counts less, so angles are small, not none.
    true = np.linalg.svd(centred, full_matrices=False)[2][:4].T
    overlap = np.linalg.svd(axes.frame.axes.T @ true)[1]
    assert overlap.min() > 0.95
    exact = leading_axes((centred.T @ centred / 500)[np.triu_indices(64)], 64, 0.0, 4)
    assert np.allclose(np.abs(np.sum(exact[0] * true, axis=0)), 1.0)
    assert np.allclose(exact[1], np.linalg.svd(centred)[1][:4] ** 2 / 500)


def test_axes_below_the_noise_are_dropped() -> None:
    random = np.random.default_rng(1)
    noise = random.standard_normal((40, 40))
    square = np.triu(noise) + np.triu(noise, 1).T
    square[:3, :3] += np.diag([400.0, 300.0, 200.0])
    axes, variances = leading_axes(square[np.triu_indices(40)], 40, 1.0, 20)
    assert axes.shape == (40, 3)
    assert (np.diff(variances) < 0).all()


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("per", ["sum", "client"])
def test_server_assumes_the_noise_that_is_in_the_sums(per: Any, relation: Any) -> None:
    """Rows at the centre give sums of noise alone; one of seven clients may collude."""
    clients, width = 7, 60
    budget = NoiseShares.of(settings_of(per=per, relation=relation), Budget(), clients)
    federation = federate([np.zeros((2, width))] * clients)
    sight = View(0.0, 1.0, None, None, width)
    asked = ScatterRequest(sight, np.zeros(width), 1.0, 14, budget.noise(budget.scatter, 1.0))
    assert np.std(federation.sum(asked).triangle) == pytest.approx(budget.scatter_deviation, rel=0.08)
    frame = Frame(sight, np.zeros(width), np.eye(width)[:, :20])
    for round in (0, 4):
        federation._rounds.number += 1
        far = CellSumsRequest(frame, np.eye(200, 20), 1.0, 14, budget.noise(budget.rounds[round], 1.0))
        assert np.std(federation.sum(far).residuals) == pytest.approx(budget.deviation(round), rel=0.05)


def test_rows_are_clipped_to_their_root_mean_square_length() -> None:
    rows = digits(400)
    federation, transcript = federation_seen([rows])
    method = settings_of(epsilon=1e9)
    axes = private_axes(federation, method, NoiseShares.of(method, Budget(), 1))
    (asked,) = [
        seen.request
        for seen in transcript
        if isinstance(seen.request, ScatterRequest) and seen.client is None
    ]
    width = float(np.sqrt(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean()))
    assert asked.clip == pytest.approx(width, rel=1e-4)
    assert np.allclose(asked.mean, rows.mean(axis=0) - 8.0, atol=1e-3)
    federation, transcript = federation_seen([rows])
    private_cells(federation, method, NoiseShares.of(method, Budget(), 1), axes)
    cells = [seen.request for seen in transcript if isinstance(seen.request, CellSumsRequest)]
    assert {request.clip for request in cells} == {0.55 * float(np.sqrt(axes.variances.sum()))}


def test_number_of_cells_follows_seven_deviations() -> None:
    """Rows over 7 deviations of the last round; a sixteenth and a quarter of them in the first two."""
    budget = NoiseShares.of(settings_of(epsilon=1.0), Budget(), 10)
    weight = (1.0 - 0.04 - 0.12) * 4.0 / (1.0 + 2.0 + 3.0 + 4.0 + 4.0)
    last = gaussian_multiplier(1.0, 1e-5) / np.sqrt(weight) * np.sqrt(1.25) * np.sqrt(10 / 8)
    assert budget.deviation(4) == pytest.approx(last, rel=1e-6)
    count = int(20_000 / (7.0 * last))
    assert budget.cells(settings_of(), 20_000) == (count // 16, count // 4, count, count, count)


def test_covariances_are_shrunk_and_lost_features_dropped() -> None:
    """Two features with a covariance of 7 deviations, and one whose variance is below three."""
    square = np.array([[9.0, 7.0, 1.0], [7.0, 7.0, 1.0], [1.0, 1.0, 2.9]])
    axes, variances = leading_axes(square[np.triu_indices(3)], 3, 1.0, 3)
    values, vectors = np.linalg.eigh([[9.0, 6.5], [6.5, 7.0]])
    assert np.allclose(np.abs(axes[:2, 0]), np.abs(vectors[:, 1]))
    assert axes[2, 0] == 0.0
    assert variances[0] == pytest.approx(vectors[:, 1] @ square[:2, :2] @ vectors[:, 1])
    assert axes.shape[1] == 2  # at least two, where only one is above the edge of 2 sqrt(2) deviations
    assert values[0] < 2.0 * np.sqrt(2.0) < values[1]


def test_steps_have_stein_shrinkage() -> None:
    """Use the larger of both factors: from the mean signal of all cells, and from the cell's own."""
    sums, counts, clip, noise = np.diag([30.0, 4.0, 2.0, 1.0]), np.array([20.0, 10.0, 5.0, 1.5]), 2.0, 0.5
    moved, _ = shrunken_steps(sums, counts, clip, noise)
    steps = sums / counts[:, None]
    noisy = 4 * (noise * clip / counts) ** 2
    signal = np.mean((steps**2).sum(axis=1) - noisy)
    kept = np.maximum(signal / (signal + noisy), 1.0 - noisy * 2 / 4 / (steps**2).sum(axis=1))
    assert np.allclose(moved, kept[:, None] * steps)
    assert kept[0] > signal / (signal + noisy[0])  # its own factor is larger
    assert kept[3] == signal / (signal + noisy[3])


def test_noisier_steps_are_shrunk_more() -> None:
    sums, counts = np.full((3, 4), 5.0), np.array([1.0, 50.0, 50.0])
    silent, _ = shrunken_steps(sums, counts, 1.0, 1e-9)
    assert np.allclose(silent, sums / counts[:, None])
    shrunken, _ = shrunken_steps(sums, counts, 1.0, 3.0)
    assert not shrunken[0].any()  # a count below its noise
    assert (np.abs(shrunken[1:]) < np.abs(silent[1:])).all()


def test_light_cells_are_replaced_by_halves_of_heavy_ones() -> None:
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    found = split(centres, np.array([100.0, 0.1, 60.0]), 4, np.full(2, 0.1), 1.5, np.random.default_rng(0))
    assert len(found) == 4
    nearest = np.linalg.norm(found[:, None] - centres, axis=2).argmin(axis=1)
    assert sorted(nearest) == [0, 0, 2, 2]


def test_halves_of_a_cell_are_symmetric() -> None:
    centres, apart = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]]), np.array([0.1, 0.2])
    found = split(centres, np.array([2.0, 3.0, 2.0]), 4, apart, 0.0, np.random.default_rng(0))
    step = apart * np.random.default_rng(0).standard_normal((1, 2))[0]
    np.testing.assert_array_equal(found, [centres[0], centres[1] - step, centres[2], centres[1] + step])
    many = split(centres, np.array([2.0, 3.0, 2.0]), 10, apart, 0.0, np.random.default_rng(0))
    assert many.shape == (10, 2)
    nearest = np.linalg.norm(many[:, None] - centres, axis=2).argmin(axis=1)
    assert np.bincount(nearest).tolist() == [3, 4, 3]
    np.testing.assert_allclose(
        [many[nearest == cell].mean(axis=0) for cell in (0, 2)], centres[[0, 2]], atol=0.5
    )


@pytest.mark.parametrize(
    ("counts", "wanted", "least", "kept"),
    [
        ([5.0, 5.0, 5.0], 3, 0.0, [0, 1, 2]),
        ([1.0, 3.0, 2.0], 3, 0.0, [0, 1, 2]),  # the requested number, in order
        ([1.0, 3.0, 2.0], 2, 0.0, [1, 2]),  # the heaviest first
        ([4.5, 0.5], 1, 0.0, [0]),  # a fifth of the mean is light
        ([0.44, 0.06], 2, 0.0, [0, 1]),
        ([0.5, 3.0, 5.0], 2, 0.0, [1, 2]),  # the requested number is left, in order
        ([1.0, 3.0, 5.0], 2, 1.0, [1, 2]),
        ([3.0, 5.0, 5.0], 2, 10.0, [1, 2]),  # all are light: the heaviest are kept
        ([3.0, 4.0, 5.0], 1, 4.0, [2]),  # a cell at the limit is light
        ([-9.0, 1.0], 1, 0.0, [1]),  # counts with noise
    ],
)
def test_heavy_cells_are_kept(counts: list[float], wanted: int, least: float, kept: list[int]) -> None:
    centres = np.arange(2.0 * len(counts)).reshape(-1, 2)
    found = split(centres, np.array(counts), wanted, np.ones(2), least, np.random.default_rng(0))
    np.testing.assert_array_equal(found, centres[kept])


def test_affinities_have_the_requested_perplexity() -> None:
    distances = np.sort(np.random.default_rng(0).random((20, 40)) * 1e6, axis=1)
    found = conditional(distances, 7.0)
    assert np.allclose(found.sum(axis=1), 1.0)
    assert np.allclose(np.exp(-(found * np.log(np.maximum(found, 1e-300))).sum(axis=1)), 7.0)


def landmarks(count: int = 30) -> Landmarks:
    random = np.random.default_rng(5)
    centres = random.standard_normal((count, 3))
    return Landmarks(centres, random.uniform(1.0, 9.0, count), 3.0 * random.standard_normal((count, 2)))


def test_forces_are_gradients_of_energies() -> None:
    """Compare with central differences of ``sum p log(1 + d^2) / 2`` and ``sum c / (1 + d^2) / 2``."""
    from raydr.embedding.kernels.student import pull, repel

    random = np.random.default_rng(6)
    at, points, counts = random.standard_normal((3, 300)), random.standard_normal((3, 7)), random.random(7)
    affinities = csr_array(np.where(random.random((300, 7)) < 0.6, random.random((300, 7)), 0.0))

    def apart(rows: FloatArray) -> FloatArray:
        return np.asarray(1.0 + ((rows[:, :, None] - points[:, None]) ** 2).sum(axis=0))

    def energy(rows: FloatArray) -> FloatArray:
        attraction = (affinities.toarray() * np.log(apart(rows))).sum(axis=1)
        return np.asarray((3.0 * attraction + 2.0 * (counts / apart(rows)).sum(axis=1)) / 2.0)

    force = np.ones((3, 300))
    pull(affinities.indptr, affinities.indices, affinities.data, 3.0, at, points, force)
    repel(counts, 2.0, at, points, force)
    for axis in range(3):
        step = 1e-5 * np.eye(3)[axis][:, None]
        assert np.allclose((energy(at + step) - energy(at - step)) / 2e-5, force[axis] - 1.0, atol=1e-8)


def test_row_is_placed_where_its_force_vanishes() -> None:
    """The force of the module's docstring, written out."""
    known, points = landmarks(), np.random.default_rng(6).standard_normal((4, 3))
    distances = np.linalg.norm(points[:, None] - known.centres, axis=2)
    order = np.argsort(distances, axis=1)[:, :18]
    affinities = np.zeros((4, 30))
    near = conditional(np.take_along_axis(distances, order, axis=1), 6.0)
    np.put_along_axis(affinities, order, near, axis=1)
    counts = known.counts * 30 / known.counts.sum()
    between = 1.0 / (1.0 + ((known.places[:, None] - known.places) ** 2).sum(axis=2))
    whole = (counts @ (between - np.eye(30)) @ counts) / 30

    def force(places: FloatArray) -> FloatArray:
        apart = places[:, None] - known.places
        student = 1.0 / (1.0 + (apart**2).sum(axis=2))
        return np.einsum("il,ild->id", affinities * student - counts * student**2 / whole, apart)

    assert np.abs(force(place(points, known, iterations=0))).max() > 0.01
    assert np.abs(force(place(points, known, iterations=2000))).max() < 1e-6


def test_new_rows_are_placed_independently() -> None:
    known, points = landmarks(), np.random.default_rng(8).standard_normal((9, 3))
    together = place(points, known, iterations=20)
    alone = np.concatenate([place(points[row : row + 1], known, iterations=20) for row in range(9)])
    assert np.allclose(together, alone, atol=1e-9)


def test_row_between_two_groups_starts_in_one_of_them() -> None:
    """The mean of both would be far from both groups and unlike the row."""
    random = np.random.default_rng(9)
    centres = random.standard_normal((12, 3))
    places = 0.1 * random.standard_normal((12, 2)) + np.where(np.arange(12) < 7, -50.0, 50.0)[:, None]
    known = Landmarks(centres, np.ones(12), places)
    starts = place(0.1 * random.standard_normal((20, 3)), known, iterations=0)
    assert (np.linalg.norm(starts[:, None] - places, axis=2).min(axis=1) < 1e-9).all()
    one = place(centres[:1] / 2.0, Landmarks(centres[:1], np.ones(1), places[:1]), iterations=0)
    assert np.allclose(one, places[:1])


def test_few_rows_are_placed_by_landmarks_only() -> None:
    assert own_rows(digits(50), 0.4) is None
    assert own_rows(np.ones((500, 3)), 0.4) is None
    many = own_rows(digits(500), 0.4)
    assert many is not None
    assert many.nearest.shape == (500, 5)
    assert many.affinities.sum() == pytest.approx(500.0)


def test_distant_groups_stay_apart() -> None:
    rows, labels = make_blobs(1500, 10, centers=4, cluster_std=0.3, center_box=(0.0, 10.0), random_state=0)
    method = PrivateMap(epsilon=2.0, bounds=(-2.0, 12.0), early_iterations=100, iterations=100)
    order = np.argsort(labels, kind="stable")
    for dealt in (np.arange(1500), order):  # mixed, and a group or two at each client
        parts = np.array_split(rows[dealt], 3)
        outcome = served(federate(parts), method)
        nearest = np.linalg.norm(outcome.embedding[:, None] - outcome.embedding, axis=2)
        np.fill_diagonal(nearest, np.inf)
        assert (labels[dealt][nearest.argmin(axis=1)] == labels[dealt]).mean() > 0.99


def test_rows_of_unknown_extent_are_refused() -> None:
    with pytest.raises(ScenarioError, match="no noisy survey has prepared"):
        served(federate([digits(300)]), settings_of(bounds=None))
    with pytest.raises(ScenarioError, match=r"leave data\.scale out"):
        read(
            {
                "name": "x",
                "data": {"source": "digits", "scale": "standard"},
                "clients": {"count": 2},
                "method": {"kind": "private-map", "epsilon": 1.0},
            }
        )
    with pytest.raises(ScenarioError, match="at least 4 rows"):
        served(federate([digits(3)]), settings_of())
