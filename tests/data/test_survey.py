"""The survey of columns sends no identities, only words of enough rows and sites, and is recorded."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_run_with_report, tiny_scenario

from raydr.data import load
from raydr.data.site import SiteFile, laid_out
from raydr.data.survey import categories
from raydr.data.survey.categories import common_words, kind_of_texts
from raydr.data.survey.spelling import Threshold
from raydr.errors import ScenarioError
from raydr.front.cli import status
from raydr.front.own_data import own_data
from raydr.runfolder import read_run

MAP = ["--quiet", "--set", "runtime.federation=inline", "--set", "method.rounds=1", "--set", "method.landmarks=8",
       "--set", "method.epochs=5", "--set", "metrics=[npa_10]", "--set", "compare=[]"]  # fmt: skip
NOISE = {"on": "data", "clip": 2.0, "epsilon": 0.25, "stage": "all"}


def write(path: Path, header: str, rows: list[list[Any]]) -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def numbers(row: int) -> list[int]:
    return [20 + row * 7 % 60, row * 11 % 31]


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    """Write three files of 40 uniquely named patients, and one table of all of them."""
    folder = tmp_path / "sites"
    folder.mkdir()
    every = []
    for site in range(3):
        rows = [[f"Name{40 * site + row:03}", "fm"[row % 2], *numbers(row)] for row in range(40)]
        write(folder / f"s{site}.csv", "patient_name,sex,age,dose", rows)
        every += [[f"s{site}", *row] for row in rows]
    write(tmp_path / "all.csv", "hospital,patient_name,sex,age,dose", every)
    return folder


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return every word that leaves a site in the survey."""
    received: set[str] = set()
    spell_out = categories.spell_out

    def listening(sites: Any, least: int) -> Any:
        received.update(word for words in sites for word in words)
        return spell_out(sites, least)

    monkeypatch.setattr(categories, "spell_out", listening)
    return received


def written(folder: Path) -> str:
    return "".join(
        path.read_text() for path in folder.iterdir() if path.suffix in (".json", ".html", ".yaml")
    )


