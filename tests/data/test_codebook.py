"""A codebook says how columns are read: by every command, for new rows, and without its file."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from resumed import interrupted

import raydr
from raydr.data.survey.circles import is_circular
from raydr.data.survey.codebook import BETWEEN, Codebook, ColumnSettings, codebook_of, read_codebook, written
from raydr.data.survey.raw_cells import raw_columns
from raydr.data.survey.scales import in_order
from raydr.documents import parse_yaml
from raydr.errors import DataError, ScenarioError
from raydr.front.cli import status
from raydr.front.columns import written_codebook
from raydr.front.own_data import held, own_data, own_rows
from raydr.front.submission import submission
from raydr.geometry.points import unheard
from raydr.runfolder import read_run
from raydr.scenarios.afterwards.joining import join
from raydr.scenarios.afterwards.transforming import transform
from raydr.scenarios.runner import run
from raydr.scenarios.running.client_data import ClientData, dealt_out
from raydr.scenarios.schema.reading import dump, read
from raydr.statistics.preparing import Preparation
from raydr.statistics.scaling import Scaling
from raydr.tune.reading import read_sweep

PAIN = ("none", "mild", "moderate", "severe")
QUICK = {
    "runtime.federation": "inline",
    "metrics": [],
    "compare": [],
    "data.scale": "minmax",
    "data.missing": "median",
}
BOOK = """column,role,kind,unit,low,high,words,missing,period
hospital,site,,,,,,,
pain,mapped,ordinal,,,,none | mild | moderate | severe,unsure,
score,mapped,number,,0,10,,-99 | 98,
visits,mapped,count,,0,,,,
angle,mapped,circular,degrees,,,,,360
pressure,mapped,pair,,,,,,
dose,mapped,number,mg,,,,,
note,left out,,,,,,,
dx,label,,,,,,,
"""


def table(rows: int = 60, seed: int = 0) -> dict[str, list[Any]]:
    random = np.random.default_rng(seed)
    score = random.integers(0, 11, rows).tolist()
    score[3], score[8] = -99, 98
    return {
        "hospital": [f"h{row % 3}" for row in range(rows)],
        "pain": random.choice([*PAIN, "unsure"], rows).tolist(),
        "score": score,
        "visits": random.integers(0, 400, rows).tolist(),
        "angle": random.integers(0, 360, rows).tolist(),
        "pressure": [f"{upper}/{upper - 40}" for upper in random.integers(100, 180, rows)],
        "dose": [f"{value:.1f} mg" for value in random.normal(20, 3, rows)],
        "note": random.integers(0, 9, rows).tolist(),
        "dx": random.choice(["ill", "well"], rows).tolist(),
    }


def by_hand(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Code the table as the codebook says, cell by cell."""
    angles = 2 * np.pi * np.array(columns["angle"]) / 360
    pairs = [text.split("/") for text in columns["pressure"]]
    return {
        "hospital": columns["hospital"],
        "pain": ["" if word == "unsure" else PAIN.index(word) for word in columns["pain"]],
        "score": ["" if value in (-99, 98) else value for value in columns["score"]],
        "visits": [repr(float(np.log1p(value))) for value in columns["visits"]],
        "angle (sine)": [repr(float(value)) for value in np.sin(angles)],
        "angle (cosine)": [repr(float(value)) for value in np.cos(angles)],
        "pressure (first)": [first for first, _ in pairs],
        "pressure (second)": [second for _, second in pairs],
        "dose": [text.removesuffix(" mg") for text in columns["dose"]],
        "dx": columns["dx"],
    }


def write_table(path: Path, columns: dict[str, list[Any]]) -> Path:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return path


def read_rows(data: Path, codebook: Path | None = None, **given: Any) -> ClientData:
    return own_rows(
        data,
        site=given.pop("site", None),
        label=given.pop("label", None),
        codebook=codebook,
        method="fed-pca",
        overrides=QUICK | given,
        site_needed=False,
        progress=unheard,
    )[1]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_table(tmp_path / "patients.csv", table())


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.csv"
    path.write_text(BOOK)
    return path


