"""Neighbouring relations: declared sensitivities, compared with a search over adversarial records."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from fedne_tables import FIELD, NO_FIELD, asked_of_pairs
from inline_federations import federate
from tiny import tiny_scenario

from raydr.arrays import Float64Array
from raydr.errors import ScenarioError
from raydr.federation import Client, Reply, Request
from raydr.methods.fedne.dp_costs import MeanRequest
from raydr.methods.fedne.encoder import Architecture, initial_weights
from raydr.methods.fedne.pairs import summed_gradient
from raydr.methods.fedne.surrogates import DensityRequest
from raydr.methods.landmarks.features import fourier_features
from raydr.methods.landmarks.learning import StepRequest
from raydr.methods.landmarks.mean_embedding import MeanEmbeddingRequest
from raydr.methods.private_map.messages import (
    CellSumsRequest,
    FirstMomentsRequest,
    Frame,
    ScatterRequest,
    View,
)
from raydr.privacy import accounting
from raydr.privacy.accounting import (
    Budget,
    Charge,
    UnitError,
    accountant_epsilons,
    epsilon_of,
    gaussian_epsilon,
)
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.ledger import Ledger
from raydr.privacy.statement import statement
from raydr.report import write_report
from raydr.scenarios.runner import run
from raydr.statistics.second_moments import SecondMomentsRequest

WIDTH, COUNT = 4, 3
SIGHT = View(0.0, 1.0, None, None, WIDTH)
FRAME = Frame(SIGHT, np.zeros(WIDTH), np.eye(WIDTH)[:, :2])
BY_CLIENT = GaussianNoise(on="update", multiplier=1.0, clip=1.0, unit="client")


def embedding() -> MeanEmbeddingRequest:
    """Frequencies are low, so that moving a record flips the sign of all its waves."""
    waves = fourier_features(3, 2, 0.5, np.zeros(WIDTH))
    return MeanEmbeddingRequest(
        seed=3, count=2, gamma=0.5, centre=np.zeros(WIDTH), axes=None, witnesses=waves.frequencies[-1, -4:]
    )


def density() -> DensityRequest:
    weights = initial_weights(Architecture(WIDTH, (4,)), np.random.default_rng(0))
    return DensityRequest(weights=30.0 * weights, hidden=(4,), reach=2.0, nodes=5, votes=False)


# Each request, whether the reply is a mean over rows, and how much of both sensitivities the worst pair reaches here.
REQUESTS: dict[str, tuple[Request[Any], bool, tuple[float, float]]] = {
    "first moments": (FirstMomentsRequest(SIGHT, COUNT), False, (0.99, 0.99)),
    "scatter": (ScatterRequest(SIGHT, np.zeros(WIDTH), 1.0, COUNT), False, (0.99, 0.99)),
    "cells": (CellSumsRequest(FRAME, np.array([[0.0, 0.0], [50.0, 0.0]]), 0.5, COUNT), False, (0.99, 0.99)),
    "second moments": (SecondMomentsRequest(np.zeros(WIDTH), 1.0), True, (0.99, 0.9)),
    "mean and length": (MeanRequest(np.zeros(WIDTH), 1.0), True, (0.99, 0.99)),
    "density": (density(), True, (0.9, 0.9)),
    "gradient": (
        StepRequest(
            landmarks=np.zeros((2, WIDTH)),
            gamma=0.5,
            step=1.0,
            local_steps=1,
            share="gradient",
            objective=False,
        ),
        True,
        (0.9, 0.9),
    ),
    "embedding": (embedding(), True, (0.99, 0.9)),
}


def records() -> list[Float64Array]:
    """Return extreme records: on axes, at opposite ends, at 120 degrees, short, at the centre and far out."""
    axes = [sign * size * axis for axis in np.eye(WIDTH) for sign in (1, -1) for size in (0.3, 1.0, 1e3)]
    turned = [np.array([math.cos(turn), math.sin(turn), 0.0, 0.0]) for turn in np.arange(12) * math.pi / 6]
    rng = np.random.default_rng(5)
    some = list(rng.normal(size=(12, WIDTH)) * 10.0 ** rng.uniform(-1, 2, (12, 1)))
    return [np.zeros(WIDTH), np.full(WIDTH, 1e6), np.full(WIDTH, 0.5), *axes, *turned, *some]


def released(request: Request[Any], rows: Float64Array) -> Float64Array:
    """Return all values that a client's host would cover."""
    reply: Reply = type(request).client_part(Client(index=0, rows=rows, seed=0), request)
    return np.concatenate([np.ravel(getattr(reply, name)) for name in type(reply).covers])


