"""Noise on FedNE's updates: sensitivities hold for records and clients, and every release is charged."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attacked import federation_seen
from fedne_tables import FIELD, NO_FIELD, TRAINING, asked_of_pairs, asked_to_train, blobs
from half_noise import HalfTheNoise
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_federations import federate
from one_run import Audited, audited_epsilon, coins
from tiny import tiny_run, tiny_scenario

from raydr.arrays import BoolArray, Float64Array, Int64Array
from raydr.errors import ScenarioError
from raydr.federation import Client, Federation
from raydr.federation.checkpoint import Checkpoint
from raydr.journal import Charged, CheckpointTaken, Event, Journal
from raydr.methods import METHODS
from raydr.methods.fedne import pairs
from raydr.methods.fedne.clients import TrainRequest, objective_of, train_locally
from raydr.methods.fedne.dp_costs import (
    MeanAndLength,
    MeanRequest,
    mean_and_length,
    moments_request,
    scaled_within_bounds,
    weighting,
)
from raydr.methods.fedne.encoder import Architecture, encode, initial_weights
from raydr.methods.fedne.fedne import FedAvgNE, FedNE
from raydr.methods.fedne.field import Grid, interpolated
from raydr.methods.fedne.loss import attraction, repulsion, squared_distance
from raydr.methods.fedne.networks import PARAMETERS
from raydr.methods.fedne.pairs import PairRequest, in_line, pairs_moved, summed_gradient
from raydr.privacy import Coverage
from raydr.privacy.accounting import (
    Charge,
    UnitError,
    composed_multiplier,
    dp_event,
    epsilon_of,
    gaussian_epsilon,
)
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.mechanism import silent
from raydr.runfolder.reading import read_run
from raydr.scenarios.planning.plan import plan_of_scenario
from raydr.scenarios.runner import run
from raydr.statistics.scaling import ScaleRows

DELTA = 1e-5


def one_by_one(rows: Float64Array, request: PairRequest, repelled: Int64Array | None) -> Float64Array:
    """Return the sum of each pair's gradient, by automatic differentiation, clipped."""
    architecture = Architecture(rows.shape[1], request.hidden)
    line = in_line(rows, request.directions, request.offsets, request.extent)
    total = np.zeros(architecture.parameters)
    field = torch.from_numpy(request.field.astype(np.float64))
    for one, two in pairwise(line):
        weights = torch.from_numpy(request.weights.astype(np.float64)).requires_grad_()
        places = encode(architecture, weights, torch.from_numpy(rows))
        loss = attraction(squared_distance(places[one], places[two]))
        if repelled is None:
            grid = Grid(request.reach, len(field))
            loss = loss + 2.0 * request.negatives * interpolated(grid, field, places[one])
        elif repelled[one] not in (-1, one):
            loss = loss + request.negatives * repulsion(squared_distance(places[one], places[repelled[one]]))
        (gradient,) = torch.autograd.grad(loss, weights)
        norm = float(gradient.norm())
        total -= gradient.numpy() * (request.clip / max(norm, request.clip))
    return total


def without(
    rows: Float64Array, repelled: Int64Array | None, removed: int
) -> tuple[Float64Array, Int64Array | None]:
    """Return the data without a record's contribution; the others keep their random numbers."""
    if repelled is None:
        return np.delete(rows, removed, axis=0), None
    moved = np.where(repelled == removed, -1, repelled - (repelled > removed))
    return np.delete(rows, removed, axis=0), np.delete(moved, removed)