def changed(book: Path, before: str, after: str) -> Path:
    text = book.read_text()
    assert before in text
    book.write_text(text.replace(before, after))
    return book


def test_columns_are_read_as_the_codebook_says(data: Path, book: Path, tmp_path: Path) -> None:
    """The rows equal those of a table that was coded by hand."""
    found = read_rows(data, book)
    hand = read_rows(write_table(tmp_path / "hand.csv", by_hand(table())), label="dx")
    assert found.feature_names == hand.feature_names
    assert np.array_equal(found.pooled(), hand.pooled(), equal_nan=True)
    assert np.isnan(found.pooled()).sum() == 2 + table()["pain"].count("unsure")
    assert (found.names, found.label_names) == (("h0", "h1", "h2"), ("ill", "well")), "by the roles"
    assert found.sources[0].left_out["note"] == "left out in data.codebook"


def test_the_written_codebook_reads_the_table_as_before(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "written.csv"
    arguments = [str(data), "--label", "dx", "--codebook", str(path)]
    assert status(["init", *arguments, "--out", str(tmp_path / "own.yaml")]) == 0
    before, after = read_rows(data, label="dx"), read_rows(data, path)
    assert after.feature_names == before.feature_names
    assert np.array_equal(after.pooled(), before.pooled(), equal_nan=True)
    assert after.pooled().dtype == before.pooled().dtype
    assert not any(row.low or row.high for row in read_codebook(path).rows), "rows decide no public limits"
    scenario = read(tmp_path / "own.yaml")
    assert scenario.data.codebook == read_codebook(path).rows
    assert scenario.data.missing == "median", "codes that are added later can be missing values"
    assert status(["init", *arguments, "--out", str(tmp_path / "again.yaml")]) == 0, "an existing one is used"
    assert read(tmp_path / "again.yaml").data.codebook == scenario.data.codebook


def test_the_written_codebook_keeps_limits_that_were_given(data: Path, book: Path) -> None:
    scenario = own_data(data, codebook=book, overrides=QUICK).scenario
    again = written_codebook(scenario, read_rows(data, book))
    book.write_text(again)
    assert read_codebook(book).by_name["score"].high == 10


def test_limits_of_a_codebook_are_known_ranges_of_a_private_map(data: Path, book: Path) -> None:
    limits = [
        ColumnSettings(column="score", kind="number", low=0, high=1, missing=("-99", "98")).model_dump()
    ]
    private = {"data.codebook": limits, "method": {"kind": "private-map", "epsilon": 2.0}}
    own, rows = own_rows(
        data, site=None, label=None, codebook=None, method=None, overrides=private, site_needed=False
    )
    (score,) = [column for column in raw_columns(rows.layout) if column.name == "score"]
    assert (score.low, score.high, score.is_known) == (0, 1, True)
    assert own.scenario.data.scale == "none"
    with pytest.raises(ScenarioError, match=r"leave data\.scale out"):
        own_data(data, overrides=private | {"data.scale": "standard"}, site_needed=False)


text = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1)


@given(st.lists(text.filter(lambda word: "|" not in word), min_size=2, unique=True), st.floats(-1e9, 1e9))
def test_a_codebook_is_read_as_it_was_written(words: list[str], low: float) -> None:
    rows = (
        ColumnSettings(column=words[0], kind="ordinal", words=tuple(words), missing=(words[1],)),
        ColumnSettings(column=words[1], kind="count", low=low, unit="kg"),
        ColumnSettings(column="x" + words[0] + words[1], role="left out"),
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "read_bytes", lambda _: written(rows).encode())
        assert read_codebook(Path("book.csv")).rows == rows