def contribution(
    request: Request[Any], mean: bool, others: Float64Array
) -> Callable[[Float64Array | None], Any]:
    """Return the release with one more record or with nothing in its place; the row count is the same."""
    count = len(others) + 1

    def of(record: Float64Array | None) -> Float64Array:
        if record is None:
            return released(request, others) * ((count - 1) / count if mean else 1.0)
        return released(request, np.concatenate([record[None], others]))

    return of


@pytest.mark.parametrize("name", REQUESTS)
def test_declared_sensitivity_is_tight_under_both_relations(name: str) -> None:
    request, mean, reached = REQUESTS[name]
    of = contribution(request, mean, np.random.default_rng(2).normal(size=(COUNT - 1, WIDTH)))
    found = [of(record) for record in records()]
    zeroed = max(float(np.linalg.norm(one - of(None))) for one in found)
    replaced = max(float(np.linalg.norm(one - other)) for one in found for other in found)
    limits = request.sensitivity(COUNT), request.replace_sensitivity(COUNT)
    for moved, limit, part in zip((zeroed, replaced), limits, reached, strict=True):
        assert part * limit <= moved <= limit * (1.0 + 1e-9)


@pytest.mark.parametrize("field", [True, False])
def test_replaced_record_moves_pair_sums_at_most_as_declared(field: bool) -> None:
    request = asked_of_pairs(WIDTH, clip=0.01, field=FIELD if field else NO_FIELD)
    rng = np.random.default_rng(1)
    worst = 0.0
    for _ in range(60):
        rows = rng.normal(size=(8, WIDTH))
        repelled = None if field else rng.permutation(8)
        other = rows.copy()
        other[3] = rng.normal(size=WIDTH) * 10.0 ** rng.uniform(-1, 2)
        moved = summed_gradient(rows, request, repelled) - summed_gradient(other, request, repelled)
        worst = max(worst, float(np.linalg.norm(moved)))
    assert 1.5 * request.clip < worst <= request.replace_sensitivity(8) * 8


def test_client_contribution_is_bounded_under_both_relations() -> None:
    """The mean has the rows of one client, or of another client in its place."""
    rng = np.random.default_rng(4)
    for plain in (SecondMomentsRequest(np.zeros(WIDTH), 1.0), MeanRequest(np.zeros(WIDTH), 1.0), density()):
        request = replace(plain, mechanism=BY_CLIENT)  # type: ignore[type-var]
        found = [released(request, record[None]) for record in records()]
        found += [released(request, rng.normal(size=(5, WIDTH))) for _ in range(10)]
        assert max(float(np.linalg.norm(one)) for one in found) <= request.sensitivity(9)
        replaced = max(float(np.linalg.norm(one - other)) for one in found for other in found)
        assert 0.85 * request.replace_sensitivity(9) <= replaced <= request.replace_sensitivity(9)


@pytest.mark.parametrize(("relation", "factor"), [("zero-out", 1.0), ("replace-one", math.sqrt(2.0))])
def test_noise_uses_the_sensitivity_of_its_relation(relation: Any, factor: float) -> None:
    noise = GaussianNoise(on="moments", multiplier=3.0, clip=1.0, relation=relation)
    request = FirstMomentsRequest(View(0.0, 1.0, None, None, 2000), 1, noise)
    federation = federate([np.zeros((1, 2000))])
    deviation = np.std(federation.sum(request).packed)
    assert deviation == pytest.approx(3.0 * math.sqrt(2.0) * factor, rel=0.08)
    (charge,) = federation.ledger.charges
    assert (charge.relation, charge.multiplier) == (relation, pytest.approx(3.0, rel=1e-6))


def charges(relation: Any) -> dict[Charge, int]:
    return {Charge(kind="a", deviation=3.0, sensitivity=1.0, relation=relation): 2}