@pytest.mark.parametrize("central", [False, True])
def test_words_of_identities_stay_at_their_site(
    hospitals: Path, tmp_path: Path, reported: set[str], central: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "all.csv" if central else hospitals
    assert status(["map", str(data), "--out", str(tmp_path / "run"), *MAP]) == 0
    assert reported == {"f", "m"}
    run = read_run(tmp_path / "run")
    assert run.data.columns == ("sex=f", "sex=m", "age", "dose")
    assert "an identity" in run.data.sources[0].left_out["patient_name"]
    for command in (["check", str(data)], ["init", str(data), "--out", str(tmp_path / "new.yaml")]):
        assert status(command) == 0
    message = capsys.readouterr()
    text = written(tmp_path / "run") + message.out + message.err + (tmp_path / "new.yaml").read_text()
    assert "patient_name" in text
    assert not re.findall(r"Name\d", text)
    if not central:
        files = [SiteFile(path=str(path), categories="one-hot") for path in sorted(hospitals.iterdir())]
        assert [file.survey().words for file in files] == [{"sex": ("f", "m")}] * 3


def test_identities_are_not_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [[f"P-{row:03}", *numbers(row)] for row in range(40)]
    data = write(tmp_path / "forty.csv", "patient_id,age,dose", rows)
    arguments = ["map", str(data), "--out", str(tmp_path / "run"), "--set", "clients.count=2", *MAP[1:]]
    assert status(arguments) == 0
    message = capsys.readouterr()
    assert "patient_id (text with more than one value for every two rows" in " ".join(
        (message.out + message.err).split()
    )
    assert read_run(tmp_path / "run").data.columns == ("age", "dose")
    assert "P-0" not in written(tmp_path / "run") + message.out + message.err


@given(st.integers(2, 500), st.data())
def test_nearly_unique_column_is_an_identity_at_any_size(rows: int, data: st.DataObject) -> None:
    """Cases are on either side of one value per two rows; sent words are in enough rows."""
    different = data.draw(st.integers(2, rows))
    counts = Counter(f"w{row % different}" for row in range(rows))
    kind = kind_of_texts(counts)
    if different <= 50:
        assert kind == ("identity" if 2 * different > rows else "text")
    else:
        assert kind == "much text"
    expected = {word for word, count in counts.items() if count >= 5} if kind == "text" else set()
    assert set(common_words(counts, kind, Threshold())) == expected


def test_one_value_per_two_rows_is_no_identity() -> None:
    counts = {f"w{word}": 2 for word in range(9)}
    assert kind_of_texts(counts) == "text"
    assert kind_of_texts(counts | {"w0": 1}) == "identity"


@pytest.mark.parametrize(("identities", "mapped"), [(1, True), (2, False)])
def test_most_sites_decide_whether_a_column_is_an_identity(
    tmp_path: Path, identities: int, mapped: bool
) -> None:
    """A site of three rows cannot exclude a column of the others."""
    files = [*sites_of(tmp_path, *[["red", "blue", "red"]] * identities, *[COMMON] * (3 - identities))]
    layout = laid_out(
        SiteFile(path=files[0]["path"], categories="one-hot", threshold=Threshold(1, 1)),
        [
            SiteFile(path=file["path"], categories="one-hot", threshold=Threshold(1, 1)).survey()
            for file in files
        ],
    )
    assert ("kind" in layout.words) == mapped


def test_frequent_word_of_an_identity_is_not_sent(tmp_path: Path) -> None:
    rows = [["unknown" if row < 20 else f"N{row}", row % 7] for row in range(60)]
    path = write(tmp_path / "a.csv", "name,x", rows)
    survey = SiteFile(path=str(path), categories="one-hot").survey()
    assert (survey.kinds["name"], dict(survey.words)) == ("identity", {})


def test_repeated_identities_are_not_sent(tmp_path: Path) -> None:
    """With ten visits each, the column is no identity, but every patient is at one site only."""
    files = []
    for site in ("north", "south"):
        rows = [[f"{site}-{row % 4}", "fm"[row % 2], row % 7] for row in range(40)]
        files.append(
            SiteFile(path=str(write(tmp_path / f"{site}.csv", "patient,sex,x", rows)), categories="one-hot")
        )
    layout = laid_out(files[0], [file.survey() for file in files])
    assert layout.features == ("sex=f", "sex=m", "x")
    assert layout.left_out == {
        "patient": "text without a word that 5 rows at each of 2 sites have (data.words)"
    }


def sites_of(folder: Path, *words: list[str]) -> list[dict[str, str]]:
    """Write a file for each site with these words."""
    for site, own in enumerate(words):
        write(folder / f"w{site}.csv", "kind,x,y", [[word, *numbers(row)] for row, word in enumerate(own)])
    return [{"path": str(folder / f"w{site}.csv")} for site in range(len(words))]


COMMON = ["red"] * 9 + ["blue"] * 8


def test_word_needs_enough_rows_and_sites_and_votes_are_recorded(tmp_path: Path, reported: set[str]) -> None:
    sites = sites_of(
        tmp_path,
        [*COMMON, *["rest"] * 5, *["rare"] * 4],  # rest: enough rows of one site; rare: too few rows of three
        [*COMMON, *["rare"] * 4],
        [*COMMON, *["rare"] * 4],
    )
    run = read_run(
        tiny_run_with_report(
            tmp_path / "run", data={"categories": "one-hot", "scale": "standard"}, clients={"sites": sites}
        )
    )
    assert run.data.columns == ("kind=blue", "kind=red", "x", "y")
    assert reported == {"red", "blue", "rest"}
    entries = {entry.kind: entry for entry in run.ledger}
    # Prefixes of two sites: "", b, r, bl, re, blu, red, blue; only one site has "res".
    assert (entries["Spelling"].count, entries["Spelling"].bytes) == (3 * 5, 3 * 8 * 257 * 8)
    assert (entries["ColumnSurvey"].count, entries["ColumnSurvey"].bytes) == (3, 3 * len("kind.x.y."))
    for entry in (entries["Spelling"], entries["ColumnSurvey"]):
        assert (entry.direction, entry.granularity, entry.epsilon) == ("up", "aggregate", None)
        assert any(reason.startswith(entry.kind) for reason in run.privacy.infinite)
    files = [SiteFile(path=site["path"], categories="one-hot") for site in sites]
    layout = laid_out(files[0], [file.survey() for file in files])
    rows = load(path=sites[0]["path"], layout=layout).rows
    np.testing.assert_array_equal(rows[:, :2].sum(axis=0), [8, 9])
    np.testing.assert_array_equal(rows[17:, :2], np.zeros((9, 2)))


def test_rejected_words_are_recorded(tmp_path: Path) -> None:
    """The column is not mapped, and the questions about it are in the ledger."""
    rows = [[f"{'abcdefgh'[row % 8]}", *numbers(row)] for row in range(32)]  # four rows each
    path = write(tmp_path / "few.csv", "kind,x,y", rows)
    run = read_run(tiny_run_with_report(tmp_path / "run", data={"path": str(path), "categories": "one-hot"}))
    assert run.data.columns == ("x", "y")
    assert run.data.sources[0].left_out == {"kind": "text without a word that 5 rows have (data.words)"}
    (spelling,) = (entry for entry in run.ledger if entry.kind == "Spelling")
    assert (spelling.count, spelling.bytes) == (3, 3 * 8 * 257)
    words = {"words": {"rows": 4}, "path": str(path), "categories": "one-hot"}
    assert len(read_run(tiny_run_with_report(tmp_path / "all", data=words)).data.columns) == 10


def test_table_and_site_files_give_equal_surveys(tmp_path: Path) -> None:
    """One table with a site column is surveyed like one file per site."""
    own = [[*COMMON, *["rest"] * 5, *["rare"] * 4], [*COMMON, *["rare"] * 4]]
    sites = sites_of(tmp_path, *own)
    rows = [
        [f"w{site}", word, *numbers(row)] for site, words in enumerate(own) for row, word in enumerate(words)
    ]
    path = write(tmp_path / "one.csv", "site,kind,x,y", rows)
    one = tiny_run_with_report(tmp_path / "one", data={"path": str(path), "categories": "one-hot"},
                   clients={"partition": {"kind": "by-column", "column": "site"}})  # fmt: skip
    several = tiny_run_with_report(
        tmp_path / "several", data={"categories": "one-hot"}, clients={"sites": sites}
    )
    maps = [pq.read_table(run / "embedding.parquet").select(["client", "x", "y"]) for run in (one, several)]
    assert maps[0].equals(maps[1])
    ledgers = [{entry.kind: entry.bytes for entry in read_run(run).ledger} for run in (one, several)]
    assert ledgers[0]["Spelling"] == ledgers[1]["Spelling"]
    assert ledgers[0]["ColumnSurvey"] == ledgers[1]["ColumnSurvey"]


def test_ledger_states_that_one_record_may_decide_columns(tmp_path: Path) -> None:
    mapped = []
    for last in ("5.1", "x"):
        rows = [[*numbers(row), ""] for row in range(30)] + [[1, 2, last]]
        path = write(tmp_path / "c.csv", "a,b,c", rows)
        taken = own_data(path, overrides={"clients.count": 2, "data.categories": "leave-out"})
        folder = tiny_run_with_report(
            tmp_path / last, **{key: dict(taken.content[key]) for key in ("data", "clients")}
        )
        run = read_run(folder)
        mapped.append(run.data.columns)
        (survey,) = (entry for entry in run.ledger if entry.kind == "ColumnSurvey")
        assert (survey.count, survey.direction, survey.bytes) == (2, "up", 2 * len("a.b.c."))
        assert "what each column holds" in survey.what
        assert run.privacy.epsilon is None
        assert any(
            text.startswith("ColumnSurvey leaves the client without protection")
            for text in run.privacy.infinite
        )
    assert mapped == [("a", "b", "c"), ("a", "b")]


CHANGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "one-hot": ({"categories": "one-hot", "features": ["a"]}, ["data.categories to error"]),
    "leave-out": ({"categories": "leave-out", "features": ["a"]}, ["data.categories to error"]),
    "nothing listed": ({}, ["data.features to the columns of numbers to map"]),
    "both": ({"categories": "leave-out"}, ["data.categories to error", "data.features to the columns"]),
}


