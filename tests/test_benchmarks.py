"""The suite of benchmarks: its members, its history, and ratios that become worse."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import (
    HISTORY,
    ROOT,
    SUITE,
    Entry,
    entries,
    extended,
    less_is_better,
    main,
    repeated,
    worsened,
    write_page,
)
from benchmarks.attacks import best_of
from raydr.attacks.canary import WHOLE
from raydr.attacks.verdicts import (
    Audit,
    ColumnErrors,
    EpsilonBound,
    Membership,
    ShareErrors,
    Verdict,
)

ALONE = {"bits"}
"""Benchmarks that compare with another version of raydr."""


def entry(commit: str = "a", date: str = "2026-01-01", **ratios: dict[str, float]) -> Entry:
    found = {name: {"seconds": 1.0, "figures": {}, "ratios": values} for name, values in ratios.items()}
    return Entry(commit, date, "a machine, 2 cores", True, found)


def test_each_benchmark_has_a_quick_form_and_writes_its_figures() -> None:
    texts = {path.stem: path.read_text() for path in (ROOT / "benchmarks").glob("[!_]*.py")}
    benchmarks = {name for name, text in texts.items() if "argparse" in text and "def main" in text}
    assert set(SUITE) == {name for name in benchmarks if '"--json"' in texts[name]} - ALONE
    for name in SUITE:
        assert all(word in texts[name] for word in ('"--quick"', "figures", "ratios")), name


@pytest.mark.parametrize("name", sorted([*SUITE, *ALONE]))
def test_each_benchmark_names_its_options(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert not ended.value.code
    assert "--json" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(SUITE))
def test_the_quick_form_of_each_benchmark_runs(name: str, data_dir: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    ended = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--json", str(figures)],
        cwd=ROOT,
        env=os.environ | {"RAYDR_DATA": str(data_dir)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    written = json.loads(figures.read_text())
    if name == "gpu" and "no GPU" in ended.stdout:
        return
    assert written["ratios"] or written["figures"]  # attacks have no peer to compare their time with


@pytest.mark.parametrize(
    ("benchmark", "then", "now", "reported"),
    [
        ("rounds", 2.0, 1.7, False),
        ("rounds", 2.0, 1.5, True),
        ("rounds", 2.0, 9.0, False),
        ("masking", 2.0, 2.4, False),
        ("masking", 2.0, 2.6, True),
        ("masking", 2.0, 0.5, False),
    ],
)
def test_a_ratio_that_is_worse_by_a_quarter_is_reported(
    benchmark: str, then: float, now: float, reported: bool
) -> None:
    lines = list(
        worsened(
            [entry(**{benchmark: {"theirs/ours": then}})], entry("b", **{benchmark: {"theirs/ours": now}})
        )
    )
    assert bool(lines) is reported
    assert all(word in line for line in lines for word in (benchmark, "theirs/ours", "at a", f"{now:.3g}"))


def test_a_ratio_of_only_one_entry_did_not_worsen() -> None:
    assert not list(worsened([entry(rounds={"a": 1.0})], entry("b", rounds={"b": 0.1}, sites={"a": 0.1})))


@pytest.mark.parametrize(("now", "reported"), [(1.7, False), (1.5, True)])
def test_a_ratio_is_compared_with_the_newest_entry_of_its_machine_that_has_it(
    now: float, reported: bool
) -> None:
    history = [
        entry("a", "2026-01-01", rounds={"x": 9.0}),
        entry("b", "2026-01-02", rounds={"x": 2.0}),
        entry("c", "2026-01-03", sites={"x": 9.0}),
        replace(entry("d", "2026-01-04", rounds={"x": 9.0}), machine="another machine"),
        replace(entry("e", "2026-01-05", rounds={"x": 9.0}), quick=False),
        entry("f", "2026-01-06", rounds={"x": 9.0}),
    ]
    lines = list(worsened(history, entry("f", "2026-01-07", rounds={"x": now})))
    assert lines == (["rounds: x was 2 at b, but is 1.5"] if reported else [])


@pytest.mark.parametrize("noisy", ["a", "b"])
def test_a_ratio_may_be_worse_by_its_noise(noisy: str) -> None:
    before, after = entry("a", rounds={"x": 2.0}), entry("b", rounds={"x": 1.1})
    assert list(worsened([before], after))
    (before if noisy == "a" else after).found["rounds"]["noise"] = {"x": 1.9}
    assert not list(worsened([before], after))
    (before if noisy == "a" else after).found["rounds"]["noise"] = {"x": 1.7}
    assert list(worsened([before], after))


def test_repeated_runs_have_a_median_and_their_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([1.0, 3.0, 2.0])
    monkeypatch.setattr(
        "benchmarks.__main__.run",
        lambda name, quick: {"seconds": 1.0, "figures": {}, "ratios": {"x": next(values)}},
    )
    found = repeated("rounds", True, 3)
    assert (found["ratios"], found["noise"]) == ({"x": 2.0}, {"x": 3.0})


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (3.0, 1)])
def test_entries_that_come_with_raydr_guard_the_first_run_on_a_new_machine(
    factor: float,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    history = shutil.copytree(HISTORY, tmp_path / "history")
    newest = entries(history)[-1]
    assert newest.quick
    assert all(newest.noise(place) < 3 for place in newest.ratios)

    def slower(name: str, quick: bool) -> dict[str, Any]:
        ratios = {
            ratio: value * factor if less_is_better(name, ratio) else value / factor
            for ratio, value in newest.found[name]["ratios"].items()
        }
        return {"seconds": 1.0, "figures": {}, "ratios": ratios}

    monkeypatch.setattr("benchmarks.__main__.run", slower)
    monkeypatch.setattr("benchmarks.__main__._machine", lambda: "a new machine, 64 cores")
    assert main(["--quick", "--only", *newest.found, "--history", str(history)]) == code
    assert capsys.readouterr().err.count(f" at {newest.commit}, but is ") == len(newest.ratios) * code


def keep(history: Path, kept: Entry) -> None:
    history.mkdir(exist_ok=True)
    (history / f"{kept.commit}.json").write_text(json.dumps(vars(kept)))


def test_the_page_shows_each_ratio_by_date(tmp_path: Path) -> None:
    keep(tmp_path, entry("b", "2026-01-02", rounds={"theirs/<ours>": 3.0}))
    keep(tmp_path, entry("a", "2026-01-01", rounds={"theirs/<ours>": 2.0}))
    assert [kept.commit for kept in entries(tmp_path)] == ["a", "b"]
    page = write_page(tmp_path).read_text()
    assert "from 2 in entry 0 to 3 in entry 1" in page
    assert "theirs/&lt;ours&gt;" in page


def test_the_suite_keeps_its_results_and_exits_with_1_if_one_is_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.__main__._machine", lambda: "a machine, 2 cores")
    arguments = ["--quick", "--only", "omnifc", "--history", str(tmp_path)]
    assert main(arguments) == 0
    (kept,) = entries(tmp_path)
    assert kept.quick
    assert kept.found["omnifc"]["figures"]["1797x64.replies"] == 9.0
    assert Path(capsys.readouterr().out.splitlines()[-1]).is_file()

    def slow(name: str, quick: bool) -> dict[str, Any]:
        return {"seconds": 1.0, "figures": {}, "ratios": {"theirs/ours": 1.0}}

    keep(tmp_path, entry("before", "2099-01-01", rounds={"theirs/ours": 2.0}))
    monkeypatch.setattr("benchmarks.__main__.run", slow)
    arguments[2] = "rounds"
    assert main(arguments) == 1
    assert "rounds: theirs/ours was 2 at before, but is 1" in capsys.readouterr().err
    assert main([*arguments, "--unguarded"]) == 0


def test_benchmarks_of_the_same_commit_are_kept() -> None:
    before, after = entry(rounds={"x": 2.0}, wide={"y": 1.0}), entry(date="2026-01-02", rounds={"x": 3.0})
    both = extended(before, after)
    assert (both.date, both.ratios) == ("2026-01-02", {("rounds", "x"): 3.0, ("wide", "y"): 1.0})
    assert extended(replace(before, machine="another"), after) == after
    assert extended(replace(before, quick=False), after) == after
    changed = replace(after, commit="a+")
    assert extended(replace(before, commit="a+"), changed) == changed


def test_a_failed_benchmark_is_reported_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(name: str, quick: bool) -> dict[str, Any]:
        if name == "rounds":
            raise RuntimeError("rounds ended with 1: no Ray")
        return {"seconds": 1.0, "figures": {}, "ratios": {}}

    monkeypatch.setattr("benchmarks.__main__.run", fails)
    assert main(["--only", "rounds", "omnifc", "--history", str(tmp_path)]) == 1
    assert "no Ray" in capsys.readouterr().err
    assert set(entries(tmp_path)[0].found) == {"omnifc"}


def test_the_strongest_attempt_of_each_attack_is_reported() -> None:
    def verdict(attack: str, variant: str = "", **found: Any) -> Verdict:
        return Verdict(attack=attack, description="", variant=variant, **found)

    def columns(*errors: float) -> tuple[ColumnErrors, ...]:
        return tuple(ColumnErrors(column="age", error=error, guess=0.8) for error in errors)

    def bound(epsilon: float) -> EpsilonBound:
        return EpsilonBound(epsilon=epsilon, measured=0.0, claimed=1.0, delta=1e-5, confidence=0.999)

    verdicts = (
        verdict("attribute-inference", "public rows", columns=columns(0.6, 0.8, 0.8)),
        verdict("projection", why="nothing was projected"),
        verdict("attribute-inference", "known records", columns=columns(0.1, 0.2, 0.8)),
        verdict(
            "property-inference", "classes", shares=ShareErrors(error=0.04, guess=0.05, groups=2, clients=3)
        ),
        verdict(
            "property-inference", "more", shares=ShareErrors(error=0.02, guess=0.05, groups=2, clients=3)
        ),
        verdict("membership", membership=Membership(auc=0.6, tpr=0.0, members=9, others=9)),
        verdict("membership", membership=Membership(auc=0.7, tpr=0.0, members=9, others=9)),
        verdict("canary", "density", bound=bound(0.9)),
        verdict("canary", WHOLE, bound=bound(0.4)),
    )
    audit = Audit(raydr="1", scenario="", public="", shown=(), image=None, verdicts=verdicts)
    assert [(line.attack, line.figures) for line in best_of("case", audit)] == [
        ("attribute-inference: known records", (2.0, 3.0)),
        ("property-inference: more", (0.02, 0.05)),
        ("membership", (0.7, 0.5)),
        (f"canary: {WHOLE}", (0.4, 1.0)),
    ]
