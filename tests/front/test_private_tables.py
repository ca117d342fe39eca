"""Maps of a user's own table with an epsilon for the whole run: `raydr map --epsilon`, and the estimator."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner

import raydr
from raydr.front.cli import app

QUICK = {
    "method.rounds": 2,
    "method.early_iterations": 10,
    "method.iterations": 10,
    "method.placing_iterations": 5,
    "runtime.federation": "inline",
}
SETS = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}")]


def patients(rows: int = 600) -> pd.DataFrame:
    """Return two groups of patients of three hospitals: numbers, words, gaps, a year, an identity and dates."""
    random = np.random.default_rng(0)
    group = random.integers(0, 2, rows)
    age = 40.0 + 25.0 * group + random.normal(0, 4, rows)
    return pd.DataFrame(
        {
            "hospital": np.array(["north", "east", "west"])[np.arange(rows) % 3],
            "age": np.where(random.random(rows) < 0.1, np.nan, age.round(1)),
            "sex": np.where(random.random(rows) < 0.5, "f", "m"),
            "pain": np.where(group, random.choice(["severe", "mild"], rows), "none"),
            "visit": [f"20{10 + row % 10}-01-{1 + row % 28:02d}" for row in range(rows)],
            "empty": "",
            "outcome": np.where(group, "ill", "well"),
        }
    )


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "patients.csv"
    patients().to_csv(path, index=False)
    return path


def ran(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_map_with_epsilon_is_private_from_raw_columns_to_places(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = ran("map", str(table), "--epsilon", "6", "--label", "outcome", "--out", str(run), *SETS)
    assert found.exit_code == 0, found.output
    privacy = json.loads((run / "privacy.json").read_text())
    assert privacy["epsilon"] == pytest.approx(6.0, rel=1e-6)
    assert privacy["infinite"] == []
    scenario = yaml.safe_load((run / "scenario.yaml").read_text())
    assert scenario["privacy"]["strict"] is True
    assert scenario["method"]["kind"] == "private-map"
    up = {
        entry["kind"] for entry in json.loads((run / "ledger.json").read_text()) if entry["direction"] == "up"
    }
    assert {"Histograms", "RangeHistograms", "FirstMoments", "Scatter", "CellSums"} <= up
    assert not up & {"ColumnSurvey", "Spelling", "Moments", "Below", "Extremes"}
    notes = json.loads((run / "notes.json").read_text())
    survey = next(note["text"] for note in notes if note["title"] == "What the survey found")
    assert "age" in survey.partition("noise hides")[0]
    assert "visit" in survey, "noise hides all of its words, or nearly all"
    # The two groups are apart, and new rows are placed, with a missing cell and a new word.
    metrics = json.loads((run / "metrics.json").read_text())["federated"]
    assert metrics["ca_10"] > 0.8
    new = patients(6).drop(columns="outcome").astype(object)
    new.loc[0, "age"], new.loc[1, "sex"], new.loc[2, "age"] = "", "x", "unknown"
    new.to_csv(tmp_path / "new.csv", index=False)
    placed = ran("transform", str(run), str(tmp_path / "new.csv"), "--out", str(tmp_path / "places.csv"))
    assert placed.exit_code == 0, placed.output
    assert np.isfinite(pd.read_csv(tmp_path / "places.csv")[["x", "y"]].to_numpy()).all()


def test_plan_states_a_finite_epsilon_and_its_parts(table: Path, tmp_path: Path) -> None:
    written = ran("init", str(table), "--epsilon", "2", "--delta", "1e-6", "--out", "private.yaml")
    assert written.exit_code == 0, written.output
    plan = ran("plan", "private.yaml", "--json", "plan.json", "--set", "runtime.federation=inline")
    assert plan.exit_code == 0, plan.output
    privacy = json.loads((tmp_path / "plan.json").read_text())["privacy"]
    assert privacy["epsilon"] == pytest.approx(2.0, rel=1e-6)
    assert "Histograms" in plan.output
    few = " ".join(plan.output.split())
    assert re.search(r"expect about 1\d landmarks, a sketch of the largest groups", few)
    many = ran("plan", "private.yaml", "--rows", "60000", "--set", "runtime.federation=inline")
    assert re.search(r"expect about 1,\d{3} landmarks\.", " ".join(many.output.split()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "0"], "--epsilon is 0: expected a number above 0"),
        (["--epsilon", "nan"], "expected a number above 0"),
        (["--epsilon", "1", "--delta", "2"], "--delta is 2: expected a number between 0 and 1"),
        (["--delta", "1e-5"], "--delta belongs to --epsilon"),
        (["--epsilon", "1", "--method", "fed-umap"], "leave --method out"),
        (["--epsilon", "1", "--set", "data.scale=standard"], "leave data.scale out"),
        (["--epsilon", "1", "--set", "data.missing=median"], "leave data.missing out"),
    ],
)
def test_epsilon_that_cannot_be_kept_is_refused(table: Path, options: list[str], message: str) -> None:
    found = CliRunner().invoke(app, ["map", str(table), *options, *SETS])
    assert found.exit_code != 0
    assert message in (found.output + str(found.exception)).replace("\n", " ")


def test_codebook_takes_the_place_of_the_survey(table: Path, tmp_path: Path) -> None:
    book = tmp_path / "book.csv"
    book.write_text(
        "column,role,kind,low,high,words\nage,mapped,number,18,100,\nsex,mapped,words,,,f | m\n"
        "pain,mapped,ordinal,,,none | mild | severe\nvisit,mapped,date,2010-01-01,2019-12-31,\nempty,left out,,,,\n"
    )
    quick = {key.replace(".", "__"): value for key, value in QUICK.items()}
    result = raydr.map(table, label="outcome", codebook=book, epsilon=4.0, out=tmp_path / "run", **quick)
    assert result.privacy["epsilon"] == pytest.approx(4.0, rel=1e-6)
    kinds = {entry["kind"] for entry in result.ledger}
    assert "FirstMoments" in kinds
    assert not kinds & {"Histograms", "RangeHistograms"}
    missing = ran("init", str(table), "--epsilon", "1", "--codebook", "new.csv")
    assert missing.exit_code == 2
    assert "write it without --epsilon" in missing.output


def test_folder_of_site_files_with_other_columns(tmp_path: Path) -> None:
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, rows in patients().groupby("hospital"):
        rows.drop(columns=["hospital", *["sex"] * (name == "east")]).to_csv(
            folder / f"{name}.csv", index=False
        )
    found = ran(
        "map", str(folder), "--epsilon", "6", "--label", "outcome", "--out", str(tmp_path / "run"), *SETS
    )
    assert found.exit_code == 0, found.output
    privacy = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert privacy["epsilon"] == pytest.approx(6.0, rel=1e-6)


@pytest.mark.parametrize("shape", ["frame", "array"])
def test_estimator_maps_raw_columns_with_an_epsilon(shape: str) -> None:
    frame = patients()
    rows: Any = frame.drop(columns=["hospital", "outcome"])
    if shape == "array":
        rows = np.column_stack([frame["age"].fillna(50.0), 1000.0 * (frame["outcome"] == "ill")])
    quick = {key.removeprefix("method."): value for key, value in QUICK.items() if key.startswith("method.")}
    estimator = raydr.PrivateMap(epsilon=6.0, **quick)
    places = estimator.fit_transform(rows, frame["outcome"], sites=frame["hospital"])
    assert places.shape == (600, 2)
    assert estimator.privacy_["epsilon"] == pytest.approx(6.0, rel=1e-6)
    assert estimator.metrics_["federated"]["ca_10"] > 0.9
    assert estimator.transform(rows[:5]).shape == (5, 2)


def test_canaries_of_every_release_stay_below_the_claim(table: Path, tmp_path: Path) -> None:
    quick = {key.replace(".", "__"): value for key, value in QUICK.items()}
    secret = tmp_path / "secret"  # each bound is wrong for one secret in a thousand
    secret.write_bytes(bytes(64))
    secret.chmod(0o600)
    result = raydr.map(
        table, label="outcome", epsilon=6.0, out=tmp_path / "run", metrics=[],
        audit={"attacks": ["canary"]}, privacy__secret=str(secret), **quick,
    )  # fmt: skip
    verdicts = json.loads((result.folder / "audit.json").read_text())["verdicts"]
    bounds = {each["variant"]: each["bound"] for each in verdicts if each["bound"]}
    survey = {"Histograms", "RangeHistograms"}
    assert set(bounds) == {"the whole run", *survey, "FirstMoments", "Scatter", "CellSums"}
    for bound in bounds.values():
        assert 0.0 < bound["epsilon"] <= bound["measured"] == bound["claimed"]


def test_few_sites_add_the_whole_noise_to_each_upload(tmp_path: Path) -> None:
    """Of two sites, one would read the other's upload from the sum."""
    table = tmp_path / "two.csv"
    patients().query("hospital != 'west'").to_csv(table, index=False)
    result = raydr.map(
        table, label="outcome", epsilon=9.0, delta=1e-6, out=tmp_path / "run", metrics=[],
        **{key.replace(".", "__"): value for key, value in QUICK.items()},
    )  # fmt: skip
    assert result.privacy["epsilon"] == pytest.approx(9.0, rel=1e-6)
    assert result.privacy["delta"] == 1e-6
    assert all(against["epsilon"] <= 9.00001 for against in result.privacy["epsilon_by_adversary"].values())