def test_a_word_with_the_separator_leaves_the_words_to_the_survey() -> None:
    rows = [ColumnSettings(column="film", kind="words", words=(f"good{BETWEEN}bad", "Drama|Comedy"))]
    assert "good" not in written(rows)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_spreadsheets_write_codebooks_in_other_formats(book: Path, tmp_path: Path, separator: str) -> None:
    columns = list(csv.reader(BOOK.splitlines()))
    columns[3][4] = "0,5"
    other = tmp_path / "other.csv"
    text = "\n".join(separator.join(cells) for cells in columns) + "\n"
    other.write_bytes(text.encode("utf-8-sig"))
    found = read_codebook(other)
    assert found.by_name["score"].low == 0.5
    assert [row.column for row in found.rows] == [row.column for row in read_codebook(book).rows]


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        ("score,mapped", "scores,mapped", ["row 4 of --codebook", "'scores'", "did you mean score"]),
        ("note,left out", "dx,left out", ["the column 'dx' twice"]),
        ("none | mild", "nonne | mild", ["'pain'", "'none' on line", "did you mean nonne"]),
        ("pressure,mapped,pair", "pressure,mapped,number", ["'pressure'", "on line 2", "Correct or empty"]),
        ("visits,mapped,count,,0", "score2,mapped,count,,0", ["has no column 'score2'"]),
        ("angle,mapped,circular,degrees,,,,,360", "angle,mapped,circular,,,,,,", ["row 6: a circular column"]),
        ("score,mapped,number", "score,mapped,numeric", ["row 4: kind is 'numeric'", "'ordinal'"]),
        ("0,10,", "10,0,", ["row 4: low is 10 and high is 0"]),
        ("0,10,", "zero,10,", ["row 4: low is 'zero'"]),
        ("column,role", "column,roll", ["has the column 'roll' (did you mean role?)"]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(
    data: Path, book: Path, before: str, after: str, parts: list[str]
) -> None:
    changed(book, before, after)
    with pytest.raises((DataError, ScenarioError)) as caught:
        read_rows(data, book)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_numbers_outside_the_limits_are_said(data: Path, book: Path) -> None:
    assert not any("outside" in notice for notice in read_rows(data, book).notices)
    found = read_rows(data, changed(book, "-99 | 98", "98"))
    assert any("'score': some numbers are outside 0 to 10" in notice for notice in found.notices)
    assert found.pooled()[3, 1] == -99


def test_a_negative_count_and_roles_that_contradict_are_refused(data: Path, book: Path) -> None:
    with pytest.raises(DataError, match="'note' has the role left out, but --label names it"):
        read_rows(data, book, label="note")
    changed(book, "score,mapped,number,,0,10,,-99 | 98", "score,mapped,count,,,,,")
    with pytest.raises(DataError, match=r"'score' is a count .* it is -99 on line 5"):
        read_rows(data, book)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"PK\x03\x04\x00\xff", b"column\n" + b"x" * 200_000])
