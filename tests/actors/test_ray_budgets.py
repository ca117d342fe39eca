"""Budgets of sites whose hosts are actors: refused beyond, and charged if the host dies before it sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from requests_for_tests import DiesAfterCharge
from tiny import tiny

import raydr
from raydr.errors import RunError
from raydr.front.site_budgets import spending_of
from raydr.privacy.policy import PolicyError
from raydr.scenarios.running import federation_plan

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]
ROUND = 3


def scenario(policy: Path, **more: Any) -> dict[str, Any]:
    """Return a private map of three sites on actors; each site pays all of its noise."""
    method = {"kind": "private-map", "epsilon": 2.0, "bounds": [-4.0, 8.0], "per": "client", "iterations": 5}
    return (
        tiny()
        | {
            "data": {"source": "iris", "scale": "none"},
            "method": method | {"early_iterations": 5, "placing_iterations": 5},
            "metrics": [],
            "clients": {"count": 3, "policy": str(policy)},
            "runtime": {"federation": "ray", "actors": 3, "retries": 0, "checkpoint_every": 0},
        }
        | more
    )


def policy_of(folder: Path, limit: float) -> Path:
    path = folder / "site.yaml"
    path.write_text(f"releases: releases-{{site}}.sqlite\nepsilon_in_all: {limit}\n")
    return path


def kinds_charged(policy: Path) -> list[list[str]]:
    return [[stored.release.kind for stored in site.releases] for site in spending_of(str(policy))]


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_second_run_beyond_the_budget_is_refused_before_anything_leaves(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, 2.5)
    raydr.run(scenario(policy), out=tmp_path / "first")
    before = kinds_charged(policy)
    assert all(len(site) == 7 for site in before)
    with pytest.raises(PolicyError, match=r"'epsilon_in_all: 2\.5'.*the declared total of this one"):
        raydr.run(scenario(policy, seed=1), out=tmp_path / "second")
    assert kinds_charged(policy) == before


@pytest.mark.usefixtures("cluster")
def test_a_crash_between_charge_and_message_charges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of(tmp_path, 2.1)
    with monkeypatch.context() as patch:
        patch.setattr(federation_plan, "FaultPlan", lambda **_: DiesAfterCharge(round=ROUND))
        with pytest.raises(RunError):
            raydr.run(scenario(policy), out=tmp_path / "crashed")
    before = kinds_charged(policy)
    assert before[0].count("CellSums") == ROUND, "the reply of the last round was charged and never sent"
    with pytest.raises(PolicyError, match=r"'epsilon_in_all: 2\.1'.*the declared total of this one"):
        raydr.run(scenario(policy, seed=1), out=tmp_path / "next")
    assert kinds_charged(policy) == before
