"""What a run under a policy shows of single records and small sites, on every way out: files, pages, exports, terminal.

Markers stand for values of single records. Each is in the table and must be in no output. Without a policy the same
search finds every one, so it can fail.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tiny import tiny

import raydr
from raydr.front.cli import status
from raydr.runfolder import read_run
from raydr.runfolder.records import EMBEDDING, HELD_OUT, SHOWN

MARKERS = ("patient-", "RARELABEL", "NEWLABEL", "EMERGENCY", "RAREWORD", "98765")
"""Row names, a label of two records, one of a held-out record, a period of two records, a word of two, an extreme."""
RARE = (4, 5)
"""Records of two sites with what only two records have."""
_SCRIPT = re.compile(r'<script type="text/plain" id="part-\d+">(.*?)</script>', re.DOTALL)


def write_table(path: Path, rows: int = 150, marked: bool = True) -> Path:
    random = np.random.default_rng(6)
    lines = ["patient,age,bmi,tobacco,visit,ward,diagnosis,split"]
    for row in range(rows):
        rare = marked and row in RARE
        new = row % 10 == 7
        age = "98765" if marked and row == 1 else f"{random.integers(30, 80)}"
        bmi = "" if row in (8, 9) else f"{random.normal(25.0, 3.0):.3f}"
        label = "NEWLABEL" if marked and row == 7 else "RARELABEL" if rare else ("flu", "cold")[row % 3 == 0]
        visit = "EMERGENCY" if rare else ("first", "second", "third")[row // 3 % 3]
        word = "RAREWORD" if rare else ("never", "daily")[row % 2]
        lines.append(
            f"patient-{row:03d},{age},{bmi},{word},{visit},{'abc'[row % 3]},{label},{'new' if new else 'old'}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def scenario(folder: Path, policy: str | None) -> dict[str, Any]:
    content = tiny() | {
        "data": {
            "path": str(write_table(folder / "wards.csv")),
            "label": "diagnosis",
            "id": "patient",
            "time": "visit",
            "features": ["age", "bmi", "tobacco"],
            "missing": "mean",
            "categories": "one-hot",
            "words": {"rows": 1, "sites": 1},
            "scale": "standard",
            "holdout": {"column": "split", "value": "new"},
        },
        "clients": {"partition": {"kind": "by-column", "column": "ward"}},
        "method": {"kind": "fed-pca", "publish": "local"},
        "show": ["age", "bmi"],
    }
    content["compare"] = ["central"]
    if policy is not None:
        content["clients"]["policy"] = policy
    return content


def page_text(page: Path) -> str:
    """Return a page with the packed content of its maps, as text and as numbers."""
    text = page.read_text()
    found = [text]
    for part in _SCRIPT.findall(text):
        letters = np.frombuffer(part.encode("latin-1"), np.uint8) & 127
        bits = np.unpackbits(letters[:, None], axis=1)[:, 1:].ravel()
        packed = np.packbits(bits[: len(bits) // 8 * 8]).tobytes()
        start = 0 if packed[:1] == b"\x78" else 4  # coordinates begin with a length
        content = zlib.decompressobj().decompress(packed[start:])
        found.append(content.decode("latin-1"))
        if len(content) % 4 == 0:
            values = np.frombuffer(content, np.uint8).reshape(4, -1).T.copy().view("<f4").ravel()
            found += [f"{value:g}" for value in values[np.abs(values) > 1e4].tolist()]
    return "\n".join(found)


def content_of(file: Path) -> str:
    if file.suffix == ".parquet":
        return json.dumps(pq.read_table(file).to_pydict(), default=str)
    if file.suffix == ".html" and "map-header" in file.read_text():
        return page_text(file)
    return file.read_bytes().decode("latin-1")


def outputs(folder: Path, policy: str | None, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Run, place new rows, let a site join, release and export; return the text of every output by its name."""
    out = folder / "out"
    out.mkdir()
    described, run = folder / "scenario.json", out / "run"
    described.write_text(json.dumps(scenario(folder, policy)))
    assert status(["plan", str(described)]) == 0
    assert status(["run", str(described), "--out", str(run)]) == 0
    assert status(["transform", str(run), str(folder / "wards.csv"), "--out", str(out / "places.csv")]) == 0
    assert (
        status(["transform", str(run), str(folder / "wards.csv"), "--out", str(out / "places.parquet")]) == 0
    )
    assert status(["join", str(run), str(folder / "wards.csv"), "--site", "d"]) == 0
    assert status(["report", str(run)]) == 0
    said = capsys.readouterr()
    found = {"terminal": said.out + said.err}
    result = raydr.load(run)
    found["data frame"] = result.to_frame("pandas").to_csv()
    found["notebook"] = result._repr_html_()
    for file in sorted(out.rglob("*")):
        if file.is_file() and file.suffix != ".npz":
            found[file.relative_to(out).as_posix()] = content_of(file)
    return found


def places_of(found: dict[str, str]) -> dict[str, list[str]]:
    return {marker: [name for name, text in found.items() if marker in text] for marker in MARKERS}


def test_no_output_has_a_value_of_single_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = places_of(outputs(tmp_path, "datashield", capsys))
    assert not any(found.values()), found


def test_the_same_search_finds_each_of_them_without_a_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = places_of(outputs(tmp_path, None, capsys))
    for marker, names in found.items():
        assert names, marker
    for name in ("run/embedding.parquet", "run/held_out.parquet", "run/report.html", "data frame"):
        assert name in found["patient-"]
    assert {"places.csv", "places.parquet", "run/joined/1/embedding.parquet"} <= set(found["patient-"])
    assert {"run/metrics.json", "run/report.html", "terminal"} <= set(found["EMERGENCY"])
    assert {"run/embedding.parquet", "run/joined/1/embedding.parquet"} <= set(found["RARELABEL"])
    assert found["NEWLABEL"][0] != ""
    assert {"run/shown.parquet", "run/report.html"} <= set(found["98765"])
    assert "run/data.json" in found["RAREWORD"]