@pytest.mark.parametrize("how", ["path", "sites"])
@pytest.mark.parametrize("strict", [True, "sums"])
@pytest.mark.parametrize("case", CHANGES)
def test_strict_run_lets_no_row_decide_columns(case: str, strict: Any, how: str) -> None:
    data, wanted = CHANGES[case]
    content: dict[str, Any] = {"privacy": {"noise": NOISE, "strict": strict}, "method": {"kind": "fedne"}}
    content |= {"data": data | ({"path": "x.csv"} if how == "path" else {})}
    if how == "sites":
        content |= {"clients": {"sites": [{"path": "x.csv"}, {"path": "y.parquet"}]}}
    with pytest.raises(ScenarioError) as refused:
        tiny_scenario(**content)
    for key in wanted:
        assert key in str(refused.value)
    assert "leave-out" not in str(refused.value)
    content["data"] = {key: value for key, value in content["data"].items() if key == "path"} | {
        "features": ["a", "b"]
    }
    tiny_scenario(**content)  # as the error suggests


def test_strict_run_with_listed_columns_has_no_survey(tmp_path: Path) -> None:
    """The claim stays finite, and no notice describes single rows."""
    rows = [[row, row % 3, *numbers(row)] for row in range(60)]
    path = write(tmp_path / "t.csv", "id_like,codes,age,dose", rows)
    data = {"path": str(path), "features": ["id_like", "codes", "age", "dose"]}
    method = {"kind": "private-map", "epsilon": 1.0, "bounds": [0, 100]}
    private = read_run(
        tiny_run_with_report(tmp_path / "private", data=data, method=method, privacy={"strict": True})
    )
    assert private.privacy.epsilon is not None
    assert not private.data.notices
    assert not {"ColumnSurvey", "Spelling", "ColumnNotices"} & {entry.kind for entry in private.ledger}
    bare = read_run(tiny_run_with_report(tmp_path / "bare", data=data))
    assert any("id_like" in notice for notice in bare.data.notices)
    (noticed,) = (entry for entry in bare.ledger if entry.kind == "ColumnNotices")
    assert (noticed.direction, noticed.count) == ("simulation-only", 3)


