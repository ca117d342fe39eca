"""Epsilon for each adversary counts only noise without known or lost shares."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attacked import federation_seen
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_federations import federate
from scipy.stats import chi2
from tiny import tiny_scenario

from raydr.federation.accounts import Due, sharing_of
from raydr.federation.failures import FailurePolicy
from raydr.federation.secure import SecureSums
from raydr.front.terminal import print_plan
from raydr.methods.private_map.messages import FirstMoments, FirstMomentsRequest, View
from raydr.privacy.accounting import Budget, Charge, epsilon_of, gaussian_epsilon, gaussian_multiplier
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.shares import colluders_of, shares_of_whole, summed_deviation
from raydr.privacy.statement import statement
from raydr.report import write_report
from raydr.scenarios.planning.plan import plan_of_scenario
from raydr.scenarios.runner import run

DELTA = 1e-5
FEATURES = 400
WHOLE = gaussian_multiplier(1.0, DELTA)


def noise(**more: Any) -> GaussianNoise:
    return GaussianNoise(on="moments", multiplier=WHOLE, per="sum", clip=1.0, **more)


def request(clients: int, **more: Any) -> FirstMomentsRequest:
    """Rows are at the centre with moments 0, so uploads are noise alone."""
    return FirstMomentsRequest(View(0.0, 1.0, None, None, FEATURES), clients, noise(**more))


@pytest.mark.parametrize(
    ("clients", "colluding", "known"), [(3, 0.2, 1), (10, 0.2, 2), (10, 0.7, 7), (2, 0.0, 1)]
)
def test_claim_counts_only_noise_unknown_to_colluders(clients: int, colluding: float, known: int) -> None:
    """Each client's upload is its share of noise; the chi-squared test fails once in a million seeds."""
    rows = [np.zeros((1, FEATURES))] * clients
    federation, transcript = federation_seen(rows, budget=Budget(colluding=colluding))
    asked = request(clients)
    federation.sum(asked)
    shares = [reply.packed for seen, reply in transcript.of(FirstMoments) if seen.client is not None]
    assert len(shares) == clients
    left = np.sum(shares[known:], axis=0)
    statistic = float(((left / (WHOLE * asked.sensitivity(1))) ** 2).sum())
    low, high = chi2.ppf([5e-7, 1 - 5e-7], left.size)
    assert low < statistic < high


@pytest.mark.parametrize(("clients", "colluding", "known"), [(3, 0.2, 1), (10, 0.2, 2), (10, 0.7, 7)])
def test_epsilon_of_an_adversary_counts_noise_it_cannot_subtract(
    clients: int, colluding: float, known: int
) -> None:
    budget = Budget(colluding=colluding)
    federation = federate([np.zeros((2, FEATURES))] * clients, budget=budget, secure=SecureSums(colluding))
    federation.sum(request(clients))
    reported = statement(federation.ledger, budget)
    left = {"server": clients, "client": clients - 1, "colluders": clients - known, "outsider": clients}
    for name, against in reported.epsilon_by_adversary.items():
        exact = gaussian_epsilon(WHOLE * math.sqrt(left[name] / (clients - known)), DELTA)
        assert against.accounted == against.epsilon == pytest.approx(exact, rel=1e-6)
    assert (
        reported.epsilon == reported.epsilon_by_adversary["colluders"].epsilon == pytest.approx(1.0, rel=1e-6)
    )


def test_server_sees_one_share_without_secure_aggregation() -> None:
    federation = federate([np.zeros((2, FEATURES))] * 10)
    federation.sum(request(10))
    reported = statement(federation.ledger, Budget()).epsilon_by_adversary
    upload = gaussian_epsilon(WHOLE / math.sqrt(8), DELTA)
    assert reported["server"].accounted == reported["colluders"].accounted == pytest.approx(upload, rel=1e-6)
    assert reported["client"].accounted == pytest.approx(
        gaussian_epsilon(WHOLE * math.sqrt(9 / 8), DELTA), rel=1e-6
    )
    assert reported["outsider"].accounted < reported["client"].accounted
    assert reported["server"].knows == "each client's upload"