def test_other_files_are_no_codebooks(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "book.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"The codebook .*book.csv"):
        read_codebook(path)


def test_a_misspelt_word_is_refused(tmp_path: Path) -> None:
    data = write_table(tmp_path / "t.csv", {"x": list(range(40)), "sex": ["female", "male"] * 20})
    book = tmp_path / "book.csv"
    book.write_text("column,kind,words\nsex,words,femal | male\n")
    with pytest.raises(DataError, match=r"no row has 'femal' in the column 'sex', .* \(did you mean female"):
        read_rows(data, book)
    book.write_text("column,kind,words\nsex,words,female | male | other\n")
    assert read_rows(data, book).feature_names == ("x", "sex=female", "sex=male", "sex=other")


def test_harmonizing_keeps_the_effect_of_a_circular_column(data: Path, book: Path) -> None:
    keep = {"data.harmonize.kind": "center", "data.harmonize.keep": ["angle", "pain"]}
    found = read_rows(data, book, **keep).harmonizing
    assert found is not None
    assert found.names == ("angle (sine)", "angle (cosine)", "pain")


def test_a_scenario_names_the_columns_of_roles_itself(data: Path, book: Path) -> None:
    scenario = {
        "name": "x",
        "data": {"path": str(data), "codebook": str(book), "missing": "median"},
        "clients": {"partition": {"kind": "by-column", "column": "hospital"}},
        "method": {"kind": "fed-pca"},
    }
    with pytest.raises(DataError, match=r"'dx' has the role label, but data.label does not name it"):
        held(read(scenario))
    assert held(read(scenario, {"data.label": "dx"})).rows == 60


def test_a_strict_run_asks_no_row_for_words(data: Path) -> None:
    """With all words in the codebook, nothing about the rows decides how they are read."""
    scenario = {
        "name": "x",
        "data": {"path": str(data), "features": ["pain", "score"]},
        "clients": {"partition": {"kind": "by-column", "column": "hospital"}},
        "method": {"kind": "private-map", "epsilon": 1.0, "bounds": [0, 10]},
        "privacy": {"strict": True},
    }
    codebook = [
        {"column": "score", "kind": "number"},
        {"column": "pain", "kind": "words", "words": [*PAIN, "unsure"]},
    ]
    assert read(scenario, {"data.codebook": codebook}).privacy.strict
    client_data = dealt_out(read({**scenario, "privacy": {}}, {"data.codebook": codebook}), None)
    assert client_data.agreed is None
    del codebook[1]["words"]
    with pytest.raises(ScenarioError, match="words of each column of words"):
        read(scenario, {"data.codebook": codebook})


def test_the_kind_in_a_codebook_ends_guesses(tmp_path: Path) -> None:
    columns = {"grade": [row % 5 for row in range(40)], "form": [1 + row % 4 for row in range(40)]}
    columns["level"] = [999 if row == 5 else row / 3 for row in range(40)]  # type: ignore[misc]
    data = write_table(tmp_path / "t.csv", columns)
    assert any("'grade', 'form': a few small whole numbers" in each for each in read_rows(data).notices)
    (tmp_path / "book.csv").write_text("column,kind,missing\ngrade,number,\nform,words,\nlevel,number,999\n")
    found = read_rows(data, tmp_path / "book.csv")
    assert found.notices == ()
    assert found.feature_names == ("grade", *(f"form={form}" for form in range(1, 5)), "level")
    assert np.isnan(found.pooled()[5, -1])


class TestScales:
    def test_a_clear_scale_is_read_in_order_and_said(self, tmp_path: Path) -> None:
        words = ["Severe", "None", "Moderate", "Mild"]
        columns = {"x": list(range(40)), "pain": [words[row % 4] for row in range(40)]}
        columns["pain"][5] = "itchy"  # one row: no site reports it
        found = read_rows(write_table(tmp_path / "t.csv", columns))
        assert found.feature_names == ("x", "pain")
        order = {"None": 0, "Mild": 1, "Moderate": 2, "Severe": 3}
        expected = [order.get(word, np.nan) for word in columns["pain"]]
        assert np.array_equal(found.pooled()[:, 1], expected, equal_nan=True)
        assert any(
            "'pain': read as ordinal: None < Mild < Moderate < Severe" in each for each in found.notices
        )

    def test_the_codebook_wins(self, tmp_path: Path) -> None:
        columns = {"x": list(range(40)), "pain": [PAIN[row % 4] for row in range(40)]}
        data = write_table(tmp_path / "t.csv", columns)
        (tmp_path / "book.csv").write_text("column,kind\npain,words\n")
        found = read_rows(data, tmp_path / "book.csv")
        assert found.feature_names == ("x", *(f"pain={word}" for word in sorted(PAIN)))
        assert not any("read as" in notice for notice in found.notices)

    @pytest.mark.parametrize(
        "scale",
        [
            ["Strongly disagree", "Disagree", "Neutral", "Agree", "Strongly agree"],
            ["never", "rarely", "sometimes", "often", "always"],
            ["low", "medium", "high"],
            ["poor", "fair", "good", "very good", "excellent"],
            ["Stage I", "Stage II", "Stage III", "Stage IV"],
        ],
    )
    def test_scales_from_low_to_high(self, scale: list[str]) -> None:
        assert in_order(sorted(scale)) == tuple(scale)

    @pytest.mark.parametrize(
        "words",
        [
            ["low", "high"],
            ["red", "green", "blue"],
            ["mild", "Mild", "none"],
            ["no", "mild", "other"],
            ["I", "II", "III"],
        ],
    )
    def test_other_words_have_no_order(self, words: list[str]) -> None:
        assert in_order(words) is None


class TestRecognised:
    """Kinds that the survey recognises; each is said, and a codebook or another name changes it."""

    def test_hours_months_and_directions_are_circles(self, tmp_path: Path) -> None:
        months = ["Jan", "Feb", "Mar", "Jun", "Dec"]
        columns = {
            "Hour": [row % 24 for row in range(48)],
            "month": [months[row % 5] for row in range(48)],
            "wind_direction": [7.5 * row for row in range(48)],
            "hours": [row % 24 for row in range(48)],
        }
        found = read_rows(write_table(tmp_path / "t.csv", columns))
        circles = [f"{column} ({part})" for column in list(columns)[:3] for part in ("sine", "cosine")]
        assert found.feature_names == (*circles, "hours")
        places = {"Jan": 0, "Feb": 1, "Mar": 2, "Jun": 5, "Dec": 11}
        angles = [np.array(columns["Hour"]) / 24, np.array([places[month] for month in columns["month"]]) / 12,
                  np.array(columns["wind_direction"]) / 360]  # fmt: skip
        expected = [part(2 * np.pi * angle) for angle in angles for part in (np.sin, np.cos)]
        assert np.allclose(found.pooled()[:, :6].T, expected, atol=1e-15)
        said = "\n".join(found.notices)
        assert all(f"'{column}': read as circular" in said for column in list(columns)[:3])

    @pytest.mark.parametrize("other", [24, 3.5, -1])
    def test_numbers_off_the_circle_stay_numbers(self, tmp_path: Path, other: float) -> None:
        hours = [row % 24 for row in range(47)]
        assert is_circular("hour", np.array(hours, float))
        data = write_table(tmp_path / "t.csv", {"hour": [*hours, other], "x": list(range(48))})
        assert read_rows(data).feature_names == ("hour", "x")

    def test_compact_dates_are_left_out_and_said(self, tmp_path: Path) -> None:
        columns = {"visit": [20210301 + row % 28 for row in range(40)], "x": [row / 3 for row in range(40)]}
        found = read_rows(write_table(tmp_path / "t.csv", columns))
        assert found.feature_names == ("x",)
        assert any("'visit': dates such as 20210305, so it is left out" in each for each in found.notices)
        columns["visit"][7] = 20210399
        assert read_rows(write_table(tmp_path / "u.csv", columns)).feature_names == ("visit", "x")

    def test_marked_numbers_are_read_and_said(self, tmp_path: Path) -> None:
        columns = {
            "crp": ["<0.5", ">90", *(str(row / 3) for row in range(38))],
            "change": ["(1,200)", *(str(row) for row in range(39))],
            "age": ["<18", "18", ">65", "65"] * 10,
        }
        found = read_rows(write_table(tmp_path / "t.csv", columns))
        assert found.feature_names == ("crp", "change", "age")
        assert found.pooled()[:4, 2].tolist() == [0, 1, 3, 2], "few words that repeat are no numbers"
        assert found.pooled()[:2, 0].tolist() == [0.5, 90]
        assert found.pooled()[0, 1] == -1200
        said = "\n".join(found.notices)
        assert "'crp': limits of detection" in said
        assert "'change': numbers in parentheses" in said


def test_check_says_how_much_each_column_varies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under standard, each column counts alike, however many features it has."""
    random = np.random.default_rng(0)
    columns = {
        "x": random.normal(size=60).tolist(),
        "hour": random.integers(0, 24, 60).tolist(),
        "word": random.choice(["red", "green", "blue"], 60).tolist(),
        "large": (100 * random.normal(size=60)).tolist(),
    }
    data, out = write_table(tmp_path / "t.csv", columns), tmp_path / "survey.json"
    for metric, scale, expected in (
        ("euclidean", "standard", dict.fromkeys(columns, 0.25)),
        ("gower", "none", {"x": 0.1, "large": 0.1}),
        ("euclidean", "none", {"large": 0.999}),
    ):
        keys = ["--set", f"data.scale={scale}", "--set", f"data.metric={metric}"]
        assert status(["check", str(data), "--json", str(out), *keys]) == 0
        shares = {
            column["name"]: column["variance_share"] for column in json.loads(out.read_text())["columns"]
        }
        assert sum(shares.values()) == pytest.approx(1)
        assert all(shares[column] >= share - 1e-5 for column, share in expected.items())
    assert "Share of the variance: large 100.0%" in capsys.readouterr().out


def test_opposite_hours_have_distance_one_under_minmax(tmp_path: Path) -> None:
    """As the least and the largest number of a column, which is the contribution to Gower's distance."""
    hours = [0, 6, 12, 18] * 10
    data = write_table(tmp_path / "t.csv", {"hour": hours, "x": list(range(40))})
    client_data = read_rows(data)
    rows = client_data.pooled()
    plain = Scaling(np.zeros(3), np.ones(3))
    joint = client_data.layout.joint
    scaled = Preparation(plain).without_harmonizing(rows, "minmax", joint)[:, :2]
    assert np.linalg.norm(scaled[0] - scaled[2]) == pytest.approx(1)
    assert joint.scaled("standard") == ((0, 2),)


def test_new_rows_and_sites_are_read_by_the_codebook_of_the_run(
    data: Path, book: Path, tmp_path: Path
) -> None:
    """Without the file of the codebook, rows come to the place that rows coded by hand have."""
    hand = write_table(tmp_path / "hand.csv", by_hand(table()))
    own = [
        own_rows(path, site=None, label="dx", codebook=codebook, method="fed-pca", overrides=QUICK,
                 site_needed=True, progress=unheard)[0].scenario
        for path, codebook in ((data, book), (hand, None))
    ]  # fmt: skip
    stored = dump(own[0])
    book.unlink()
    assert read(parse_yaml(stored)) == own[0], "the run folder's scenario needs no file"
    runs = [run(scenario, out=tmp_path / f"run{place}", report=False) for place, scenario in enumerate(own)]
    fresh = table(12, seed=3)
    files = [
        write_table(tmp_path / name, columns)
        for name, columns in (("new.csv", fresh), ("new-hand.csv", by_hand(fresh)))
    ]
    places = []
    for folder, file in zip(runs, files, strict=True):
        transform(folder, file, tmp_path / f"{folder.name}.csv")
        join(folder, file, site="south")
        placed = pd.read_parquet(folder / "joined" / "1" / "embedding.parquet")
        places.append(
            (
                pd.read_parquet(folder / "embedding.parquet")[["x", "y"]],
                pd.read_csv(tmp_path / f"{folder.name}.csv"),
                placed[["x", "y"]],
            )
        )
    for mine, theirs in zip(*places, strict=True):
        assert mine.equals(theirs)


def test_a_resumed_run_and_a_sweep_need_no_file(tmp_path: Path) -> None:
    book = tmp_path / "codes.csv"
    book.write_text("column,kind,low,missing\na,number,-9,0\nb,count,,\n")

    def with_codebook(scenario: dict[str, Any]) -> None:
        data = Path(scenario["data"]["path"])
        data.write_text(data.read_text().replace(",-", ","))
        scenario["data"] |= {"codebook": str(book), "missing": "median"}

    kept = interrupted(tmp_path, with_codebook)
    stored = kept / "scenario.yaml"
    straight = run(read(stored), out=tmp_path / "whole", report=False)
    sweep = {"name": "x", "base": parse_yaml(stored.read_text()), "space": {"method.landmarks": [5, 6]}}
    sweep["base"]["data"]["codebook"] = str(book)
    trials = read_sweep(sweep)
    book.unlink()
    resumed = raydr.resume(kept).folder
    for name in ("embedding.parquet", "data.json", "model/model.json"):
        assert (resumed / name).read_bytes() == (straight / name).read_bytes()
    assert read(trials.base).data.codebook == read(resumed / "scenario.yaml").data.codebook
    assert list(read_run(resumed).data.codings) == ["a", "b"]


def test_a_submitted_sweep_over_codebooks_takes_them_along(data: Path, book: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text(book.read_text().replace("ordinal", "words"))
    own = own_data(data, site="hospital", label="dx", overrides=QUICK)
    base = {**own.content, "data": {**own.content["data"], "codebook": str(book)}}
    sweep = {"name": "x", "base": base, "space": {"data.codebook": [str(book), str(other)]}}
    (tmp_path / "sweep.yaml").write_text(json.dumps(sweep))
    sent = submission(str(tmp_path / "sweep.yaml"), {}, None)
    (axis,) = parse_yaml(bytes(sent.work["sweep.yaml"]).decode())["space"]["data.codebook"]
    assert [Path(name).name for name in axis["grid"]] == ["book.csv", "other.csv"]
    assert [sent.work[name] for name in axis["grid"]] == [book, other]
    assert not sent.remarks


def test_sites_with_files_of_their_own_agree(data: Path, book: Path, tmp_path: Path) -> None:
    whole = table()
    (tmp_path / "sites").mkdir()
    for site in ("h0", "h1", "h2"):
        rows = [row for row, name in enumerate(whole["hospital"]) if name == site]
        columns = {
            name: [values[row] for row in rows] for name, values in whole.items() if name != "hospital"
        }
        write_table(tmp_path / "sites" / f"{site}.csv", columns)
    one = read_rows(data, book)
    many = read_rows(tmp_path / "sites", book)  # whose column of sites no file has
    assert many.feature_names == one.feature_names
    order = np.argsort(one.client_of_row, kind="stable")
    assert np.array_equal(many.pooled(), one.pooled()[order], equal_nan=True)
    with pytest.raises(DataError, match=r"has no column 'dose2', which row 8 of --codebook names"):
        read_rows(tmp_path / "sites", changed(book, "dose,", "dose2,"))
    with pytest.raises(DataError, match=r"no column 'nota', which --codebook names"):
        read_rows(tmp_path / "sites", changed(changed(book, "dose2,", "dose,"), "note,", "nota,"))


def test_estimators_read_data_frames_by_a_codebook(data: Path, book: Path) -> None:
    frame = pd.DataFrame(table()).drop(columns=["dx", "hospital"])
    rows = [{"column": row.column, **row.model_dump()} for row in read_codebook(book).rows]
    settings: dict[str, Any] = {"scale": "minmax", "metrics": ()}
    assert codebook_of(rows) == read_codebook(book)
    fitted = raydr.FedPCA(codebook=book, **settings).fit(frame)
    hand = pd.DataFrame(by_hand(table())).drop(columns=["dx", "hospital"])
    hand = hand.apply(pd.to_numeric).astype(float)
    expected = raydr.FedPCA(**settings).fit(hand)
    assert np.array_equal(fitted.embedding_, expected.embedding_)
    book.unlink()
    assert np.array_equal(fitted.transform(frame[:9]), expected.transform(hand[:9]))
    with pytest.raises(DataError, match="give a data frame"):
        raydr.FedPCA(codebook=rows).fit(np.eye(40))


def test_rows_of_a_codebook_stand_in_a_scenario(data: Path) -> None:
    book = Codebook((ColumnSettings(column="score", kind="number", missing=(-99,)),))  # type: ignore[arg-type]
    assert book.rows[0].missing == ("-99",)
    assert book.codings["score"].missing_numbers == [-99.0]