def test_accountant_refuses_mechanisms_unsupported_by_the_relation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The releases are sampled, which no run uses today, under replace-one."""
    for relation in ("zero-out", "replace-one"):
        others = accountant_epsilons(charges(relation), 1e-5)
        assert min(others.values()) >= epsilon_of(charges(relation), 1e-5) * (1.0 - 1e-6)
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(3.0))
    monkeypatch.setattr(accounting, "dp_event", lambda charges: sampled)
    assert accountant_epsilons(charges("zero-out"), 1e-5)
    with pytest.raises(dp_accounting.UnsupportedEventError):
        accountant_epsilons(charges("replace-one"), 1e-5)


def test_costs_under_two_relations_cannot_be_added() -> None:
    with pytest.raises(UnitError, match=r"\(relation zero-out\) and .* \(relation replace-one\)"):
        epsilon_of(charges("zero-out") | charges("replace-one"), 1e-5)


def test_per_record_releases_default_to_replace_one() -> None:
    assert GaussianNoise(on="data", epsilon=1.0, clip=1.0).relation == "replace-one"
    assert GaussianNoise(on="data", epsilon=1.0, clip=1.0, relation="zero-out").relation == "zero-out"
    assert GaussianNoise(on="gradient", epsilon=1.0).relation == "zero-out"


DRAWN = {"early_iterations": 5, "iterations": 5, "placing_iterations": 5}


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_private_map_claims_the_requested_relation(relation: str, tmp_path: Path) -> None:
    method = {"kind": "private-map", "epsilon": 1.0, "bounds": [0, 8], "relation": relation, **DRAWN}
    folder = run(
        tiny_scenario(method=method, privacy={"secure_aggregation": True}), out=tmp_path / "run", report=False
    )
    reported = json.loads((folder / "privacy.json").read_text())
    assert reported["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert reported["relation"] == relation
    moved = {
        release["kind"]: release["sensitivity"] for release in reported["releases"] if release["releases"]
    }
    exact = {"zero-out": (math.sqrt(2), 1.0, math.sqrt(1.25)), "replace-one": (2.0, math.sqrt(2), 2.0)}[
        relation
    ]
    assert tuple(moved.values()) == pytest.approx(exact, rel=1e-6)
    assert f"({relation})" in write_report(folder).read_text(encoding="utf-8")


def ledger_of(unit: Any) -> Ledger:
    return Ledger(charges={Charge(kind="a", deviation=3.0, sensitivity=1.0, unit=unit): 1})


@pytest.mark.parametrize(
    ("delta", "unit", "warned"),
    [
        (1e-3, "record", 0),
        (2e-3, "record", 0),
        (2.1e-3, "record", 1),
        (0.05, "client", 0),
        (0.09, "client", 0),
    ],
)
def test_delta_above_one_over_records_is_a_warning(delta: float, unit: Any, warned: int) -> None:
    reported = statement(ledger_of(unit), Budget(delta), [200, 0, 300])
    assert len(reported.notices) == warned
    assert all("is more than 1 / 500 records" in notice for notice in reported.notices)
    assert all(notice.endswith("Set privacy.delta below 0.002.") for notice in reported.notices)


def test_delta_above_one_over_clients_is_a_warning_for_client_units() -> None:
    (notice,) = statement(ledger_of("client"), Budget(0.09), [9] * 20).notices
    assert "1 / 20 clients" in notice
    assert not statement(Ledger(), Budget(0.09), [9] * 20).notices  # nothing is claimed


def test_file_and_page_warn_of_a_large_delta(tmp_path: Path) -> None:
    scenario = tiny_scenario(privacy={"noise": {"on": "gradient", "epsilon": 1.0}, "delta": 0.09})
    folder = run(scenario, out=tmp_path / "run", report=False)
    (notice,) = json.loads((folder / "privacy.json").read_text())["notices"]
    assert notice.startswith("delta 0.09 is more than 1 / ")
    assert notice in write_report(folder).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("section", "content"),
    [
        ("privacy", {"delta": 0.5}),
        ("privacy", {"noise": {"on": "gradient", "epsilon": 1.0, "delta": 0.1}}),
        ("method", {"kind": "private-map", "epsilon": 1.0, "bounds": [0, 8], "delta": 0.5}),
    ],
)
def test_meaningless_delta_is_refused(section: str, content: dict[str, Any]) -> None:
    with pytest.raises(
        ScenarioError,
        match=rf"{section}\.?.*delta.* expected less than 0\.1, got .* Choose a value below 1 / rows",
    ):
        tiny_scenario(**{section: content})


def test_epsilon_1_under_zero_out_converts_to_replace_one() -> None:
    """For each sum alone, epsilon follows from the ratio of the two sensitivities."""
    one = accounting.gaussian_multiplier(1.0, 1e-5)
    reported = {}
    for name in ("first moments", "scatter", "cells"):
        request = REQUESTS[name][0]
        ratio = request.replace_sensitivity(1) / request.sensitivity(1)
        reported[name] = round(gaussian_epsilon(one / ratio, 1e-5), 2)
    assert reported == {"first moments": 1.47, "scatter": 1.47, "cells": 1.9}
