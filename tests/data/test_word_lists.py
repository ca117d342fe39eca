"""Lists of words in cells become zeros and ones, and weigh as one column."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydr.data.alike import load_alike
from raydr.data.loading import load
from raydr.data.site import SiteFile, laid_out
from raydr.data.survey.codebook import Codebook, ColumnSettings
from raydr.data.survey.columns import Alike
from raydr.data.survey.layout import JointColumns
from raydr.data.survey.spelling import Threshold
from raydr.data.survey.word_lists import are_lists, words_of
from raydr.data.table import Table
from raydr.errors import DataError
from raydr.statistics.dissimilarity import Metric, Transformation
from raydr.statistics.preparing import Preparation
from raydr.statistics.scaling import Scaling

SYMPTOMS = ("cough", "fever", "sore throat")
CELLS = [
    [],
    ["fever"],
    ["fever", "cough"],
    ["cough", "sore throat"],
    ["fever", "cough", "sore throat"],
    ["cough"],
]
ROWS = 60
HELD = [CELLS[row % 6] for row in range(ROWS)]
EXPECTED = np.array([[float(word in each) for word in SYMPTOMS] for each in HELD])


def write_table(path: Path, columns: dict[str, list[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
    return path


def table_of(path: Path, cells: list[Any], **options: Any) -> Table:
    rows = len(cells)
    path = write_table(path, {"symptoms": cells, "x": [row * 7 % 11 for row in range(rows)]})
    return load(path=path, categories="one-hot", **options)


WRITINGS: dict[str, Callable[[list[str]], str]] = {
    "semicolons": "; ".join,
    "bars": "|".join,
    "commas": ", ".join,
    "json": lambda words: "[" + ", ".join(f'"{word}"' for word in words) + "]",
    "python": str,
    "bare": lambda words: "[" + ",".join(words) + "]",
}


@pytest.mark.parametrize("form", WRITINGS)
def test_lists_become_a_feature_for_each_word(tmp_path: Path, form: str) -> None:
    """An empty cell is a missing value, and empty brackets are a list without words."""
    table = table_of(tmp_path / "t.csv", [WRITINGS[form](each) for each in HELD], missing="mean")
    assert table.features == (*(f"symptoms={word}" for word in SYMPTOMS), "x")
    expected = EXPECTED.copy()
    if form in ("semicolons", "bars", "commas"):
        expected[::6] = np.nan
    np.testing.assert_array_equal(table.rows[:, :3], expected)
    assert any("'symptoms': read as lists of words" in doubt for doubt in table.doubts)
    assert table.layout.joint == JointColumns(lists=((0, 3),))


def test_lists_of_a_parquet_file_are_read(tmp_path: Path) -> None:
    lists: list[Any] = [*HELD[:-1], None]
    columns = {"symptoms": pa.array(lists, pa.list_(pa.string())), "x": pa.array(np.arange(ROWS))}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = load(path=tmp_path / "t.parquet", categories="one-hot", missing="median")
    np.testing.assert_array_equal(table.rows[:-1, :3], EXPECTED[:-1])
    assert np.isnan(table.rows[-1, :3]).all()


@pytest.mark.parametrize(
    ("cells", "lists"),
    [
        (["a;b", "b;c", "a", "c"], True),
        (["Yes; 3 or more", "No; never", "Yes; 1 or 2"], False),
        (["a;b", "c;d", "a", "b", "e", "f", "g"], False),
        (["1;2", "2;3", "1", "3"], False),
        (["[1]", "[1, 2]"], False),
        (["a, b", "b, c", "a", "c"], False),
    ],
)
def test_texts_with_a_separator_are_not_always_lists(cells: list[str], lists: bool) -> None:
    """No words in common, words without a second cell, numbers, and commas in text are no lists."""
    assert are_lists(dict.fromkeys(cells, 5)) is lists
    assert are_lists({"a;b": 1, "b": 50, "a": 50}) is False, "too few rows"
    assert words_of("['it, is', \"so\"]") == ("it, is", "so")


@pytest.mark.parametrize(
    ("cells", "lists"),
    [
        (["a, b", "b, c", "a", "c"], True),
        (["a,b", "b,c", "c,a"], True),
        (["Boston, MA", "Salem, MA", "Boston, TX", "Salem, TX"], False),
        (["Korea, North", "Korea, South", "Chad", "Mali"], False),
        (["Yes, with pay", "Yes, without pay", "No, with pay", "No, without pay"], False),
        (["1, 2", "2, 3", "1", "3"], False),
    ],
)
def test_lists_with_commas_have_words_in_several_places(cells: list[str], lists: bool) -> None:
    assert are_lists(dict.fromkeys(cells, 5), ",") is lists


def test_sites_write_lists_with_the_same_separator(tmp_path: Path) -> None:
    cells = [
        [", ".join(each) for each in HELD],
        ["; ".join(each) for each in HELD],
        ["cough, rash", "fever"] * 30,
    ]
    files = [
        SiteFile(
            path=str(write_table(tmp_path / f"{at}.csv", {"symptoms": own, "x": list(range(ROWS))})),
            categories="one-hot",
        )
        for at, own in enumerate(cells)
    ]
    surveys = [file.survey() for file in files]
    assert surveys[2].kinds["symptoms"] == "text"
    layout = laid_out(files[0], [surveys[0], surveys[0], surveys[2], surveys[2]])
    assert layout.codings["symptoms"].unit == ","
    assert layout.codings["symptoms"].words == SYMPTOMS
    with pytest.raises(DataError, match="commas in some files and with semicolons"):
        laid_out(files[0], surveys)


def test_codebook_separates_words_by_commas(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"symptoms": ["a, b; c", "a", "b; c", ""], "x": [1, 2, 3, 4]})
    given = ColumnSettings(column="symptoms", kind="list", unit=",", words=("a", "b; c"))
    np.testing.assert_array_equal(
        load(path=path, codebook=Codebook((given,)), missing="mean").rows[:3, :2], [[1, 1], [1, 0], [0, 1]]
    )
    found = ColumnSettings(column="symptoms", kind="list", unit=",")
    write_table(path, {"symptoms": ["a, b", "b"] * 10, "x": list(range(20))})
    assert load(path=path, codebook=Codebook((found,))).layout.codings["symptoms"].words == ("a", "b")
    with pytest.raises(ValueError, match="must be empty or a comma"):
        ColumnSettings(column="symptoms", kind="list", unit="/")


def test_many_words_are_left_out_with_the_reason(tmp_path: Path) -> None:
    cells = [f"w{row};w{(row + 1) % ROWS}" for row in range(ROWS)]
    table = table_of(tmp_path / "many.csv", cells)
    assert table.features == ("x",)
    assert "lists of more than 50 different words" in table.read_from.left_out["symptoms"]
    found = load(path=tmp_path / "many.csv", categories="leave-out")
    assert "lists of" in found.read_from.left_out["symptoms"]
    few = [f"w{row % 60}" for row in range(240)] + [
        f"w{row}, w{row + step}" for step in (1, 2, 3) for row in range(50)
    ]
    commas = table_of(tmp_path / "commas.csv", few)
    assert "lists of more than 50 different words" in commas.read_from.left_out["symptoms"]
    text = [*("a" * 4 + str(row) for row in range(56)), "a;b", "a;c", "a", "b"]
    assert "lists" not in table_of(tmp_path / "text.csv", text).read_from.left_out["symptoms"]


def test_sites_reveal_only_common_words(tmp_path: Path) -> None:
    """A word of too few rows or sites is not mapped; a site with a single word in each cell has the same words."""
    cells = [["fever;cough"] * 6 + ["cough;rare", "fever;rare"] * 2, ["fever"] * 8 + ["cough"] * 6]
    files = [
        SiteFile(
            path=str(write_table(tmp_path / f"{at}.csv", {"symptoms": own, "x": list(range(len(own)))})),
            categories="one-hot",
            threshold=Threshold(rows=5, sites=2),
        )
        for at, own in enumerate(cells)
    ]
    surveys = [file.survey() for file in files]
    assert surveys[0].words["symptoms"] == ("cough", "fever")
    layout = laid_out(files[0], surveys)
    assert layout.features == ("symptoms=cough", "symptoms=fever", "x")
    rows = load(path=files[1].path, layout=layout).rows[:, :2]
    np.testing.assert_array_equal(rows, [[0, 1]] * 8 + [[1, 0]] * 6)
    texts = [["fever;cough"] * 6 + ["rash"] * 6] * 2  # more words than different cells: read as texts
    more = [
        SiteFile(
            path=str(write_table(tmp_path / f"more {at}.csv", {"symptoms": own, "x": list(range(len(own)))})),
            categories="one-hot",
        )
        for at, own in enumerate([cells[0], cells[0], *texts])
    ]
    surveys = [file.survey() for file in more]
    assert [survey.kinds["symptoms"] for survey in surveys] == ["lists", "lists", "text", "text"]
    assert laid_out(more[0], surveys).codings["symptoms"].words == ("cough", "fever", "rash")
    with_site = {"site": ["a"] * 10 + ["b"] * 14, "symptoms": cells[0] + cells[1], "x": list(range(24))}
    whole = load(path=write_table(tmp_path / "all.csv", with_site), client="site", categories="one-hot")
    assert whole.features == layout.features


def test_unknown_words_of_new_rows_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = table_of(tmp_path / "t.csv", ["; ".join(each) or "cough" for each in HELD])
    new = write_table(
        tmp_path / "new.csv", {"symptoms": ["fever; rash", "rash", "cough;fever"], "x": [1, 2, 3]}
    )
    alike = Alike("the map", table.layout.columns, True, table.layout)
    found, _ = load_alike(new, alike, id_column=None, missing="error")
    np.testing.assert_array_equal(found.rows[:, :3], [[0, 1, 0], [0, 0, 0], [1, 1, 0]])
    assert "holds 'rash', which the map does not have. Such a word is ignored" in caplog.text


def test_codebook_gives_the_words_or_finds_them(tmp_path: Path) -> None:
    cells = [";".join(each) for each in HELD]
    cells[1], cells[2] = "unsure", "fever; cough"
    path = write_table(tmp_path / "t.csv", {"symptoms": cells, "x": list(range(ROWS))})
    given = ColumnSettings(column="symptoms", kind="list", words=("fever", "cough"), missing=("unsure",))
    found = load(path=path, codebook=Codebook((given,)), missing="mean")
    assert found.features == ("symptoms=fever", "symptoms=cough", "x")
    assert np.isnan(found.rows[1, :2]).all()
    np.testing.assert_array_equal(found.rows[2, :2], [1, 1])
    free = Codebook((ColumnSettings(column="symptoms", kind="list"),))
    assert load(path=path, codebook=free, missing="mean").layout.codings["symptoms"].words == SYMPTOMS
    words = Codebook((ColumnSettings(column="symptoms", kind="words", words=("fever", "cough")),))
    assert load(path=path, codebook=words, missing="mean").layout.joint.words == ((0, 2),)
    misspelt = ColumnSettings(column="symptoms", kind="list", words=("fever", "couhg"))
    with pytest.raises(DataError, match=r"no row has 'couhg'.*did you mean cough"):
        load(path=path, codebook=Codebook((misspelt,)), missing="mean")


@pytest.mark.parametrize("metric", ["gower", "hamming"])
def test_lists_weigh_as_one_column(metric: Metric) -> None:
    """Two lists add the share of the words that only one of them has."""
    numbers = np.arange(12.0) % 5
    lists = np.random.default_rng(0).integers(0, 2, (12, 4)).astype(float)
    lists[:2] = [[0.0], [1.0]]
    rows = np.column_stack([lists, numbers])
    found = Transformation.of_columns(
        metric, rows.min(axis=0), rows.max(axis=0), JointColumns(lists=((0, 4),))
    )
    made = found.applied(rows)
    apart = np.abs(numbers[:, None] - numbers) / 4 if metric == "gower" else numbers[:, None] != numbers
    expected = (np.abs(lists[:, None] - lists).mean(axis=2) + apart) / 2
    np.testing.assert_allclose(((made[:, None] - made) ** 2).sum(axis=2), expected, atol=1e-12)


def test_scaled_lists_have_the_variance_or_range_of_a_number() -> None:
    lists = np.random.default_rng(0).integers(0, 2, (40, 4)).astype(float)
    lists[:2] = [[0.0], [1.0]]
    plain = Preparation(Scaling(np.zeros(4), np.ones(4)))
    joint = JointColumns(lists=((0, 4),))
    assert plain.without_harmonizing(lists, "standard", joint).var(axis=0).sum() == pytest.approx(1.0)
    for scale in ("minmax", "maxabs"):
        scaled = plain.without_harmonizing(lists, scale, joint)  # type: ignore[arg-type]
        assert ((scaled[0] - scaled[1]) ** 2).sum() == pytest.approx(1.0)
    assert joint.scaled("standard") == ((0, 4),)
    assert joint.scaled("minmax") == ()
