"""How each column of a table is read, as `raydr check --json` writes it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydr.front.cli import status


def write_table(path: Path, columns: dict[str, list[Any]]) -> Path:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return path


def patients(rows: int = 60) -> dict[str, list[Any]]:
    random = np.random.default_rng(0)
    age = random.normal(60, 9, rows).round(1).tolist()
    age[3] = age[7] = ""
    return {
        "patient_id": list(range(1000, 1000 + rows)),
        "hospital": [f"h{row % 3}" for row in range(rows)],
        "age": age,
        "weight": [f"{value:.1f} kg" for value in random.normal(75, 8, rows)],
        "smoker": ["yes" if row % 4 else "no" for row in range(rows)],
        "ward": [f"01{row // 3 % 4}" for row in range(rows)],
        "glucose": [999 if row == 5 else int(value) for row, value in enumerate(random.normal(100, 9, rows))],
        "beds": [200 + row % 3 for row in range(rows)],
        "visit": [f"2021-03-{row % 28 + 1:02d}" for row in range(rows)],
        "comment": [f"free text {row}" for row in range(rows)],
        "outcome": ["ill" if row % 2 else "well" for row in range(rows)],
    }


def checked(arguments: list[str], out: Path) -> dict[str, Any]:
    assert status(["check", *arguments, "--json", str(out)]) == 0
    content = json.loads(out.read_text())
    assert isinstance(content, dict)
    return content


def test_check_writes_how_each_column_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_table(tmp_path / "patients.csv", patients())
    content = checked([str(table), "--site", "hospital", "--label", "outcome"], tmp_path / "survey.json")
    printed = capsys.readouterr().out
    assert content["rows"] == 60
    assert content["sites"] == [{"name": f"h{site}", "rows": 20} for site in range(3)]
    found = {column["name"]: column for column in content["columns"]}
    assert sorted(found) == sorted(patients()), "each column of the file once"
    role = {name: column["role"] for name, column in found.items()}
    assert role == {
        "age": "mapped",
        "weight": "mapped",
        "smoker": "mapped",
        "ward": "mapped",
        "glucose": "mapped",
        "beds": "mapped",
        "outcome": "label",
        "hospital": "site",
        "patient_id": "left out",
        "visit": "left out",
        "comment": "left out",
    }
    ages = [value for value in patients()["age"] if value != ""]
    age = found["age"]
    assert (age["kind"], age["missing"], age["low"], age["high"]) == ("number", 2, min(ages), max(ages))
    assert (found["weight"]["kind"], found["weight"]["unit"]) == ("number", "kg")
    assert (found["smoker"]["kind"], found["smoker"]["words"]) == ("words", ["no", "yes"])
    assert found["smoker"]["low"] is None
    assert found["ward"]["words"] == [f"01{ward}" for ward in range(4)]
    assert {name: column["looks_like"] for name, column in found.items() if column["looks_like"]} == {
        "glucose": "has a code for missing values",
        "beds": "one value at each site",
    }
    assert found["visit"]["reason"] == "dates or times"
    assert "identity" in found["patient_id"]["reason"]
    assert len(content["notices"]) == 2
    assert all(f"Notice: {notice}" in printed for notice in content["notices"])


def test_a_folder_of_sites_is_read_as_one_table(tmp_path: Path) -> None:
    """With one file for each site, all but the site column is as in the one table."""
    whole = patients()
    table = write_table(tmp_path / "patients.csv", whole)
    (tmp_path / "sites").mkdir()
    for site in ("h0", "h1", "h2"):
        own = [row for row, name in enumerate(whole["hospital"]) if name == site]
        columns = {name: [values[row] for row in own] for name, values in whole.items() if name != "hospital"}
        write_table(tmp_path / "sites" / f"{site}.csv", columns)
    one = checked([str(table), "--site", "hospital", "--label", "outcome"], tmp_path / "one.json")
    many = checked([str(tmp_path / "sites"), "--label", "outcome"], tmp_path / "many.json")
    one["columns"] = [column for column in one["columns"] if column["role"] != "site"]
    assert many == one


def test_check_of_a_scenario_writes_its_columns(tmp_path: Path) -> None:
    content = checked(["digits-fed-umap"], tmp_path / "survey.json")
    assert content["rows"] == 1797
    assert [column["role"] for column in content["columns"]] == ["mapped"] * 64 + ["label"]
    assert content["columns"][0] == {
        "name": "pixel_0_0",
        "role": "mapped",
        "kind": "number",
        "unit": None,
        "words": [],
        "missing_codes": [],
        "period": None,
        "variance_share": 0.0,
        "missing": 0,
        "low": 0.0,
        "high": 0.0,
        "looks_like": None,
        "reason": None,
    }