def test_labels_periods_and_values_are_those_of_several_records_of_a_site(tmp_path: Path) -> None:
    run = Path(raydr.run(scenario(tmp_path, "datashield"), out=tmp_path / "run").folder)
    kept = pq.read_table(run / EMBEDDING).to_pydict()
    for column in ("label", "period"):
        cells = Counter(zip(kept["client"], kept[column], strict=True))
        assert min(cells.values()) >= 3
        assert "few records" in kept[column]
    shown = pq.read_table(run / SHOWN).to_pydict()
    groups = Counter(zip(kept["client"], *(shown[f"column.{name}"] for name in ("age", "bmi")), strict=True))
    assert min(groups.values()) >= 3
    held_out = pq.read_table(run / HELD_OUT).to_pydict()
    assert held_out["row"] == list(range(15))
    assert min(Counter(held_out["label"]).values()) >= 2, "per site three or all of them"
    assert [each.period for each in read_run(run).measures.periods][-1] == "few records"
    assert kept["row"] == [Counter(kept["client"][:row])[kept["client"][row]] for row in range(135)]


def test_periods_of_too_few_records_everywhere_are_not_shown(tmp_path: Path) -> None:
    policy = tmp_path / "site.yaml"
    policy.write_text("least_count: 40\n")
    content = scenario(tmp_path, str(policy))
    del content["data"]["words"]
    content["data"] |= {"features": ["age", "bmi"], "missing": "drop"}
    run = raydr.run(content, out=tmp_path / "run")
    assert run.periods == []
    assert run.period_of_row is None
    assert any("The map shows no periods" in notice for notice in read_run(run.folder).data.notices)


def test_figures_of_a_site_below_the_least_rows_are_withheld(tmp_path: Path) -> None:
    """The smallest site has 20 rows; a policy of 25 leaves its means out of every file and the page."""
    random = np.random.default_rng(3)
    lines = ["x,y,z,ward"]
    sizes = {"large": 60, "middle": 40, "small": 20}
    for ward, rows in sizes.items():
        lines += [
            ",".join(f"{value:.4f}" for value in random.normal(size=3)) + f",{ward}" for _ in range(rows)
        ]
    table = tmp_path / "wards.csv"
    table.write_text("\n".join(lines) + "\n")
    content = tiny() | {
        "data": {"path": str(table), "scale": "none"},
        "clients": {"partition": {"kind": "by-column", "column": "ward"}},
        "method": {"kind": "private-map", "epsilon": 4.0, "bounds": [-4.0, 4.0], "iterations": 5},
    }
    free = raydr.run(content, out=tmp_path / "free")
    assert {site.site for site in read_run(free.folder).measures.sites} == set(sizes)
    policy = tmp_path / "site.yaml"
    policy.write_text("least_count: 25\n")
    content["clients"]["policy"] = str(policy)
    bound = raydr.run(content, out=tmp_path / "bound")
    assert {site.site for site in read_run(bound.folder).measures.sites} == {"large", "middle"}


def test_numbers_of_few_filled_values_are_withheld(tmp_path: Path) -> None:
    free, bound = (
        raydr.run(scenario(tmp_path, policy), out=tmp_path / f"run-{policy}")
        for policy in (None, "datashield")
    )
    assert read_run(free.folder).data.filled == {"c": {"bmi": 1}, "a": {"bmi": 1}}
    assert read_run(bound.folder).data.filled == {}


@pytest.mark.parametrize("least", [1, 3])
def test_estimated_places_do_not_depend_on_the_policy(tmp_path: Path, least: int) -> None:
    """A policy renames rows in ``raydr transform``; it moves none."""
    policy = tmp_path / "site.yaml"
    policy.write_text(f"least_count: {least}\n")
    run = raydr.run(scenario(tmp_path, str(policy)), out=tmp_path / "run")
    out = tmp_path / "places.parquet"
    raydr.transform(run.folder, tmp_path / "wards.csv", out=out)
    places = pq.read_table(out)
    kept = np.array([row for row in range(150) if row % 10 != 7])
    for place, axis in enumerate("xy"):
        np.testing.assert_allclose(
            places.column(axis).to_numpy()[kept], np.asarray(run.embedding)[:, place], atol=1e-4
        )
    rows = places.column("row").to_pylist()
    assert rows == (list(range(150)) if least > 1 else [f"patient-{row:03d}" for row in range(150)])


def test_an_audit_shows_no_records_of_sites_whose_policy_counts_them(tmp_path: Path) -> None:
    """Places on the principal axes lead back to records; the page compares some with the true ones."""
    found = {}
    for least in (1, 3):
        policy = tmp_path / "site.yaml"
        policy.write_text(f"least_count: {least}\n")
        content = tiny() | {"method": {"kind": "fed-pca"}, "clients": {"count": 2, "policy": str(policy)}}
        run = raydr.run(content, out=tmp_path / f"run-{least}")
        raydr.audit(run.folder, ["projection"])
        found[least] = json.loads((run.folder / "audit.json").read_text())
    assert found[1]["verdicts"][0]["examples"]
    assert not found[3]["verdicts"][0]["examples"]
    assert found[3]["shown"] == []
    assert found[3]["verdicts"][0]["errors"] == found[1]["verdicts"][0]["errors"]
