"""The total privacy cost of a sweep: composed, shown, and bounded before the first trial."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sweeps import Interrupted, inline
from tiny import tiny

import raydr
from raydr.errors import ScenarioError
from raydr.front.sweeps import sweep_table
from raydr.journal import IncidentEvent
from raydr.privacy.accounting import Charge, epsilon_of, gaussian_multiplier
from raydr.privacy.composition import OUTSIDE, Composition, RunCost, composed
from raydr.runfolder import records
from raydr.tune.reading import read_sweep
from raydr.tune.sweeping import resume, sweep

DELTA = 1e-5
SHORT = {"early_iterations": 2, "iterations": 2, "placing_iterations": 2}


def private(**more: Any) -> Any:
    """Return a sweep of two private runs, at epsilon 1 and 2."""
    base = tiny() | {
        "data": {"source": "iris", "scale": "none"},
        "method": {"kind": "private-map", "epsilon": 1.0, "clip": 10.0, "per": "client", **SHORT},
        "privacy": {"strict": True},
    }
    content = {
        "name": "private",
        "base": base,
        "space": {"method.epsilon": [1.0, 2.0]},
        "trial": {"report": False},
    }
    return read_sweep(content | more)


def gaussian(*epsilons: float) -> float:
    """Return the epsilon of runs together, from their noise multipliers, by the accountant."""
    charges = {
        Charge(kind=f"run {number}", deviation=multiplier, sensitivity=1.0): 1
        for number, multiplier in enumerate(gaussian_multiplier(epsilon, DELTA) for epsilon in epsilons)
    }
    return epsilon_of(charges, DELTA)


class TestComposed:
    def test_the_total_is_the_accountants_epsilon_of_all_releases(self) -> None:
        costs = [RunCost(epsilon, epsilon, DELTA, "record", "zero-out") for epsilon in (0.5, 1.0, 4.0)]
        assert composed(costs, DELTA).epsilon == pytest.approx(gaussian(0.5, 1.0, 4.0), rel=1e-6)

    def test_a_single_run_costs_its_own_epsilon(self) -> None:
        for epsilon in (0.1, 1.0, 8.0):
            assert composed(
                [RunCost(epsilon, epsilon, DELTA, "record", "zero-out")], DELTA
            ).epsilon == pytest.approx(epsilon, rel=1e-6)

    def test_each_run_has_its_own_delta(self) -> None:
        strict = composed([RunCost(1.0, 1.0, 1e-9, "record", "zero-out")], DELTA)
        assert strict.epsilon is not None
        assert strict.epsilon < 0.9

    def test_the_total_has_no_epsilon_if_a_run_has_none(self) -> None:
        costs = [
            RunCost(epsilon, spent, DELTA, "record", "zero-out")
            for epsilon, spent in ((1.0, 1.0), (None, 2.0))
        ]
        total = composed(costs, DELTA)
        assert (total.epsilon, total.infinite) == (None, 1)
        assert total.accounted == pytest.approx(gaussian(1.0, 2.0), rel=1e-6)
        assert "have no epsilon, because 1 of them has none" in total.words

    @pytest.mark.parametrize(("unit", "relation"), [("client", "zero-out"), ("record", "replace-one")])
    def test_claims_of_other_units_or_relations_are_not_added(self, unit: Any, relation: Any) -> None:
        one, other = (
            RunCost(1.0, 1.0, DELTA, *claim) for claim in (("record", "zero-out"), (unit, relation))
        )
        total = composed([one, other], DELTA)
        assert (total.epsilon, total.accounted, total.infinite) == (None, None, 0)
        assert "their units or relations differ" in total.words

    def test_runs_without_releases_cost_nothing(self) -> None:
        total = composed(costs=[RunCost(0.0, 0.0, DELTA, None, None)] * 3, delta=DELTA)
        assert (total.epsilon, total.unfinished) == (0.0, 0)

    @pytest.mark.parametrize(
        ("epsilon", "accounted", "runs", "infinite", "unfinished", "words"),
        [
            (1.5, 1.5, 1, 0, 0, "All 1 run together cost epsilon 1.5 at delta 1e-5."),
            (
                1.5,
                1.5,
                3,
                0,
                2,
                "cost epsilon 1.5 at delta 1e-5, with 2 unfinished and counted as complete.",
            ),
            (
                None,
                2.0,
                3,
                2,
                0,
                "All 3 runs .* 2 of them have none. The releases under noise cost epsilon 2.",
            ),
            (
                None,
                2.0,
                3,
                1,
                1,
                "1 of them has none, with 1 unfinished and counted as complete. The releases",
            ),
            (None, None, 3, 1, 0, "because 1 of them has none.$"),
            (
                None,
                None,
                3,
                0,
                0,
                "All 3 runs .* no common epsilon: their units or relations differ.$",
            ),
        ],
    )
    def test_the_words_for_a_total(
        self, epsilon: Any, accounted: Any, runs: int, infinite: int, unfinished: int, words: str
    ) -> None:
        total = Composition(
            epsilon=epsilon,
            delta=DELTA,
            accounted=accounted,
            runs=runs,
            infinite=infinite,
            unfinished=unfinished,
        )
        assert re.search(words, total.words)


class TestSweep:
    def test_table_page_and_best_show_the_total(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inline(monkeypatch)
        result = raydr.SweepResult(sweep(private(), out=tmp_path / "swept"))
        expected = gaussian(1.0, 2.0)
        assert result.total is not None
        assert result.total["epsilon"] == pytest.approx(expected, rel=1e-6)
        assert (result.total["runs"], result.total["unfinished"]) == (2, 0)
        words = f"All 2 runs together cost epsilon {expected:.4g} at delta 1e-5."
        assert f"{words} {OUTSIDE}" in result.report.read_text()
        assert f"{words} {OUTSIDE}" in " ".join(result.best.read_text().replace("\n# ", " ").split())
        assert any(f"{words} {OUTSIDE}" == str(part) for part in sweep_table(result.folder))

    def test_a_sweep_without_noise_has_no_total(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inline(monkeypatch)
        asked = read_sweep({"name": "bare", "base": tiny(), "space": {"method.landmarks": [12]}})
        result = raydr.SweepResult(sweep(asked, out=tmp_path / "swept"))
        assert result.total is None
        assert OUTSIDE not in result.report.read_text() + result.best.read_text()

    def test_a_run_that_started_twice_counts_twice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran = inline(monkeypatch, dies_after=1)
        with pytest.raises(Interrupted):
            sweep(private(), out=tmp_path / "swept")
        (left,) = tmp_path.glob("swept.incomplete-*")
        (left / records.TRIAL_FOLDERS / ran[-1]).rename(tmp_path / "lost")
        inline(monkeypatch)
        result = raydr.SweepResult(resume(left))
        assert result.total is not None
        assert (result.total["runs"], result.total["unfinished"]) == (3, 1)
        assert result.total["epsilon"] == pytest.approx(gaussian(1.0, 1.0, 2.0), rel=1e-6)
        assert "with 1 unfinished and counted as complete" in result.report.read_text()


class TestBudget:
    def test_a_sweep_past_the_bound_is_refused_before_a_trial_starts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran = inline(monkeypatch)
        total = gaussian(1.0, 2.0)
        with pytest.raises(ScenarioError, match=f"2 runs on the same rows would have epsilon {total:.4g}"):
            sweep(private(epsilon_max=total * 0.999), out=tmp_path / "swept")
        assert ran == []
        assert not list(tmp_path.iterdir())
        sweep(private(epsilon_max=total * 1.001), out=tmp_path / "swept")
        assert len(ran) == 2

    def test_releases_before_an_interruption_count(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran = inline(monkeypatch, dies_after=1)
        asked = private(epsilon_max=gaussian(1.0, 2.0) * 1.001)
        with pytest.raises(Interrupted):
            sweep(asked, out=tmp_path / "swept")
        (left,) = tmp_path.glob("swept.incomplete-*")
        (left / records.TRIAL_FOLDERS / ran[-1]).rename(tmp_path / "lost")
        inline(monkeypatch)
        with pytest.raises(ScenarioError, match="3 runs on the same rows"):
            resume(left)

    def test_a_trial_without_an_epsilon_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran = inline(monkeypatch)
        asked = read_sweep(
            {"name": "bare", "base": tiny(), "space": {"method.landmarks": [12]}, "epsilon_max": 5.0}
        )
        with pytest.raises(ScenarioError, match="trial 0000-0 has no epsilon"):
            sweep(asked, out=tmp_path / "swept")
        assert ran == []

    def test_proposed_points_end_at_the_bound(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        ran, incidents = inline(monkeypatch), list[str]()
        asked = private(
            space={"method.epsilon": {"uniform": [1.0, 2.0]}},
            search={"kind": "optuna", "samples": 4, "at_once": 2},
            objectives={"federated.npa_10": "max"},
            epsilon_max=gaussian(2.0, 2.0),
        )
        folder = sweep(
            asked,
            out=tmp_path / "swept",
            listener=lambda event: incidents.append(event.text) if isinstance(event, IncidentEvent) else None,
        )
        total = raydr.SweepResult(folder).total
        assert total is not None
        assert total["epsilon"] <= gaussian(2.0, 2.0)
        assert 2 <= len(ran) < 4
        assert any("No further trial starts" in text for text in incidents)

    def test_trials_with_a_bound_are_not_retried(self) -> None:
        assert (private().retries, private(epsilon_max=5.0).retries) == (2, 0)
        with pytest.raises(ScenarioError, match=r"trial\.retries is 1"):
            private(epsilon_max=5.0, trial={"retries": 1})
