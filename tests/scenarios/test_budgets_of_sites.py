"""Budgets of sites over whole runs: charged once, composed, refused beyond, and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import tiny

import raydr
from raydr.errors import ScenarioError
from raydr.front.cli import status
from raydr.front.site_budgets import SiteSpending, spending_of
from raydr.privacy.policy import PolicyError
from raydr.privacy.policy_file import read_policy
from raydr.privacy.site_budget import squares_of
from raydr.runfolder import read_run
from raydr.scenarios.running import simulation
from raydr.scenarios.running.declared_cost import declared_cost

PRIVATE: dict[str, Any] = {
    "kind": "private-map",
    "epsilon": 2.0,
    "bounds": [-4.0, 8.0],
    "per": "client",
    "iterations": 5,
    "early_iterations": 5,
    "placing_iterations": 5,
}
SITES = 3


def scenario(policy: Path, **more: Any) -> dict[str, Any]:
    """Return a private map whose sites all apply a policy; its noise is per client, so each site pays all of it."""
    content = tiny() | {"data": {"source": "iris", "scale": "none"}, "method": PRIVATE, "metrics": []}
    content["clients"] = {"count": SITES, "policy": str(policy)}
    return content | more


def policy_of(folder: Path, text: str) -> Path:
    path = folder / "site.yaml"
    path.write_text(f"releases: releases-{{site}}.sqlite\n{text}")
    return path


def spent(policy: Path) -> list[SiteSpending]:
    return spending_of(str(policy))


def test_runs_of_a_site_compose(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "epsilon_in_all: 5\n")
    for seed in (0, 1):
        raydr.run(scenario(policy, seed=seed), out=tmp_path / f"run-{seed}")
    sites = spent(policy)
    assert [site.budget.site for site in sites] == ["client-0", "client-1", "client-2"]
    runs = list(sites[0].runs())
    of_run = read_run(tmp_path / "run-0").privacy
    assert of_run.epsilon == pytest.approx(runs[0].epsilon, rel=1e-6), "the ledger of the run says the same"
    assert len(runs) == 2
    assert sites[0].spent == pytest.approx(runs[1].so_far)
    assert runs[0].epsilon < runs[1].so_far < 2 * runs[0].epsilon
    kinds = [stored.release.kind for stored in sites[0].releases]
    assert set(kinds) == {"FirstMoments", "Scatter", "CellSums"}
    assert kinds.count("CellSums") == 10


def test_a_run_beyond_the_budget_is_refused_before_anything_leaves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = policy_of(tmp_path, "epsilon_in_all: 2.5\n")
    raydr.run(scenario(policy), out=tmp_path / "first")
    before = [site.spent for site in spent(policy)]
    again = scenario(policy, seed=1)
    why = r"rule 'epsilon_in_all: 2\.5'.*not allow this run.*so far cost epsilon .*declared total of this one 2\.[5-9]"
    with pytest.raises(PolicyError, match=why):
        raydr.run(again, out=tmp_path / "second")
    assert [site.spent for site in spent(policy)] == before
    (tmp_path / "again.yaml").write_text(json.dumps(again))
    assert status(["plan", str(tmp_path / "again.yaml")]) == 0
    said = capsys.readouterr()
    assert "epsilon_in_all: 2.5" in said.out + said.err
    assert "its runs so far cost epsilon" in said.out + said.err


@pytest.mark.parametrize("declared", [(), ((0.01, 0.0),) * SITES], ids=["nothing", "too little"])
def test_a_server_that_declares_less_is_stopped_by_the_first_release_beyond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: tuple[tuple[float, float], ...]
) -> None:
    policy = policy_of(tmp_path, "epsilon_in_all: 2.5\n")
    raydr.run(scenario(policy), out=tmp_path / "first")
    before = [site.spent for site in spent(policy)]
    monkeypatch.setattr(simulation, "declared_cost", lambda *_: declared)
    why = r"rule 'epsilon_in_all: 2\.5'.*so far cost epsilon .*and with this one 2\.[5-9]"
    with pytest.raises(PolicyError, match=why):
        raydr.run(scenario(policy, seed=1), out=tmp_path / "second")
    after = [site.spent for site in spent(policy)]
    assert before[0] < after[0] <= 2.5, "what left before the refusal is charged"


@pytest.mark.parametrize("survey", [False, True])
@pytest.mark.parametrize("per", ["client", "sum"])
def test_the_declared_total_is_what_the_run_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survey: bool, per: str
) -> None:
    """Also with a noisy survey, whose second release depends on what the first one found."""
    policy = policy_of(tmp_path, "epsilon_in_all: 9\n")
    content = scenario(policy) | {"method": PRIVATE | {"per": per}}
    if per == "sum":
        content["privacy"] = {"secure_aggregation": True}
    if survey:
        del content["method"]["bounds"]
        content["data"] = {"path": str(numbers(tmp_path / "numbers.csv"))}
    declared: list[tuple[tuple[float, float], ...]] = []

    def noted(*arguments: Any) -> tuple[tuple[float, float], ...]:
        declared.append(declared_cost(*arguments))
        return declared[-1]

    monkeypatch.setattr(simulation, "declared_cost", noted)
    raydr.run(content, out=tmp_path / "run")
    assert len(declared[0]) == SITES
    for site, cost in zip(spent(policy), declared[0], strict=True):
        charged = squares_of(stored.release for stored in site.releases)
        assert sum(cost) == pytest.approx(sum(charged.values()), rel=1e-6)


def numbers(path: Path) -> Path:
    random = np.random.default_rng(2)
    rows = [f"{a:.3f},{b:.3f},{c:.3f}" for a, b, c in random.normal(40.0, 9.0, (1500, 3))]
    path.write_text("\n".join(["x,y,z", *rows]) + "\n")
    return path


def test_a_repeated_run_fits_although_its_total_does_not_fit_twice(tmp_path: Path) -> None:
    """With a secret file, the same run sends the same bytes, which cost nothing more."""
    policy = policy_of(tmp_path, "epsilon_in_all: 2.5\n")
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(range(64)))
    secret.chmod(0o600)
    content = scenario(policy, privacy={"secret": str(secret)})
    for name in ("first", "second"):
        raydr.run(content, out=tmp_path / name)
    raydr.audit(tmp_path / "first", ["canary"], public_rows=30)
    with pytest.raises(PolicyError, match="declared total"):
        raydr.run(content | {"seed": 5}, out=tmp_path / "third")


def test_a_plan_allows_what_fits_and_charges_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = policy_of(tmp_path, "epsilon_in_all: 5\n")
    (tmp_path / "run.yaml").write_text(json.dumps(scenario(policy)))
    assert status(["plan", str(tmp_path / "run.yaml")]) == 0
    said = capsys.readouterr()
    assert "policy open, changed: yes" in said.out + said.err
    assert not list(tmp_path.glob("*.sqlite"))


def test_a_repeated_run_and_its_audit_cost_nothing_again(tmp_path: Path) -> None:
    """With a secret file, the same run sends the same bytes; an audit repeats the run bit for bit."""
    policy = policy_of(tmp_path, "")
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(range(64)))
    secret.chmod(0o600)
    content = scenario(policy, privacy={"secret": str(secret)})
    raydr.run(content, out=tmp_path / "first")
    before = [len(site.releases) for site in spent(policy)]
    assert before == [7, 7, 7]
    raydr.run(content, out=tmp_path / "second")
    raydr.audit(tmp_path / "first", ["membership", "canary"], public_rows=30)
    assert [len(site.releases) for site in spent(policy)] == before
    raydr.run(content | {"seed": 5}, out=tmp_path / "third")
    assert [len(site.releases) for site in spent(policy)] == [14, 14, 14]


def test_noise_on_records_is_one_release_of_a_run(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "")
    noise = {"kind": "gaussian-noise", "on": "data", "multiplier": 5.0, "clip": 4.0}
    raydr.run(
        tiny()
        | {
            "data": {"source": "iris", "scale": "none"},
            "privacy": {"noise": noise},
            "metrics": [],
            "clients": {"count": SITES, "policy": str(policy)},
        },
        out=tmp_path / "run",
    )
    releases = [stored.release for stored in spent(policy)[0].releases]
    assert [release.kind for release in releases if release.deviation] == ["records"]


def test_a_run_without_noise_is_recorded_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = policy_of(tmp_path, "")
    raydr.run(tiny() | {"clients": {"count": 2, "policy": str(policy)}, "metrics": []}, out=tmp_path / "run")
    capsys.readouterr()
    assert status(["budget", str(policy), "--json", str(tmp_path / "all.json")]) == 0
    said = capsys.readouterr().out
    assert "cost no epsilon, because a release has no guarantee" in said
    assert "All sites together cost no epsilon" in said
    content = json.loads((tmp_path / "all.json").read_text())
    assert [site["site"] for site in content] == ["client-0", "client-1"]
    assert content[0]["epsilon"] is None
    assert content[0]["releases"][0]["deviation"] == 0.0


def test_a_limited_site_sends_nothing_without_noise(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "epsilon_in_all: 100\n")
    why = r"rule 'epsilon_in_all: 100\.0'.*no noise with a guarantee covers it"
    with pytest.raises(PolicyError, match=why):
        raydr.run(tiny() | {"clients": {"count": 2, "policy": str(policy)}}, out=tmp_path / "run")
    assert not any(site.releases for site in spent(policy))


def test_budget_shows_runs_and_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = policy_of(tmp_path, "epsilon_in_all: 5\n")
    raydr.run(scenario(policy), out=tmp_path / "run")
    capsys.readouterr()
    assert status(["budget", str(policy)]) == 0
    said = capsys.readouterr().out
    first = spent(policy)[0]
    assert first.left is not None
    assert f"client-0: 7 releases in 1 run cost epsilon {first.spent:.4g} of 5 at delta 1e-5." in said
    assert f"One more run may cost epsilon {first.left:.4g}." in said
    assert "All sites together cost epsilon" in said


def test_a_changed_record_stops_the_run(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "")
    raydr.run(scenario(policy), out=tmp_path / "run")
    (tmp_path / "releases-client-1.sqlite").unlink()
    with pytest.raises(PolicyError, match="the record was removed"):
        raydr.run(scenario(policy, seed=1), out=tmp_path / "again")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epsilon_in_all: 3", "name its file in releases"),
        ("releases: '{site}.sqlite'\nsite_name: hidden", "name a file without {site}"),
        ("releases: '{site}/all.sqlite'", "once, in the name of the file"),
        ("releases: '{site}-{site}'", "once, in the name of the file"),
    ],
)
def test_a_record_that_cannot_be_kept_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=message):
        read_policy(str(path))


def test_a_policy_without_a_record_has_no_budget_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["budget", "private"]) == 2
    assert "keeps no record of releases: name a file in it" in capsys.readouterr().err