class TestPairs:
    @pytest.mark.parametrize("clip", [1e-3, 1.0, 1e6])
    @pytest.mark.parametrize("field", [True, False])
    def test_sum_equals_clipped_gradients_of_single_pairs(self, clip: float, field: bool) -> None:
        rng = np.random.default_rng(1)
        rows = rng.normal(size=(12, 3))
        repelled = None if field else np.where(rng.random(12) < 0.2, -1, rng.permutation(12))
        request = asked_of_pairs(clip=clip, field=FIELD if field else NO_FIELD)
        found = summed_gradient(rows, request, repelled)
        expected = one_by_one(rows, request, repelled)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())

    @given(st.integers(0, 10**6), st.integers(1, 9), st.booleans(), st.floats(-3, 1))
    @settings(max_examples=40)
    def test_one_record_changes_the_sum_by_at_most_the_sensitivity(
        self, seed: int, count: int, field: bool, clip: float
    ) -> None:
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(count, 3)) * 10.0 ** rng.uniform(-1, 1)
        repelled = None if field else rng.permutation(count)
        request = asked_of_pairs(seed=seed, clip=10.0**clip, field=FIELD if field else NO_FIELD)
        whole = summed_gradient(rows, request, repelled)
        for removed in range(count):
            moved = np.linalg.norm(
                whole - summed_gradient(*_swapped(without(rows, repelled, removed), request))
            )
            assert moved <= request.sensitivity(count) * count

    @pytest.mark.parametrize(
        ("field", "count", "seeds", "nearly"), [(True, 3, (363, 527), 2.5), (False, 5, (16, 159), 3.9)]
    )
    def test_some_record_changes_more_than_its_own_pairs(
        self, field: bool, count: int, seeds: tuple[int, ...], nearly: float
    ) -> None:
        """A sensitivity that ignores the pair that closes the gap, or other draws, would be too small.

        Found by search among 600 seeds.
        """
        farthest = 0.0
        for seed in seeds:
            rng = np.random.default_rng(seed)
            rows = rng.normal(size=(count, 3)) * (0.6 if field else 0.5)
            repelled = None if field else rng.permutation(count)
            nothing = np.zeros((9, 9), np.float32)
            request = asked_of_pairs(seed=seed, clip=1e-3, field=nothing if field else NO_FIELD)
            whole = summed_gradient(rows, request, repelled)
            for removed in range(count):
                rest = summed_gradient(*_swapped(without(rows, repelled, removed), request))
                farthest = max(farthest, float(np.linalg.norm(whole - rest)) / request.clip)
        assert nearly < farthest <= pairs_moved(field)

    @given(st.integers(0, 10**6))
    @settings(max_examples=25)
    def test_removing_a_record_keeps_the_order_of_the_others(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        rows = np.round(rng.normal(size=(20, 3)), 1)
        rows[7] = rows[3]
        directions, offsets = rng.normal(size=(3, 3)), rng.uniform(-0.3, 0.3, 3)
        line = in_line(rows, directions, offsets, 1.0)
        for removed in range(20):
            kept = np.delete(np.arange(20), removed)
            rest = kept[in_line(rows[kept], directions, offsets, 1.0)]
            np.testing.assert_array_equal(rest, line[line != removed])

    def test_nearest_neighbour_pairs_would_have_no_bound(self) -> None:
        """Pairs come from a line because here twenty records share one nearest neighbour."""
        rows = np.concatenate([np.zeros((1, 20)), np.eye(20)])
        apart = np.linalg.norm(rows[:, None] - rows[None], axis=2) + 10.0 * np.eye(21)
        assert (apart.argmin(axis=1)[1:] == 0).sum() > 3 * pairs_moved(True)

    def test_similar_records_are_adjacent_in_the_line(self) -> None:
        rng = np.random.default_rng(0)
        rows = np.repeat(5.0 * rng.normal(size=(4, 3)), 50, axis=0) + 0.1 * rng.normal(size=(200, 3))
        line = in_line(rows, np.eye(3), np.zeros(3), 4.0)
        assert (line[1:] // 50 == line[:-1] // 50).mean() > 0.95

    def test_overflowing_record_changes_at_most_the_sensitivity(self) -> None:
        rows = np.random.default_rng(0).normal(size=(6, 3))
        beyond = np.concatenate([rows, [[1e300, -1e300, 1e300]]])
        with np.errstate(all="ignore"):
            moved = np.linalg.norm(summed_gradient(beyond, REQUEST) - summed_gradient(rows, REQUEST))
        assert moved <= REQUEST.sensitivity(1)


REQUEST = asked_of_pairs()


def _swapped(
    data: tuple[Float64Array, Int64Array | None], request: PairRequest
) -> tuple[Float64Array, PairRequest, Int64Array | None]:
    return data[0], request, data[1]


def training_request(features: int, noise: GaussianNoise | None, **more: Any) -> TrainRequest:
    architecture = Architecture(features, (16, 16))
    return asked_to_train(
        initial_weights(architecture, np.random.default_rng(0)),
        training=replace(TRAINING, **more),
        learning_rate=0.01,
        mechanism=noise,
    )


def by_client(**strength: Any) -> GaussianNoise:
    return GaussianNoise(on="update", unit="client", **{"clip": 0.05, **strength})


class TestClients:
    @pytest.mark.parametrize("clip", [1e-4, 0.05, 100.0])
    def test_client_update_is_clipped(self, clip: float) -> None:
        """A client sends one vector of the sum, so its length is the client's effect on the sum."""
        plain = train_locally(Client(index=0, rows=blobs()[0], seed=0), training_request(5, None))
        clipped = train_locally(
            Client(index=0, rows=blobs()[0], seed=0),
            training_request(5, by_client(clip=clip, multiplier=1.0)),
        )
        length = float(np.linalg.norm(plain.weights))
        assert np.linalg.norm(clipped.weights) == pytest.approx(min(clip, length), rel=1e-6)
        np.testing.assert_allclose(
            clipped.weights * length, plain.weights * min(clip, length), atol=1e-6 * length
        )
        request = training_request(5, by_client(clip=clip, multiplier=1.0))
        assert np.linalg.norm(clipped.weights) <= request.sensitivity(40)
        assert (clipped.loss, clipped.control.size, clipped.kept.size) == (0.0, 0, 0)

    def test_client_weight_does_not_depend_on_its_rows(self) -> None:
        noise = Coverage(by_client(multiplier=1.0))
        federation = federate(blobs(), coverage=noise)
        METHODS["fedavg-ne"].serve(federation, FedAvgNE(hidden=(4,), rounds=2, bounds=(-30, 30)))
        found = {charge.sensitivity for charge in federation.ledger.charges if charge.kind == "Change"}
        assert max(found) == pytest.approx(0.05, rel=1e-6)

    @pytest.mark.parametrize("scale", [0.1, 1e3])
    def test_one_client_changes_moments_by_at_most_the_sensitivity(self, scale: float) -> None:
        rows = scale * np.random.default_rng(0).normal(size=(9, 3))
        request = MeanRequest(np.full(3, 0.5), 2.0, by_client(multiplier=1.0))
        reported = mean_and_length(Client(index=0, rows=rows, seed=0), request).packed
        assert np.linalg.norm(reported) <= request.sensitivity(9)


LOW, HIGH = 2.0, 10.0


def within(**more: Any) -> FedNE:
    return FedNE(**{"hidden": (8,), "rounds": 5, "bounds": (LOW, HIGH), "surrogate": "none", **more})


def quiet(noise: GaussianNoise | None) -> Coverage | None:
    return None if noise is None else Coverage(silent(noise))


class TestMoments:
    """The sum before the rounds: the scaling of rows, and the axes above its noise."""

    @pytest.mark.parametrize("start", ["principal", "random"])
    @pytest.mark.parametrize("unit", [None, "record", "client"])
    def test_scaling_without_noise_equals_the_pooled_table(self, start: Any, unit: Any) -> None:
        """One factor scales all features; under noise per client, all clients have equal weight."""
        rng = np.random.default_rng(0)
        mixing = rng.normal(size=(5, 5)) * np.array([1.2, 0.8, 0.5, 0.3, 0.1])[:, None]
        parts = [
            np.clip(rng.normal(size=(size, 5)) @ mixing + 5.0 + shift, LOW, HIGH)
            for size, shift in ((12, 0.0), (30, 1.5), (0, 0.0), (7, -1.0))
        ]
        noise = None if unit is None else GaussianNoise(on="update", multiplier=1e-9, clip=0.5, unit=unit)
        federation, transcript = federation_seen(parts, coverage=quiet(noise))
        found = scaled_within_bounds(federation, within(start=start), 3)

        rows = np.concatenate(parts)
        by_row = [
            1.0 / (3 * len(part)) if unit == "client" else 1.0 / len(rows) for part in parts if len(part)
        ]
        weights = np.repeat(by_row, [len(part) for part in parts if len(part)])
        mean = weights @ rows
        covariance = (rows - mean).T @ (weights[:, None] * (rows - mean))
        scale = np.sqrt(np.trace(covariance) / 5)
        asked = [seen.request for seen in transcript if isinstance(seen.request, ScaleRows)]
        for reported in (found.scaling, *asked):
            np.testing.assert_allclose(reported.shift, mean, atol=1e-5)
            np.testing.assert_allclose(reported.factor, np.full(5, 1.0 / scale), rtol=1e-5)
        assert asked
        if start == "random":
            assert found.axes is None
            return
        assert found.axes is not None
        variances, directions = np.linalg.eigh(covariance)
        np.testing.assert_allclose(found.axes.deviations, np.sqrt(variances[:1:-1]) / scale, rtol=1e-4)
        turns = np.sum(found.axes.directions * directions[:, :1:-1], axis=0)
        np.testing.assert_allclose(np.abs(turns), np.ones(3), rtol=1e-4)

    def test_clip_is_the_distance_of_the_farthest_corner(self) -> None:
        """A shorter clip would cut rows within the bounds, and a longer one would add noise for no reason."""
        corners = np.array([[LOW, LOW, HIGH], [HIGH, HIGH, HIGH]])
        for start in ("principal", "random"):
            asked = moments_request(federate([corners]), within(start=start))
            np.testing.assert_array_equal(asked.centre, np.full(3, 6.0))
            assert asked.clip == pytest.approx(np.linalg.norm(corners[0] - 6.0), rel=1e-12)

    @pytest.mark.parametrize("start", ["principal", "random"])
    def test_constant_rows_are_scaled_by_their_bounds(self, start: Any) -> None:
        """Noise can cause this too; if all axes are below the noise, one is kept."""
        found = scaled_within_bounds(federate([np.full((9, 4), 6.0)]), within(start=start), 4)
        np.testing.assert_allclose(found.scaling.factor, np.sqrt(12.0) / (HIGH - LOW), rtol=1e-12)
        assert found.axes is None or found.axes.deviations.shape == (1,)

    @pytest.mark.parametrize("per", ["client", "sum"])
    @pytest.mark.parametrize("unit", ["record", "client"])
    def test_axes_below_the_noise_are_dropped(self, unit: Any, per: Any) -> None:
        """Measured on constant rows: eigenvalues of noise reach 2 sqrt(features) deviations (Wigner)."""
        features, copies = 40, (1, 3, 0, 2)
        noise = GaussianNoise(
            on="update", multiplier=7e-5 if unit == "client" else 6e-3, clip=0.5, unit=unit, per=per
        )
        still = federate([np.full((80 * times, features), 6.0) for times in copies], coverage=Coverage(noise))
        asked = moments_request(still, within())
        noisy = still.mean(asked, weights=weighting(asked.mechanism))
        edge = 2.0 * np.sqrt(features) * float(np.std(noisy.packed))
        for above in (0, 1, 2, 7):
            variances = edge * np.where(np.arange(features) < above, 1.15, 0.85) - edge * 1e-3 * np.arange(
                features
            )
            steps = asked.clip * np.sqrt(features * variances)
            assert steps.max() < (HIGH - LOW) / 2.0  # rows are within their bounds
            rows = 6.0 + np.concatenate([np.diag(steps), -np.diag(steps)])
            federation = federate([np.tile(rows, (times, 1)) for times in copies], coverage=quiet(noise))
            axes = scaled_within_bounds(federation, within(), features).axes
            assert axes is not None
            expected = np.sqrt(variances / variances.mean())[: max(1, above)]
            np.testing.assert_allclose(axes.deviations, expected, rtol=1e-3)

    def test_mean_uses_exact_sums_on_a_grid(self) -> None:
        """The order of rows changes no digit; for one row, each entry is off by half a step of 2^-26."""
        rng = np.random.default_rng(4)
        rows, request = rng.normal(size=(4096, 5)), MeanRequest(np.full(5, 0.5), 3.0)
        reported = [
            mean_and_length(Client(index=0, rows=each, seed=0), request).packed
            for each in (rows, *(rng.permutation(rows) for _ in range(8)))
        ]
        assert len({each.tobytes() for each in reported}) == 1
        seen = (rows[:1] - 0.5) / 3.0
        alone = mean_and_length(Client(index=0, rows=rows[:1], seed=0), request).packed
        cut = seen[0] / max(1.0, float(np.linalg.norm(seen)))
        np.testing.assert_allclose(alone, np.append(cut, cut @ cut), atol=2.0**-25)

    def test_reply_is_within_range_and_zero_without_rows(self) -> None:
        request = MeanRequest(np.zeros(4), 2.0)
        far = mean_and_length(Client(index=0, rows=np.full((3, 4), 9.0), seed=0), request).packed
        largest = MeanAndLength.ranges(request, 3)["packed"].largest
        assert np.abs(far).max() <= largest < 1.0001
        np.testing.assert_array_equal(
            mean_and_length(Client(index=0, rows=np.zeros((0, 4)), seed=0), request).packed, np.zeros(5)
        )


CANARIES, MULTIPLIER = 1_200, 0.5


def pair_scores(kind: type[GaussianNoise], present: BoolArray) -> Float64Array:
    """Return scores of canaries on separate axes, each between two records near 0, for a linear encoder.

    Both pairs of a canary change its weights by the clip: two of the three clips that are charged.
    """
    rng, extra = np.random.default_rng(11), 4
    places = rng.uniform(-2.5, 2.5, size=(2 * CANARIES + 1, extra)) * 0.1
    directions = np.concatenate([np.zeros((CANARIES, extra)), np.eye(extra)])
    rows = np.concatenate([np.zeros((len(places), CANARIES)), places], axis=1)
    rows = rows[in_line(rows, directions, np.zeros(extra), 0.1)]
    rows[1::2, :CANARIES] = 10.0 * np.eye(CANARIES)
    kept = np.ones(len(rows), bool)
    kept[1::2] = present
    features = CANARIES + extra
    weights = Architecture(features, ()).parameters
    flat = np.zeros(weights, np.float32)
    flat[: 2 * features : 2] = 1.0  # the first coordinate of the map is the sum of all features
    request = asked_of_pairs(
        weights=flat, hidden=(), directions=directions, offsets=np.zeros(extra), extent=0.1,
        field=np.zeros((2, 2), np.float32), mechanism=kind(on="update", multiplier=MULTIPLIER, clip=0.1),
    )  # fmt: skip
    reported = federate([rows[kept]]).ask(request)[0].gradient * kept.sum()
    return -reported[: 2 * CANARIES : 2] / (2.0 * request.clip)


TRAINED: dict[str, Any] = {"together": True, "most_steps": 1, "hidden": (16, 16)}


@cache
def trained() -> tuple[list[Float64Array], list[Float64Array]]:
    """Return the clients' rows and the direction of each client's update."""
    rng = np.random.default_rng(2)
    parts = [rng.normal(size=(6, 3)) for _ in range(CANARIES)]
    plain = federate(parts).ask(training_request(3, None, **TRAINED))
    return parts, [reply.weights / np.linalg.norm(reply.weights) for reply in plain]


def client_scores(kind: type[GaussianNoise], present: BoolArray) -> Float64Array:
    """Return scores of clients that train or have a single record, each from its own upload."""
    noise = kind(on="update", unit="client", multiplier=MULTIPLIER, clip=1e-3)
    parts, directions = trained()
    covered = federate([part if there else part[:1] for part, there in zip(parts, present, strict=True)])
    noisy = covered.ask(training_request(3, noise, **TRAINED))
    return np.array(
        [reply.weights @ direction / 1e-3 for reply, direction in zip(noisy, directions, strict=True)]
    )


SCORES = {"pairs": pair_scores, "clients": client_scores}


def audit(name: str, kind: type[GaussianNoise]) -> Audited:
    present = coins(CANARIES, 5)
    return audited_epsilon(SCORES[name](kind, present), present, 0.5, DELTA)


CLAIM = gaussian_epsilon(MULTIPLIER, DELTA)


class TestCanaries:
    @pytest.mark.parametrize(("name", "least"), [("pairs", 0.3), ("clients", 0.6)])
    def test_canary_audit_is_near_but_below_the_claim(self, name: str, least: float) -> None:
        assert least * CLAIM < audit(name, GaussianNoise).epsilon <= CLAIM

    @pytest.mark.slow
    def test_canary_audit_detects_half_the_noise(self) -> None:
        """For clients; tests/attacks/test_run_canaries.py has all releases of a run, in every run of the tests."""
        assert audit("clients", HalfTheNoise).epsilon > CLAIM

    def test_canary_audit_detects_a_wrong_sensitivity(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Pretend that a record is in only one pair."""
        monkeypatch.setattr(pairs, "pairs_moved", lambda field: 1)
        assert audit("pairs", GaussianNoise).epsilon > CLAIM


SMALL: dict[str, Any] = {"rounds": 3, "hidden": [8, 8], "bounds": [0, 8]}
RUNS: list[tuple[dict[str, Any], dict[str, Any], dict[str, int]]] = [
    ({"kind": "fedne"}, {"unit": "record"}, {"SecondMoments": 1, "Density": 3, "PairGradient": 3}),
    (
        {"kind": "fedne", "start": "random", "surrogate_every": 2},
        {"unit": "record", "per": "sum"},
        {"MeanAndLength": 1, "Density": 2, "PairGradient": 3},
    ),
    (
        {"kind": "fedavg-ne"},
        {"unit": "record", "relation": "replace-one"},
        {"MeanAndLength": 1, "PairGradient": 3},
    ),
    ({"kind": "fedne"}, {"unit": "client", "per": "sum"}, {"SecondMoments": 1, "Density": 3, "Change": 3}),
]
MORE_RUNS: list[tuple[dict[str, Any], dict[str, Any], dict[str, int]]] = [
    ({"kind": "fedne", "surrogate": "none"}, {"unit": "client"}, {"SecondMoments": 1, "Change": 3}),
    ({"kind": "fedprox-ne"}, {"unit": "client"}, {"MeanAndLength": 1, "Change": 3}),
]


class TestRuns:
    @pytest.mark.parametrize(
        ("method", "noise", "kinds"),
        [*RUNS, *(pytest.param(*more, marks=pytest.mark.slow) for more in MORE_RUNS)],
        ids=lambda value: "-".join(map(str, value.values())),
    )
    def test_all_releases_except_positions_add_up_to_the_claim(
        self, method: dict[str, Any], noise: dict[str, Any], kinds: dict[str, int], tmp_path: Path
    ) -> None:
        reported = {"on": "update", "epsilon": 2.0, "clip": 0.5, **noise}
        scenario = tiny_scenario(method=SMALL | method, privacy={"noise": reported, "strict": "sums"})
        folder = run(scenario, out=tmp_path / "run", report=False)
        privacy = json.loads((folder / "privacy.json").read_text())
        client = privacy["epsilon_by_adversary"]["client"]["accounted"]
        assert client == pytest.approx(2.0, rel=1e-6)  # one of three may collude
        if noise.get("per") != "sum":
            assert privacy["epsilon_accounted"] == pytest.approx(2.0, rel=1e-6)
        assert privacy["relation"] == noise.get("relation", "zero-out")
        assert privacy["unit"] == noise["unit"]
        bare = [each["kind"] for each in privacy["releases"] if not each["public"] and not each["releases"]]
        assert bare == ["Positions"]
        assert {each["kind"]: each["releases"] for each in privacy["releases"] if each["releases"]} == kinds
        rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
        assert [row["objective"] for row in rounds] == [None] * 3
        planned = plan_of_scenario(scenario).privacy
        assert planned is not None
        assert planned.accounted == pytest.approx(privacy["epsilon_accounted"], rel=1e-12)

    @pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
    @pytest.mark.parametrize("per", ["client", "sum"])
    @pytest.mark.parametrize(
        ("unit", "surrogate"), [("record", "field"), ("record", "none"), ("client", "field")]
    )
    def test_sigma_divides_the_budget_like_epsilon(
        self, unit: Any, surrogate: Any, per: Any, relation: Any
    ) -> None:
        """The mean and length get a twentieth, each density a tenth of an update, with unequal clients."""
        settings = FedNE(
            hidden=(4,), rounds=2, bounds=(-30, 30), start="random", surrogate=surrogate, neighbors=2
        )
        noise = GaussianNoise(on="update", sigma=1.0, clip=0.5, unit=unit, per=per, relation=relation)
        federation = federate(blobs((20, 9, 0, 12)), coverage=Coverage(noise))
        METHODS["fedne"].serve(federation, settings)
        spent = {
            charge.kind: count / charge.multiplier**2 for charge, count in federation.ledger.charges.items()
        }
        update = "PairGradient" if unit == "record" else "Change"
        density = {"Density": 0.95 * 0.1 / 1.1} if surrogate == "field" else {}
        expected = {"MeanAndLength": 0.05, update: 0.95 / (1.1 if density else 1.0), **density}
        total = sum(spent.values())
        assert {kind: each / total for kind, each in spent.items()} == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("unit", ["record", "client"])
    @pytest.mark.parametrize(
        ("more", "before"), [({}, {"SecondMoments": 0.25}), ({"start": "random"}, {"MeanAndLength": 0.05})]
    )
    def test_epsilon_is_divided_as_documented(
        self, unit: Any, more: dict[str, Any], before: dict[str, float]
    ) -> None:
        """Axes get a quarter or a mean a twentieth; a density costs a tenth of its round's update."""
        settings = FedNE(hidden=(8,), rounds=5, bounds=(-30, 30), surrogate_every=2, **more)
        noise = GaussianNoise(on="update", unit=unit, epsilon=3.0, clip=0.5)
        noise = noise.calibrated(settings.releases(noise), DELTA)
        federation = federate(blobs(), coverage=Coverage(noise))
        METHODS["fedne"].serve(federation, settings)
        spent: dict[str, float] = {}
        for charge, count in federation.ledger.charges.items():
            spent[charge.kind] = spent.get(charge.kind, 0.0) + count / charge.multiplier**2
        total, update = sum(spent.values()), spent.pop("PairGradient" if unit == "record" else "Change")
        assert epsilon_of(federation.ledger.charges, DELTA) == pytest.approx(3.0, rel=1e-5)
        (density,) = [spent.pop("Density")]
        assert density / 3 == pytest.approx(0.1 * update / 5, rel=1e-5)  # renewed in 3 of 5 rounds
        assert {kind: each / total for kind, each in spent.items()} == pytest.approx(before, rel=1e-5)

    def test_participation_gives_no_amplification(self) -> None:
        """The seed reveals the participants, so there is no amplification by sampling."""
        settings = FedAvgNE(hidden=(4,), rounds=4, bounds=(-30, 30))
        noise = by_client(epsilon=2.0).calibrated(settings.releases(by_client(epsilon=2.0)), DELTA)
        federation = federate(blobs((9, 8, 7, 6)), coverage=Coverage(noise), participation=0.5)
        METHODS["fedavg-ne"].serve(federation, settings)
        assert epsilon_of(federation.ledger.charges, DELTA) == pytest.approx(2.0, rel=1e-6)

    @pytest.mark.parametrize("unit", ["record", pytest.param("client", marks=pytest.mark.slow)])
    def test_any_packing_gives_the_same_bits(self, unit: str) -> None:
        places = [served(unit, packing=packing)[1] for packing in ([6], [1, 2, 3], [1] * 6)]
        assert len({each.tobytes() for each in places}) == 1

    @pytest.mark.parametrize("unit", ["record", "client"])
    def test_resumed_run_has_the_same_bits_and_charges(self, unit: str) -> None:
        taken: list[bytes] = []
        released: list[str] = []

        def listen(event: Event) -> None:
            if isinstance(event, CheckpointTaken):
                taken.append(event.content)
            if isinstance(event, Charged):
                released.append(event.line)

        whole, places = served(unit, journal=Journal(listen), checkpoint_every=1)
        checkpoint = Checkpoint.from_bytes(taken[1])
        again, resumed = served(unit, resume=checkpoint, released=released, checkpoint_every=1)
        assert resumed.tobytes() == places.tobytes()
        assert again.ledger.charges == whole.ledger.charges
        assert sum(whole.ledger.charges.values()) == 3 + 3 + 1


def served(unit: Any, **how: Any) -> tuple[Federation, Float64Array]:
    settings = FedNE(hidden=(8, 8), rounds=3, bounds=(-30, 30), batch=32, neighbors=4)
    noise = GaussianNoise(on="update", unit=unit, multiplier=2.0, clip=0.5, per="sum")
    federation = federate(blobs(), coverage=Coverage(noise), **how)
    return federation, METHODS["fedne"].serve(federation, settings).embedding


def test_densities_are_charged_in_the_rounds_that_renew_them() -> None:
    for rounds in (1, 2, 5, 9):
        for every in (1, 2, 3, 7):
            for part in (0.0, 0.4, 0.9, 1.0):
                method = FedNE(rounds=rounds, surrogate_every=every, surrogate_from=part)
                due = sum(method.surrogates_due(round) for round in range(1, rounds + 1))
                assert method.field_rounds == due


class TestUnits:
    def test_charges_per_record_and_per_client_cannot_be_added(self) -> None:
        mixed = {
            Charge(kind="Step", deviation=1.0, sensitivity=1.0): 1,
            Charge(kind="Change", deviation=1.0, sensitivity=1.0, unit="client"): 1,
        }
        for adds in (composed_multiplier, dp_event, lambda charges: epsilon_of(charges, DELTA)):
            with pytest.raises(UnitError, match=r"Step .charged per record. and Change .charged per client"):
                adds(mixed)

    def test_report_names_the_protected_unit(self, tmp_path: Path) -> None:
        from raydr.report.wording import cost
        from raydr.runfolder.reading import read_run

        noise = {"on": "update", "epsilon": 2.0, "clip": 0.5, "unit": "client"}
        folder = tiny_run(tmp_path / "run", method=SMALL | {"kind": "fedavg-ne"}, privacy__noise=noise)
        assert "whether a client takes part or adds zero to every sum (zero-out)" in cost(read_run(folder))


@pytest.mark.parametrize(
    ("method", "privacy", "words"),
    [
        ({"bounds": None}, {}, r"set method\.bounds"),
        ({"control_variates": True}, {}, "leave control_variates out"),
        ({"surrogate": "mlp"}, {}, "what a surrogate network learns has no bound"),
        ({"prototypes": 10}, {}, r"leave method\.prototypes out"),
        ({"weight_decay": 0.1}, {}, r"leave method\.weight_decay out"),
        ({"server_optimizer": "fedadam"}, {}, "the server takes Adam's steps"),
        ({"kind": "fedprox-ne"}, {}, "so no client training can be held back"),
        ({"bounds": [8, 0]}, {}, "Give the lower bound first"),
        ({}, {"noise": {"on": "update", "epsilon": 1}}, "needs a clip norm"),
        ({}, {"noise": {"on": "update", "level": 1, "clip": 1}}, "level is not available for noise on update"),
        ({}, {"noise": {"on": "data", "level": 1, "unit": "client"}}, "available for noise on update only"),
        ({}, {"strict": True}, "sends the position of every record on the map without noise"),
        ({}, {"isometry_key": True}, r"method\.bounds limit the original features"),
        ({}, {"noise": {"on": "surrogate", "epsilon": 1}}, "noise on surrogates alone cannot claim an epsilon"),
        ({"surrogate": "none"}, {"noise": {"on": "surrogate", "level": 1}}, "clients never upload that"),
        ({"kind": "fedavg-ne"}, {"noise": {"on": "surrogate", "level": 1}}, "clients never upload that"),
        ({"surrogates_left_out": 0.5}, {}, "surrogates_left_out applies to surrogate: mlp"),
    ],
)  # fmt: skip
def test_settings_without_a_privacy_bound_are_refused(
    method: dict[str, Any], privacy: dict[str, Any], words: str
) -> None:
    noise = {"noise": {"on": "update", "epsilon": 1.0, "clip": 1.0}}
    kind = method.get("kind", "fedne")
    with pytest.raises(ScenarioError, match=words):
        tiny_scenario(method={"kind": kind, **SMALL, **method}, privacy=noise | privacy)


class TestSurrogates:
    """P2, section 6: Gaussian noise on the surrogates' parameters, with some left out."""

    @pytest.mark.parametrize("surrogate", ["mlp", "field"])
    def test_surrogate_noise_has_its_level_and_no_claim(self, surrogate: str) -> None:
        settings = FedNE(hidden=(8, 8), rounds=2, surrogate=surrogate, surrogate_from=0.0)  # type: ignore[arg-type]
        noise = GaussianNoise(on="surrogate", level=0.5)
        maps = []
        for coverage in (None, Coverage(noise)):
            federation = federate(blobs((30, 20)), coverage=coverage)
            maps.append(METHODS["fedne"].serve(federation, settings).embedding)
            kind = "Surrogate" if surrogate == "mlp" else "Density"
            (entry,) = [entry for entry in federation.ledger.entries.values() if entry.kind == kind]
            assert entry.protection == (coverage.mechanism if coverage else None)
            assert not federation.ledger.charges
        assert not np.array_equal(*maps)

    def test_noise_on_networks_has_the_requested_level(self) -> None:
        from raydr.methods.fedne.surrogates import SurrogateRequest

        weights = initial_weights(Architecture(5, (8,)), np.random.default_rng(0))
        start = np.random.default_rng(1).normal(size=(1, PARAMETERS)).astype(np.float32)
        request = SurrogateRequest(
            weights=weights, hidden=(8,), surrogates=start, points="grid", step=0.5, negatives=5
        )
        clean, noisy = (
            federate(blobs((30,))).ask(replace(request, mechanism=noise))[0].parameters.astype(np.float64)
            for noise in (None, GaussianNoise(on="surrogate", level=0.5))
        )
        found = float(np.sqrt(((noisy - clean) ** 2).mean() / (clean**2).mean()))
        assert found == pytest.approx(0.5, rel=5.0 / np.sqrt(2 * PARAMETERS))

    @pytest.mark.parametrize(("left_out", "kept"), [(0.5, 2), (0.25, 3), (0.9, 1)])
    def test_leaving_surrogates_out_reweights_the_others(self, left_out: float, kept: int) -> None:
        from raydr.methods.fedne.clients import _some

        shares = np.array([0.1, 0.0, 0.4, 0.3, 0.2], np.float32)
        drawn = [
            _some(Client(index=1, rows=np.zeros((1, 1)), seed=seed), shares, left_out) for seed in range(200)
        ]
        assert {int((each > 0).sum()) for each in drawn} == {kept}
        assert all(each.sum() == pytest.approx(1.0, rel=1e-6) and each[1] == 0.0 for each in drawn)
        assert all(sum(each[index] > 0 for each in drawn) > 0 for index in (0, 2, 3, 4))

    def test_left_out_surrogates_change_each_round(self) -> None:
        surrogates = np.random.default_rng(0).normal(size=(4, PARAMETERS)).astype(np.float32)
        request = replace(
            training_request(3, None, left_out=0.5),
            surrogates=surrogates,
            shares=np.full(4, 0.25, np.float32),
        )
        at, values = torch.zeros(1, 1, 2), set()
        for round in range(20):
            repulsed = objective_of(
                [Client(index=0, rows=np.zeros((2, 3)), seed=0, round=round)], [request]
            ).surrogate
            assert repulsed is not None
            values.add(round_of(repulsed(at)))
        assert len(values) == 3  # pairs of three others


def round_of(value: torch.Tensor) -> float:
    return round(float(value), 4)


def test_unpublished_map_costs_the_epsilon_of_its_encoder(tmp_path: Path) -> None:
    """No message is about a record, so the whole run has a claim; only publishing the map would end it."""
    method = {"kind": "fedne", "rounds": 2, "hidden": [8], "bounds": [0.0, 8.0]}
    noise = {"on": "update", "unit": "record", "epsilon": 8.0, "clip": 1.0, "per": "sum"}
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(32))
    secret.chmod(0o600)
    privacy = {"noise": noise, "strict": True, "secure_aggregation": True, "secret": str(secret)}
    kept = read_run(tiny_run(tmp_path / "kept", method=method | {"publish": "local"}, privacy=privacy))
    assert kept.privacy.epsilon == pytest.approx(8.0, rel=1e-6)
    assert kept.privacy.infinite == ()
    places = [
        entry for entry in kept.ledger if entry.granularity == "per-record" and entry.direction != "down"
    ]
    assert {entry.direction for entry in places} == {"simulation-only"}
    with pytest.raises(ScenarioError, match="the position of every record on the map"):
        tiny_scenario(method=method, privacy=privacy)
