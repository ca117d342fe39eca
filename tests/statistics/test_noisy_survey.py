"""The noisy survey of columns: its sensitivity, what it finds, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_federations import federate

from raydr.arrays import Float64Array
from raydr.data import load
from raydr.data.survey.codebook import Codebook, ColumnSettings
from raydr.data.survey.coding import Coding
from raydr.data.survey.layout import Layout
from raydr.data.survey.raw_cells import (
    CODES,
    RawColumn,
    hash_code,
    raw_columns,
    raw_layout,
    read_cell,
    read_cells,
)
from raydr.errors import DataError
from raydr.federation import Client, Reply, Request
from raydr.methods.private_map.server import PrivateMap
from raydr.methods.serving import Plan
from raydr.privacy.accounting import Budget
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.shares import summed_deviation
from raydr.privacy.statement import statement
from raydr.scenarios.running.backend import InlineBackend
from raydr.statistics.histograms import HistogramsRequest, RangeHistogramsRequest, sensitivity
from raydr.statistics.noisy_survey import (
    Grid,
    PreparedCells,
    SurveyNoise,
    evidence,
    fit_survey,
    found_by_size,
    known,
    least_evidence,
    prepared_by,
)

NOTHING = np.nan
CELLS = st.sampled_from([NOTHING, 0.0, 1.0, -3.0, 1e9, -1e300, 1e-30, 2014.0, 5e-324])
WORDS = st.one_of(st.just(NOTHING), st.integers(0, CODES - 1).map(float))
COLUMNS = (RawColumn("age", 0, 1), RawColumn("dose", 2, 3), RawColumn("pixel", 4))


def counted(request: Request[Any], rows: Float64Array) -> Float64Array:
    reply: Reply = type(request).client_part(Client(index=0, rows=rows, seed=0), request)
    return np.asarray(reply.counts)  # type: ignore[attr-defined]


def noise_of(deviation: float) -> Any:
    """Return the noise for a number of columns: of this deviation on a count of three clients, whatever they are."""

    def noise_for(columns: int) -> SurveyNoise:
        moved = sensitivity(columns, "zero-out")
        mechanism = GaussianNoise(
            on="moments", multiplier=deviation / moved / summed_deviation(True, 3, 0.2), per="sum", clip=moved
        )
        return SurveyNoise(mechanism, deviation)

    return noise_for


def surveyed(rows: Float64Array, columns: tuple[RawColumn, ...], deviation: float = 1e-3) -> PreparedCells:
    return fit_survey(federate(np.array_split(rows, 3)), columns, noise_of(deviation))


@given(st.lists(st.tuples(CELLS, WORDS, CELLS, WORDS, CELLS), min_size=2, max_size=8), st.integers(1, 4))
@settings(max_examples=80)
def test_record_moves_histograms_by_at_most_the_sensitivity(
    cells: list[tuple[float, ...]], per_power: int
) -> None:
    rows = np.array(cells)
    edges = Grid(per_power).edges
    first = HistogramsRequest(COLUMNS, (edges,) * 3, len(rows))
    second = RangeHistogramsRequest(COLUMNS, (np.array([0.0, 1.0]),) * 3, len(rows))
    for request in (first, second):
        whole = counted(request, rows)
        assert whole.sum() == 3 * len(rows)
        left_out = np.linalg.norm(whole - counted(request, rows[1:]))
        assert left_out == pytest.approx(np.sqrt(3))
        assert left_out <= request.sensitivity(len(rows))
        replaced = counted(request, np.concatenate([rows[1:], rows[-1:]]))
        assert np.linalg.norm(whole - replaced) <= request.replace_sensitivity(len(rows))


def test_declared_sensitivity_under_replacement_is_reached() -> None:
    request = HistogramsRequest(COLUMNS, (Grid(1).edges,) * 3, 1)
    one, other = np.array([[1.0, NOTHING] * 2 + [1.0]]), np.array([[NOTHING, 3.0] * 2 + [-1e9]])
    moved = np.linalg.norm(counted(request, one) - counted(request, other))
    assert moved == pytest.approx(request.replace_sensitivity(1))


TABLE = ["site,age,word,note", "a,1,red,", "a,2,blue,", "b,3,red,", "b,4,blue,"]


@pytest.mark.parametrize(
    "line",
    [
        "b,1e9,red,",
        "b,old,red,",
        "b,,red,",
        "b,4,rare,",
        "b,4,17,",
        "b,4,,x",
        "b,4,blue,9",
        "b,007,1.5 mg,2020-01-31",
    ],
)
def test_one_record_changes_neither_columns_nor_other_rows(tmp_path: Path, line: str) -> None:
    tables = []
    for number, last in enumerate((TABLE[-1], line)):
        path = tmp_path / f"{number}.csv"
        path.write_text("\n".join([*TABLE[:-1], last]) + "\n")
        tables.append(load(path=path, client="site", cells=True))
    one, other = tables
    assert (
        one.features == other.features == ("age", "age (word)", "word", "word (word)", "note", "note (word)")
    )
    assert one.layout == other.layout
    np.testing.assert_array_equal(one.rows[:-1], other.rows[:-1])
    assert one.rows.dtype == other.rows.dtype


def test_infinite_numbers_of_an_array_are_cells_without_a_value(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 2))
    rows[3, 1] = np.inf
    np.save(tmp_path / "rows.npy", rows)
    table = load(path=tmp_path / "rows.npy", cells=True)
    assert np.argwhere(np.isnan(table.rows)).tolist() == [[3, 1]]


def test_words_leave_as_hash_codes_that_ignore_case_and_blanks() -> None:
    plain = Coding(kind="cell")
    assert (
        read_cell("Chest  pain", plain)[1] == read_cell(" chest pain ", plain)[1] == hash_code("chest pain")
    )
    codes = [hash_code(f"word {number}") for number in range(2000)]
    assert min(codes) == 0
    assert max(codes) == CODES - 1
    assert len(set(codes)) == CODES


def test_codebook_decides_how_cells_are_read() -> None:
    book = Codebook(
        (
            ColumnSettings(column="age", kind="number", low=0, high=100, missing=("-9",), unit="y"),
            ColumnSettings(column="pain", kind="ordinal", words=("none", "mild", "severe")),
            ColumnSettings(column="sex", kind="words", words=("f", "m")),
        )
    )
    layout = raw_layout(["age", "pain", "sex", "free"], book)
    age, pain, sex, free = raw_columns(layout)
    assert (age.low, age.high, age.is_known) == (0.0, 100.0, True)
    assert (pain.low, pain.high, pain.words) == (0.0, 2.0, 0)
    assert (sex.words, sex.is_known, free.is_known) == (2, True, False)
    read = [
        read_cell(text, layout.codings[column])
        for column, text in (("age", "61 y"), ("age", "-9"), ("pain", "Mild"), ("pain", "odd"), ("sex", "x"))
    ]
    expected = [(61.0, NOTHING), (NOTHING, NOTHING), (1.0, NOTHING), (NOTHING, NOTHING), (NOTHING, -1.0)]
    np.testing.assert_array_equal(read, expected)
    with pytest.raises(DataError, match=r"row 2 of data\.codebook gives 'signs' the kind list"):
        raw_layout(["signs"], Codebook((ColumnSettings(column="signs", kind="list", words=("a", "b")),)))


def test_dates_counts_and_circles_of_a_codebook_are_read_by_cell() -> None:
    """Their features are those of a table that is not surveyed, and a wrong cell is a missing one."""
    book = Codebook(
        (
            ColumnSettings(column="visit", kind="date", unit="%d.%m.%Y", low="2020-01-01", high="2020-12-31"),
            ColumnSettings(column="stays", kind="count", low=0, high=99),
            ColumnSettings(column="woken", kind="time"),
            ColumnSettings(column="wind", kind="circular", period=360, missing=("999",)),
            ColumnSettings(column="month", kind="circular", words=("Jan", "May", "Sep")),
        )
    )
    layout = raw_layout(["visit", "stays", "woken", "wind", "month"], book)
    columns = raw_columns(layout)
    assert [column.name for column in columns] == [
        *("visit", "stays", "woken (sine)", "woken (cosine)"),
        *("wind (sine)", "wind (cosine)", "month (sine)", "month (cosine)"),
    ]
    assert all(column.is_known for column in columns)
    assert [column.number for column in columns] == [0, 2, 4, 5, 6, 7, 8, 9]
    assert columns[1].high == pytest.approx(np.log(100.0))
    assert {(column.low, column.high) for column in columns[2:]} == {(-1.0, 1.0)}
    assert {(each.low, each.high) for each in map(known, columns[2:])} == {(-1.0, 1.0)}

    def read(column: str, *texts: str) -> Any:
        return read_cells(texts, layout.codings[column], commas=False)

    days = (np.datetime64("2020-03-05") - np.datetime64("1970-01-01")).astype(float)
    np.testing.assert_array_equal(
        read("visit", "05.03.2020", "2020-03-05", "soon")[:, 0], [days, NOTHING, NOTHING]
    )
    np.testing.assert_array_equal(read("stays", "3", "-1", "many")[:, 0], [np.log(4.0), NOTHING, NOTHING])
    np.testing.assert_allclose(read("woken", "06:00", "18:00"), [[1, 0], [-1, 0]], atol=1e-12)
    assert np.isnan(read("woken", "late", "")).all()
    np.testing.assert_allclose(read("wind", "90", "450"), [[1, 0], [1, 0]], atol=1e-12)
    assert np.isnan(read("wind", "999", "north")).all()
    third = 2 * np.pi / 3
    np.testing.assert_allclose(read("month", " may"), [[np.sin(third), np.cos(third)]])
    assert np.isnan(read("month", "Jun")).all()


def test_pairs_of_a_codebook_are_two_numbers() -> None:
    layout = raw_layout(["blood"], Codebook((ColumnSettings(column="blood", kind="pair", missing=("0/0",)),)))
    first, second = raw_columns(layout)
    assert (first.name, second.name) == ("blood (first)", "blood (second)")
    assert (first.number, second.number, first.word, first.is_known) == (0, 1, None, False)
    found = read_cells(["120/80", "120", "high", "0/0", "inf/80"], layout.codings["blood"], commas=False)
    np.testing.assert_array_equal(found, [[120.0, 80.0]] + 4 * [[NOTHING, NOTHING]])


def test_a_circle_has_the_weight_of_its_standardised_features() -> None:
    angles = np.random.default_rng(0).uniform(0, 2 * np.pi, 5000)
    rows = np.column_stack([np.sin(angles), np.cos(angles)])
    columns = tuple(RawColumn(name, at, low=-1.0, high=1.0, is_circle=True) for at, name in enumerate("sc"))
    made = prepared_by(columns, [known(column) for column in columns]).applied(rows)
    np.testing.assert_allclose(made.var(axis=0), 0.5, rtol=0.05)


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (2000.0, 2024.0), (-40.0, 40.0), (1e5, 3e6), (0.001, 0.002), (-7e8, -6e8)]
)
def test_mean_and_deviation_of_numbers_are_found(low: float, high: float) -> None:
    random = np.random.default_rng(0)
    rows = random.uniform(low, high, (4000, 1))
    cells = surveyed(rows, (RawColumn("x", 0),))
    made = cells.applied(rows)
    assert made.std() == pytest.approx(1.0, abs=0.15)
    assert abs(made.mean()) < 0.15


def test_outliers_and_gaps_become_ends_and_centre() -> None:
    rows = np.concatenate([np.random.default_rng(1).uniform(10, 20, 3000), [1e9, -1e9, NOTHING]])[:, None]
    cells = surveyed(rows, (RawColumn("x", 0),), deviation=5.0)
    made = cells.applied(rows)
    assert np.abs(made).max() < 3.0
    assert made[-1, 0] == 0.0
    assert made[:3000].max() <= made[-3, 0] < 2.5
    assert -2.5 < made[-2, 0] <= made[:3000].min()


def test_frequent_words_become_features_with_the_variance_of_one_column() -> None:
    random = np.random.default_rng(2)
    words = random.choice([3.0, 40.0, 200.0], 6000, p=[0.6, 0.3, 0.1])
    rows = np.column_stack([np.full(6000, NOTHING), words, random.uniform(5, 6, 6000)])
    rows[:20, 1] = np.arange(100.0, 120.0)  # rare words
    cells = surveyed(rows, (RawColumn("w", 0, 1), RawColumn("x", 2)), deviation=30.0)
    assert cells.code[:3].tolist() == [3.0, 40.0, 200.0]
    assert np.isnan(cells.code[3])
    described = cells.described((RawColumn("w", 0, 1), RawColumn("x", 2)))
    assert "w (3)" in described
    assert "x (" in described
    assert cells.names(["w", "w (word)", "x"]) == ("w (word 3)", "w (word 40)", "w (word 200)", "x")
    variances = cells.applied(rows).var(axis=0)
    assert variances[:3].sum() == pytest.approx(0.5, rel=0.05)
    assert variances.sum() == pytest.approx(1.0, rel=0.1)


def test_empty_and_constant_columns_are_left_out_or_the_run_ends() -> None:
    random = np.random.default_rng(3)
    rows = np.column_stack([random.normal(size=900), np.zeros(900), np.full(900, NOTHING)])
    columns = tuple(RawColumn(name, place) for place, name in enumerate("abc"))
    assert surveyed(rows, columns, deviation=8.0).number.tolist() == [0]
    with pytest.raises(DataError, match=r"found no column.*Raise method\.epsilon"):
        surveyed(rows[:, 1:], (RawColumn("b", 0), RawColumn("c", 1)), deviation=8.0)


def test_arrays_of_a_model_bring_the_features_back() -> None:
    rows = np.random.default_rng(4).normal(size=(500, 2))
    columns = (RawColumn("a", 0), RawColumn("b", 1))
    cells = surveyed(rows, columns)
    again = PreparedCells.of(cells.arrays)
    assert again is not None
    np.testing.assert_array_equal(again.applied(rows), cells.applied(rows))
    assert PreparedCells.of({}) is None
    alone = np.concatenate([cells.applied(rows[row : row + 1]) for row in range(20)])
    np.testing.assert_array_equal(alone, cells.applied(rows)[:20])


QUICK: dict[str, Any] = {"early_iterations": 10, "iterations": 10, "placing_iterations": 5, "rounds": 2}


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("known", [False, True])
def test_accountant_confirms_the_epsilon_of_a_surveyed_run(known: bool, relation: Any) -> None:
    """With a codebook for all columns, the survey costs nothing and the other releases get its part."""
    rows = np.random.default_rng(5).uniform(0, 9, (600, 3))
    limits = {"low": 0.0, "high": 9.0} if known else {}
    cells = tuple(RawColumn(name, place, **limits) for place, name in enumerate("abc"))
    settings = PrivateMap(epsilon=2.0, relation=relation, **QUICK)
    plan = Plan(
        method="private-map", settings=settings, scale="none", seed=0, cells=cells, budget=Budget(strict=True)
    )
    served = InlineBackend().serve(np.array_split(rows, 3), plan, listener=lambda event: None)
    reported = statement(served.ledger, Budget())
    assert reported.infinite == ()
    assert reported.epsilon_by_adversary["client"].accounted == pytest.approx(2.0, rel=1e-6)
    assert sum(release.share or 0.0 for release in reported.releases) == pytest.approx(1.0)
    survey = [release.share for release in reported.releases if release.kind.endswith("Histograms")]
    assert survey == ([] if known else [pytest.approx(0.05, rel=1e-3)] * 2)
    assert served.prepared.cells is not None
    assert served.outcome.embedding.shape == (600, 2)


def test_noise_of_the_survey_is_that_which_the_rule_assumes() -> None:
    rows = np.full((60, 200), NOTHING)
    columns = tuple(RawColumn(str(place), place) for place in range(200))
    for per in ("sum", "client"):
        noise = PrivateMap(epsilon=4.0, per=per).survey_noise(Budget(), 5, len(columns))
        request = HistogramsRequest(columns, (Grid(1).edges,) * 200, 60, noise.mechanism)
        counts = federate(np.array_split(rows, 5)).sum(request).counts.reshape(200, -1)
        assert np.std(counts[:, 1:]) == pytest.approx(noise.deviation, rel=0.03)


def test_prepared_features_need_one_finding() -> None:
    with pytest.raises(DataError, match="no column"):
        prepared_by((RawColumn("a", 0),), [None])
    assert raw_columns(Layout(("a",))) == (RawColumn("a", 0),)


@pytest.mark.parametrize(("columns", "per_power"), [(1, 1), (13, 1), (13, 2), (13, 4), (40, 1)])
def test_noise_alone_passes_for_a_column_in_fewer_than_1_of_100_surveys(columns: int, per_power: int) -> None:
    """The law of the threshold, by simulated surveys of empty columns; each column alone is found far more often."""
    random, grid, surveys = np.random.default_rng(per_power), Grid(per_power), 6000 // columns
    bins = 2 * grid.sizes + 2 + CODES
    passed = alone = 0
    for _ in range(surveys):
        counts = random.normal(size=(columns, bins)) * 30.0
        strongest = max(evidence(each, grid, 30.0) for each in counts)
        passed += strongest > least_evidence(columns, grid)
        alone += any(found_by_size(each, grid, 30.0) is not None for each in counts)
    assert passed <= max(1, surveys // 100)
    if columns > 1:
        assert alone > surveys // 20


def test_a_survey_of_noise_alone_ends_the_run() -> None:
    """Noise of 10,000 rows hides 60 rows. With a column of the codebook, the others are left out."""
    rows = np.random.default_rng(1).uniform(10.0, 20.0, (60, 3))
    columns = tuple(RawColumn(name, place) for place, name in enumerate("abc"))
    with pytest.raises(DataError, match=r"found no column.*Raise method\.epsilon"):
        surveyed(rows, columns, deviation=1e4)
    known = (RawColumn("a", 0, low=0.0, high=30.0), *columns[1:])
    assert surveyed(rows, known, deviation=1e4).number.tolist() == [0]