def test_colluding_share_is_an_exact_decimal() -> None:
    assert [colluders_of(30, 0.1), colluders_of(10, 0.3), colluders_of(4, 0.2), colluders_of(9, 0.0)] == [
        3,
        3,
        1,
        1,
    ]
    shares = [shares_of_whole(*each) for each in ((10, 0.2), (10, 0.7), (1, 0.2), (10, 0.2, 3), (4, 0.2, 4))]
    assert shares == [8, 3, 1, 5, 1]
    assert summed_deviation(False, 9, 0.2) == 3.0
    assert summed_deviation(True, 9, 0.12) == math.sqrt(9 / 8)


@given(st.integers(1, 60), st.integers(0, 19), st.integers(1, 20), st.integers(0, 59), st.booleans())
@settings(max_examples=200)
def test_dropouts_within_quorum_cost_at_most_the_claim(
    clients: int, colluding: int, quorum: int, lost: int, secure: bool
) -> None:
    """The fewest allowed replies cost exactly the claim."""
    policy = FailurePolicy(quorum=quorum / 20)
    most = policy.most_lost(clients)
    sharing = sharing_of(request(clients), dict.fromkeys(range(clients), 5), "clients", colluding / 20, most)
    assert sharing is not None
    due = Due(Charge(kind="K", deviation=WHOLE, sensitivity=1.0), sharing, WHOLE, secure=True)
    answered = max(1, clients - min(lost, most))
    charge = due.if_answered(answered)
    assert charge is not None
    assert (
        max(epsilon_of({charge: 1}, DELTA, who) for who in ("server", "client", "colluders", "outsider"))
        <= 1.0 + 1e-9
    )
    known = max(1, int(Fraction(colluding, 20) * clients))
    worst = due.if_answered(clients - most)
    if clients - most - known >= 1:
        assert worst is not None
        assert worst.multiplier == pytest.approx(WHOLE, rel=1e-12)


PRIVATE = {
    "method": {
        "kind": "private-map", "epsilon": 1.0, "bounds": [0, 8],
        "early_iterations": 5, "iterations": 5, "placing_iterations": 5,
    },
    "clients__count": 4,
    "privacy": {"secure_aggregation": True, "strict": True, "epsilon_max": 1.0},
}  # fmt: skip


def test_file_page_and_plan_show_epsilon_by_adversary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tiny_scenario(**PRIVATE)
    folder = run(scenario, out=tmp_path / "run", report=False)
    reported = json.loads((folder / "privacy.json").read_text())
    assert (
        reported["epsilon"]
        == reported["epsilon_by_adversary"]["colluders"]["epsilon"]
        == pytest.approx(1.0, rel=1e-6)
    )
    assert reported["epsilon_by_adversary"]["server"]["epsilon"] == pytest.approx(
        gaussian_epsilon(WHOLE * math.sqrt(4 / 3), DELTA), rel=1e-6
    )
    page = write_report(folder).read_text(encoding="utf-8")
    (table,) = [part for part in page.split("<table") if 'id="adversaries"' in part]
    for words in (
        "one curious client",
        "the server with colluding clients",
        "0.2 of the clients in each sum",
    ):
        assert words in table
    plan = plan_of_scenario(scenario)
    assert plan.privacy is not None
    planned = {name: against.accounted for name, against in plan.privacy.by_adversary.items()}
    for name, against in reported["epsilon_by_adversary"].items():
        assert planned[name] == pytest.approx(against["accounted"], rel=1e-8)
    print_plan(plan)
    message = " ".join(capsys.readouterr().out.split())
    assert "epsilon by adversary: the server 0.8" in message
    assert "the server with colluding clients 1" in message


def test_run_without_epsilon_has_none_for_any_adversary(tmp_path: Path) -> None:
    scenario = tiny_scenario(privacy__noise={"on": "gradient", "epsilon": 1.0, "per": "sum"})
    reported = json.loads((run(scenario, out=tmp_path / "run", report=False) / "privacy.json").read_text())
    assert reported["infinite"]
    assert {against["epsilon"] for against in reported["epsilon_by_adversary"].values()} == {None}
    assert all(against["accounted"] > 0.5 for against in reported["epsilon_by_adversary"].values())
