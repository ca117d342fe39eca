"""Text columns become 0/1 columns, the same at every site, without showing which site has which word."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_run, tiny_scenario

import raydr
from raydr.data import load
from raydr.data.survey.categories import MOST_WORDS
from raydr.data.survey.layout import Layout
from raydr.data.survey.spelling import spell_out, votes
from raydr.errors import DataError, ScenarioError
from raydr.front.cli import status
from raydr.front.own_data import own_data
from raydr.privacy.ledger import Granularity
from raydr.runfolder import read_run
from raydr.runfolder.model import read_model

SENSE = {"kind": "sense", "anchors": 5, "anchor_source": "random",
         "embedder": {"kind": "tsne", "early_iterations": 5, "iterations": 5}}  # fmt: skip
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


SITES = st.lists(st.lists(WORDS, max_size=5), min_size=1, max_size=4)


@given(SITES, st.integers(1, 3))
def test_spelling_finds_the_words_of_enough_sites(sites: list[list[str]], least: int) -> None:
    had = Counter(word for words in sites for word in set(words))
    assert spell_out(sites, least).words == tuple(sorted(word for word in had if had[word] >= least))


@given(SITES, st.integers(1, 3))
def test_votes_are_counted_exactly(sites: list[list[str]], least: int) -> None:
    """The count covers every question to the sites, including words that were not kept."""
    own = [{word.encode() for word in words} for words in sites]
    longest = max((len(word) for words in own for word in words), default=0)
    asked = 1  # the empty prefix, with or without words
    calls = 1
    for length in range(1, longest + 1):
        reported = Counter(
            begun for words in own for begun in {word[:length] for word in words if len(word) >= length}
        )
        begun = sum(count >= least for count in reported.values())
        asked, calls = asked + begun, calls + (begun > 0)
    spelt = spell_out(sites, least)
    assert (spelt.calls, spelt.votes) == (calls, 257 * asked)
    assert votes(own[0], [b""]).size == 257


def patients(path: Path) -> Path:
    """Write a table with different words per site, dates, identities, free text and an empty column."""
    random = np.random.default_rng(0)
    lines = ["hospital,patient_id,visit,sex,age,thal,remark,spare,diagnosis"]
    for row in range(120):
        hospital = ("east", "north", "west")[row // 40]
        thal = ("fixed", "normal") if hospital == "east" else ("normal", "rückläufig", "")
        cells = [
            hospital,
            row + 1000,
            f"2024-0{1 + row % 9}-11",
            ("f", "m")[row % 2],
            random.integers(20, 90),
        ]
        cells += [thal[row % len(thal)], f"remark {row}", "", ("yes", "no")[row % 2]]
        lines.append(",".join(map(str, cells)))
    path.write_text("\n".join(lines) + "\n")
    return path


LEFT_OUT = {
    "diagnosis": "the label",
    "hospital": "the client",
    "patient_id": "an identity by its name",
    "visit": "dates or times",
    "remark": "text with more than one value for every two rows: an identity or free text",
    "spare": "no value at all",
}
MAPPED = ("sex=f", "sex=m", "age", "thal=normal", "thal=rückläufig")
"""Only one site has thal=fixed, so its rows have none of the words."""
THAL = ("normal", "rückläufig")


def settings(table: Path, **data: Any) -> dict[str, Any]:
    return {
        "data": {
            "path": str(table),
            "label": "diagnosis",
            "missing": "median",
            "categories": "one-hot",
            "scale": "standard",
            **data,
        },
        "clients": {"partition": {"kind": "by-column", "column": "hospital"}},
        "method": SENSE,
    }


def test_text_columns_are_one_hot_encoded(tmp_path: Path) -> None:
    table = load(path=patients(tmp_path / "p.csv"), label="diagnosis", client="hospital", missing="median",
                 categories="one-hot")  # fmt: skip
    assert table.features == MAPPED
    assert table.words == {"sex": ("f", "m"), "thal": THAL}
    assert table.read_from.left_out == LEFT_OUT
    expected = np.zeros((120, 2))
    for row in range(120):
        words = ("fixed", "normal") if row < 40 else ("normal", "rückläufig", "")
        word = words[row % len(words)]
        expected[row] = np.nan if word == "" else [word == name for name in table.words["thal"]]
    np.testing.assert_array_equal(table.rows[:, 3:], expected)
    np.testing.assert_array_equal(table.rows[:, 0], np.arange(120) % 2 == 0)


def test_parquet_and_csv_are_read_equally(tmp_path: Path) -> None:
    import pyarrow.csv as arrow_csv

    table = arrow_csv.read_csv(patients(tmp_path / "p.csv"))
    pq.write_table(table.set_column(3, "sex", table["sex"].dictionary_encode()), tmp_path / "p.parquet")
    one, other = (
        load(
            path=tmp_path / f"p.{kind}",
            label="diagnosis",
            client="hospital",
            missing="drop",
            categories="one-hot",
        )
        for kind in ("csv", "parquet")
    )
    assert one.features == other.features
    np.testing.assert_array_equal(one.rows, other.rows)


@pytest.mark.parametrize("categories", ["error", "leave-out"])
def test_text_columns_are_not_mapped_by_default(tmp_path: Path, categories: Any) -> None:
    path = patients(tmp_path / "p.csv")
    if categories == "error":
        with pytest.raises(DataError, match="the feature column 'visit' is not numeric"):
            load(path=path, label="diagnosis", client="hospital", missing="median")
        return
    table = load(path=path, label="diagnosis", client="hospital", missing="median", categories=categories)
    assert table.features == ("age",)
    assert table.read_from.left_out == LEFT_OUT | {"sex": "text", "thal": "text"}


def test_misspelt_number_is_not_a_category(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,four\n5,6\n")
    with pytest.raises(DataError, match="holds 'four' on line 3"):
        load(path=tmp_path / "x.csv", categories="one-hot")


def test_listed_identity_column_is_mapped(tmp_path: Path) -> None:
    table = load(path=patients(tmp_path / "p.csv"), features=["patient_id", "age"], categories="one-hot")
    assert table.features == ("patient_id", "age")


def test_at_most_fifty_words_are_encoded(tmp_path: Path) -> None:
    for count in (MOST_WORDS, MOST_WORDS + 1):
        path = tmp_path / f"{count}.csv"
        path.write_text("kind,a\n" + "".join(f"k{row % count},{row}\n" for row in range(5 * count)))
        assert len(load(path=path, categories="one-hot").features) == (51 if count == MOST_WORDS else 1)


def split(folder: Path, table: Path) -> list[dict[str, str]]:
    """Write a file for each hospital, including the hospital column."""
    header, *lines = table.read_text().splitlines()
    sites = []
    for name in ("east", "north", "west"):
        own = [line for line in lines if line.startswith(name)]
        (folder / f"{name}.csv").write_text("\n".join([header, *own]) + "\n")
        sites.append({"path": str(folder / f"{name}.csv")})
    return sites


@pytest.mark.parametrize("federation", ["inline", pytest.param("ray", marks=pytest.mark.ray)])
def test_sites_with_different_words_equal_one_table(tmp_path: Path, federation: str) -> None:
    table = patients(tmp_path / "p.csv")
    one = tiny_run(tmp_path / "one", **settings(table))
    content = settings(table, path=None) | {"clients": {"sites": split(tmp_path, table)}}
    other = tiny_run(tmp_path / "other", **content, runtime={"federation": federation})
    maps = (
        pq.read_table(run / "embedding.parquet").select(["client", "x", "y"]).to_pylist()
        for run in (one, other)
    )
    assert next(maps) == next(maps)
    spelt = [spell_out(sites, 2) for sites in ([["f", "m"]] * 3, [["fixed", "normal"], THAL, THAL])]
    calls, cast = max(words.calls for words in spelt), sum(words.votes for words in spelt)
    for run in (one, other):
        found = read_run(run)
        assert found.data.columns == MAPPED
        (spelling,) = (entry for entry in found.ledger if entry.kind == "Spelling")
        assert (spelling.count, spelling.bytes) == (3 * calls, 3 * 8 * cast)
        assert spelling.granularity is Granularity.AGGREGATE
    assert (
        read_run(other).data.sources[0].left_out["hospital"]
        == "one word in all rows of each site: it names the site, or does not tell rows apart"
    )


def folder_of(folder: Path, **headers: str) -> Path:
    """Write a file for each site with columns of numbers and one label column."""
    folder.mkdir()
    for site, header in headers.items():
        numbers = ([str((i * (3 + j)) % 11) for j in range(header.count(",") + 1)] for i in range(12))
        lines = [f"{','.join(row)},{'uv'[i % 2]}" for i, row in enumerate(numbers)]
        (folder / f"{site}.csv").write_text("\n".join([f"{header},kind", *lines]) + "\n")
    return folder


def test_differently_spelt_column_is_refused_not_filled(tmp_path: Path) -> None:
    sites = folder_of(tmp_path / "sites", north="Age,dose", south="age,dose")
    with pytest.raises(DataError, match="the column 'Age' is 'age' in another file"):
        own_data(sites, label="kind")
    both = own_data(sites, label="kind", overrides={"data.features": ["Age", "age", "dose"]})
    assert both.scenario.data.features == ("Age", "age", "dose")
    two = folder_of(tmp_path / "two", north="x,X,dose", south="x,dose")
    assert own_data(two, label="kind").scenario.data.missing == "median", "two columns of one file are two"


def test_site_without_shared_columns_is_refused(tmp_path: Path) -> None:
    sites = folder_of(tmp_path / "sites", north="age,dose", south="dose,age", east="pulse,size")
    with pytest.raises(DataError, match="one file has only 'pulse', 'size'"):
        own_data(sites, label="kind")
    (sites / "east.csv").write_text("pulse,size,kind\n")
    assert dict(own_data(sites, label="kind").content["clients"]), (
        "a site without rows has nothing to compare"
    )


def test_column_with_text_and_numbers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n2,3\n")
    (tmp_path / "b.csv").write_text("x,y\nlow,2\nhigh,3\n")
    sites = [{"path": str(tmp_path / name)} for name in ("a.csv", "b.csv")]
    with pytest.raises(DataError, match="the column 'x' is text in some files and numbers in others"):
        tiny_run(tmp_path / "run", data={"categories": "one-hot"}, clients={"sites": sites}, method=SENSE)


def test_new_rows_use_the_words_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny_run(tmp_path / "run", **settings(patients(tmp_path / "p.csv")))
    assert read_model(folder).card.words == {"sex": ("f", "m"), "thal": THAL}
    (tmp_path / "new.csv").write_text("thal,age,sex\nfixed,50,m\nnormal,,f\nunheard of,60,m\n")
    assert (
        status(["transform", str(folder), str(tmp_path / "new.csv"), "--out", str(tmp_path / "out.csv")]) == 0
    )
    assert "'thal' holds 'fixed', 'unheard of', which the map does not have" in " ".join(
        capsys.readouterr().err.split()
    )
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 4
    table = load(
        path=tmp_path / "new.csv",
        missing="median",
        layout=Layout.of(MAPPED, read_model(folder).card.words, {}, {}),
        for_map=False,
    )
    np.testing.assert_array_equal(table.rows, [[0, 1, 50, 0, 0], [1, 0, np.nan, 1, 0], [0, 1, 60, 0, 0]])


def test_run_with_categories_is_planned_audited_and_repeated(tmp_path: Path) -> None:
    table = patients(tmp_path / "p.csv")
    content = settings(table)
    folder = tiny_run(tmp_path / "run", **content)
    assert status(["audit", str(folder), "--quiet", "--attack", "trilateration"]) == 0
    assert status(["plan", str(folder / "scenario.yaml"), "--json", str(tmp_path / "plan.json")]) == 0
    planned = {entry["kind"]: entry for entry in json.loads((tmp_path / "plan.json").read_text())["messages"]}
    (spelling,) = (entry for entry in read_run(folder).ledger if entry.kind == "Spelling")
    assert (planned["Spelling"]["count"], planned["Spelling"]["bytes"]) == (spelling.count, spelling.bytes)
    again = raydr.run(folder / "scenario.yaml", out=tmp_path / "again").folder
    assert (again / "embedding.parquet").read_bytes() == (folder / "embedding.parquet").read_bytes()


def test_strict_run_refuses_unprotected_words() -> None:
    noise = {"on": "data", "clip": 2.0, "epsilon": 0.25, "stage": "all"}
    with pytest.raises(ScenarioError, match=r"privacy\.strict requires noise on every message"):
        tiny_scenario(
            data__categories="one-hot", privacy={"noise": noise, "strict": True}, method={"kind": "fedne"}
        )


def test_column_named_like_an_encoded_word_is_refused(tmp_path: Path) -> None:
    table = pa.table({"sex": ["f", "m"] * 5, "sex=f": [1.0, 2.0] * 5})
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(DataError, match="more than one column named 'sex=f'"):
        load(path=tmp_path / "x.parquet", categories="one-hot")