def test_listed_columns_are_not_surveyed(tmp_path: Path) -> None:
    """The cases include filled values, where a site may lack a column."""
    sites = [{"path": str(write(tmp_path / f"{site}.csv", "x,y", [numbers(row) for row in range(20)]))}
             for site in range(2)]  # fmt: skip
    run = read_run(tiny_run_with_report(tmp_path / "run", data={"features": ["x", "y"], "missing": "mean"},
                            clients={"sites": sites}))  # fmt: skip
    assert not {"ColumnSurvey", "Spelling"} & {entry.kind for entry in run.ledger}
    odd = SiteFile(
        path=str(write(tmp_path / "odd.csv", "x,y,z", [["2024-01-01", "a", ""], ["2024-01-02", "b", ""]]))
    )
    assert odd.survey().kinds == dict.fromkeys("xyz", "number"), "no row is looked at"


@pytest.mark.parametrize("noisy", [False, True])
def test_notices_from_single_rows_need_a_run_without_noise(tmp_path: Path, noisy: bool) -> None:
    rows = [[row * 1e4, row % 4] for row in range(30)]
    sites = [{"path": str(write(tmp_path / f"{site}.csv", "wide,code", rows))} for site in range(2)]
    noise = {"noise": {"on": "gradient", "epsilon": 5.0}} if noisy else {}
    run = read_run(tiny_run_with_report(tmp_path / "run", clients={"sites": sites}, data={"features": ["wide", "code"]},
                            privacy=noise))  # fmt: skip
    assert bool(run.data.notices) != noisy
    assert ("ColumnNotices" in {entry.kind for entry in run.ledger}) != noisy


def test_word_threshold_without_categories_is_refused() -> None:
    with pytest.raises(ScenarioError, match="words needs categories: one-hot"):
        tiny_scenario(data__words={"rows": 3})


def test_data_json_has_only_mapped_words(tmp_path: Path) -> None:
    sites = sites_of(tmp_path, [*COMMON, *["qwertz"] * 4], COMMON)
    folder = tiny_run_with_report(tmp_path / "run", data={"categories": "one-hot"}, clients={"sites": sites})
    assert json.loads((folder / "data.json").read_text())["words"] == {"kind": ["blue", "red"]}
    words = {"categories": "one-hot", "words": {"rows": 4, "sites": 1}}
    other = tiny_run_with_report(tmp_path / "other", data=words, clients={"sites": sites})
    assert json.loads((other / "data.json").read_text())["words"] == {"kind": ["blue", "qwertz", "red"]}
    assert "qwertz" not in written(folder)
