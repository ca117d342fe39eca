"""Published tables: their files, and results next to the paper's numbers."""

from __future__ import annotations

import copy
import statistics
from pathlib import Path
from typing import Any

import papers_reference
import pyarrow.parquet as pq
import pytest
from sweeps import Interrupted, inline
from tiny import tiny

import raydr
from raydr.errors import OutputError, ScenarioError
from raydr.front.cli import status
from raydr.report import write_paper_report
from raydr.report.sweep.papers import mark
from raydr.runfolder import records
from raydr.runfolder.paper_table import CellResult, PaperTable, SeedMean, read_paper_table
from raydr.runfolder.ratio_intervals import paired_ratio
from raydr.tune.reproducing import catalogue, read_table, results
from raydr.tune.search import search_of
from raydr.tune.tables import PublishedNumber, TableSearch, cells, number

SEARCH: dict[str, Any] = {
    "kind": "table",
    "paper": "P0",
    "where": "table 1",
    "title": "A table to test by",
    "published": {"method.estimator": "nystrom", "method.rounds": 3},
    "columns": [
        {"name": "pooled", "side": "central", "set": {"compare": ["central"]}},
        {"name": "IID", "set": {"compare": ["central"]}},
        {"name": "one class", "set": {"clients": {"partition": {"kind": "one-class"}}}, "pooled": "IID"},
        {"name": "CIFAR-10", "absent": "CIFAR-10 is not at hand"},
    ],
    "groups": [
        {
            "name": "few",
            "rows": [
                {"name": "NPA", "metric": "npa_10", "numbers": "0.60 | 0.10 ± 0.01 | 0.99 | 0.42"},
                {"name": "bytes", "metric": "bytes_up", "numbers": "- | 1 | - | -"},
            ],
        },
        {
            "name": "many",
            "set": {"method.landmarks": 20},
            "rows": [{"name": "NPA", "metric": "npa_10"}],
        },
    ],
}

MANY = [SEARCH["groups"][1]]
NPA = [{"rows": [{"name": "NPA", "metric": "npa_10", "numbers": "0.5 | 0.1"}]}]


def content(**search: Any) -> dict[str, Any]:
    base = {key: value for key, value in tiny().items() if key not in ("metrics", "name")}
    base["method"] |= {"rounds": None, "landmarks": 5}
    return {
        "name": "p0",
        "base": base,
        "search": copy.deepcopy(SEARCH) | search,
        "trial": {"report": False},
    }


def test_numbers_are_read_as_papers_print_them() -> None:
    assert number("0.9618±0.0015") == PublishedNumber(0.9618, 0.0015, 0.00005)
    assert number(" 0.70 ") == PublishedNumber(0.7, None, 0.005)
    assert number("12") == PublishedNumber(12.0, None, 0.5)
    assert number("-0.5").value == -0.5  # type: ignore[union-attr]
    for text in ("0,7", "±0.1", "0.7 +- 0.1", ""):
        with pytest.raises(ValueError, match="is not a number"):
            number(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": [{"name": "a"}, {"name": "a"}]}, "two columns have the name 'a'"),
        ({"columns": [{"name": "a", "pooled": "b"}]}, "pooled values in 'b', which does not exist"),
        ({"columns": [{"name": "a"}]}, "has 4 numbers for 1 columns"),
        ({"groups": [{"name": "a"}]}, "it has no cells"),
        (
            {
                "columns": [{"name": "a", "set": {"method.landmark": 3}}],
                "groups": [{"rows": [{"name": "N", "metric": "npa_10"}]}],
            },
            "landmarks",
        ),
        ({"columns": [{"name": "a"}], "groups": [{"rows": [{"name": "N", "metric": "npa"}]}]}, "npa_1"),
    ],
)
def test_an_invalid_table_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        search_of(read_table(content(**change)))


def test_a_table_has_no_space_and_a_sweep_is_not_a_table() -> None:
    with pytest.raises(ScenarioError, match="Leave out space"):
        read_table(content() | {"space": {"method.landmarks": [3, 4]}})
    with pytest.raises(ScenarioError, match="a sweep without a published table"):
        read_table({"name": "s", "base": tiny(), "space": {"method.landmarks": [3, 4]}})
    with pytest.raises(ScenarioError, match="space is empty"):
        read_table({"name": "s", "base": tiny()})


def test_cells_with_the_same_scenario_share_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups by two scenarios, each once as published and once by default; the pooled map is the default's."""
    assert search_of(read_table(content())).count == 8
    ran = inline(monkeypatch)
    result = raydr.reproduce(content() | {"repeats": 2}, out=tmp_path / "p0")
    assert len(ran) == 16
    rows = {(row["group"], row["row"], row["column"], row["seed"]): row for row in result.table}
    assert len(rows) == 3 * (3 * 2 + 1)
    trials = {
        (row["set.method.estimator"], row["set.method.landmarks"], row["set.clients"], row["seed"]): row
        for row in result.trials
    }
    one = '{"partition": {"kind": "one-class"}}'
    for seed in (0, 1):
        own, pooled = rows["few", "NPA", "IID", seed], rows["few", "NPA", "pooled", seed]
        trial = trials[None, None, None, seed]
        assert own["default"] == trial["federated.npa_10"] != trial["central.npa_10"]
        assert own["pooled"] == pooled["default"] == pooled["pooled"] == trial["central.npa_10"]
        assert own["published"] == trials["nystrom", None, None, seed]["federated.npa_10"] != own["default"]
        assert trials["nystrom", None, None, seed]["central.npa_10"] is None
        assert pooled["published"] is None
        assert (own["paper"], own["paper.sd"], pooled["paper"]) == (0.1, 0.01, 0.6)
        apart = rows["few", "NPA", "one class", seed]
        assert apart["default"] == trials[None, None, one, seed]["federated.npa_10"]
        assert apart["pooled"] == trial["central.npa_10"]
        assert rows["few", "bytes", "IID", seed]["default"] == trial["bytes_up"]
        assert rows["few", "bytes", "IID", seed]["pooled"] is None
        assert rows["many", "NPA", "IID", seed]["default"] == trials[None, 20, None, seed]["federated.npa_10"]
    lacking = rows["few", "NPA", "CIFAR-10", None]
    assert (lacking["paper"], lacking["default"], lacking["why"]) == (0.42, None, "CIFAR-10 is not at hand")
    table = read_paper_table(result.folder / records.TABLE)
    at = {(cell.group, cell.row, cell.column): cell for cell in table.cells}
    verdicts = {place: found.verdict for place, cell in at.items() if (found := cell.comparison) is not None}
    assert verdicts["few", "NPA", "IID"] == "better"
    assert verdicts["few", "NPA", "one class"] == "worse"
    assert verdicts["few", "bytes", "IID"] == "worse", "of bytes fewer are better"
    to_pooled = at["few", "NPA", "IID"].comparison_to_pooled
    values = [[rows["few", "NPA", "IID", seed][side] for seed in (0, 1)] for side in ("default", "pooled")]
    assert to_pooled is not None
    assert to_pooled.interval == paired_ratio(*values)
    assert at["few", "NPA", "pooled"].comparison_to_pooled is None
    assert table.worst is not None
    assert table.worst.row == "bytes"
    assert table.heading["date"]


def test_a_failed_cell_has_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inline(monkeypatch)
    groups = [
        {"name": "3", "rows": [{"name": "NPA", "metric": "npa_10"}]},
        {"name": "200", "set": {"clients.count": 200}, "rows": [{"name": "NPA", "metric": "npa_10"}]},
    ]
    result = raydr.reproduce(
        content(columns=[{"name": "IID"}], groups=groups, published={}), out=tmp_path / "p0"
    )
    rows = {row["group"]: row for row in result.table if row["seed"] in (0, None)}
    assert rows["3"]["default"] is not None
    assert rows["3"]["why"] is None
    assert rows["200"]["default"] is None
    assert "150 rows cannot give 200 clients" in rows["200"]["why"]
    page = (result.folder / records.TABLE_REPORT).read_text()
    assert "150 rows cannot give 200 clients" in page


def test_a_reduced_table_records_its_reductions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inline(monkeypatch)
    quick = {"base": {"data.rows": 60}, "repeats": 1}
    result = raydr.reproduce(
        content() | {"quick": quick}, out=tmp_path / "p0", quick=True, only=["many"], method__iterations=6
    )
    table = read_paper_table(result.folder / records.TABLE)
    assert table.changed == "data.rows 60, repeats 1, method.iterations 6, rows many"
    assert {cell.group for cell in table.cells} == {"many"}
    assert "This is not the whole table" in (result.folder / records.TABLE_REPORT).read_text()
    more = read_table(content(), seeds=3)
    assert (more.repeats, more.search.reduced) == (3, {"repeats": 3})  # type: ignore[union-attr]
    alone = read_table(content(), published=False)
    assert (search_of(alone).count, alone.search.reduced) == (4, {"as published": "not run"})  # type: ignore[union-attr]
    assert read_table(content(), seeds=1).search.reduced == {}  # type: ignore[union-attr]
    with pytest.raises(
        ScenarioError, match="no row or column 'NPB'; rows are few, NPA, bytes, many; columns are "
    ):
        read_table(content(), only=("NPB",))


def test_a_single_row_keeps_the_group_of_its_pooled_values() -> None:
    groups = [
        {
            "name": "ours",
            "pooled": "theirs",
            "rows": [{"name": "A", "metric": "npa_1"}, {"name": "B", "metric": "npa_10"}],
        },
        {"name": "theirs", "rows": [{"name": "A", "metric": "npa_1"}, {"name": "B", "metric": "npa_10"}]},
        {"name": "others", "rows": [{"name": "C", "metric": "npa_50"}]},
    ]
    asked = read_table(content(columns=[{"name": "IID"}], groups=groups), only=("ours",))
    kept = {group.name: [row.name for row in group.rows] for group in asked.search.groups}  # type: ignore[union-attr]
    assert kept == {"ours": ["A", "B"], "theirs": ["A", "B"]}
    asked = read_table(content(columns=[{"name": "IID"}], groups=groups), only=("B",))
    kept = {group.name: [row.name for row in group.rows] for group in asked.search.groups}  # type: ignore[union-attr]
    assert kept == {"ours": ["B"], "theirs": ["B"]}


def test_a_single_column_keeps_its_numbers_and_the_column_of_its_pooled_values() -> None:
    columns = [
        {"name": name, "pooled": {"few": "all", "one": "few"}.get(name)}
        for name in ("one", "few", "two", "all")
    ]
    rows = [
        {"name": "A", "metric": "npa_1", "numbers": "0.1 | 0.2 ± 0.01 | 0.3 | -"},
        {"name": "B", "metric": "npa_10"},
    ]

    def kept(*only: str) -> list[tuple[str, str, float | None]]:
        asked = read_table(content(columns=columns, groups=[{"rows": rows}]), only=only).search
        assert isinstance(asked, TableSearch)
        assert asked.reduced.get("columns") == [name for name in only if name != "A"]
        found = TableSearch.model_validate(asked.model_dump())  # as many numbers as columns
        return [(cell.row, cell.column, cell.published and cell.published.value) for cell in cells(found)]

    assert kept("two") == [("A", "two", 0.3), ("B", "two", None)]
    assert kept("A", "few") == [("A", "few", 0.2), ("A", "all", None)]
    assert kept("one", "A") == [("A", "one", 0.1), ("A", "few", 0.2), ("A", "all", None)]


def test_set_changes_the_rows_of_a_table_that_leave_the_key_to_the_base() -> None:
    groups = [
        {"name": "all", "rows": [{"name": "A", "metric": "npa_1"}]},
        {"name": "few", "set": {"data.rows": 90}, "rows": [{"name": "A", "metric": "npa_1"}]},
    ]
    table = content(columns=[{"name": "IID"}], groups=groups)
    assert read_table(table, {"data.rows": 80}, only=("all",)).scenario["data"]["rows"] == 80
    with pytest.raises(
        ScenarioError, match=r"--set data\.rows: some rows .* set this key.*run only other rows"
    ):
        read_table(table, {"data.rows": 80})


def test_pooled_values_are_never_federated_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference to a map of pooled rows has its value; a reference to a run without a pooled map has none."""
    inline(monkeypatch)
    row = {"name": "NPA", "metric": "npa_10"}
    encoder = {"kind": "global-ne", "rounds": 1, "hidden": [4]}
    groups = [
        {"name": "ours", "pooled": "theirs", "rows": [row]},
        {"name": "theirs", "set": {"method": encoder}, "rows": [row]},
        {"name": "others", "set": {"method.landmarks": 4}, "rows": [row]},
    ]
    columns = [{"name": "IID"}, {"name": "one class", "pooled": "IID"}]
    result = raydr.reproduce(content(columns=columns, groups=groups, published={}), out=tmp_path / "p0")
    at = {(row["group"], row["column"]): row for row in result.table}
    assert at["ours", "IID"]["pooled"] == at["theirs", "IID"]["default"] is not None
    assert at["others", "IID"]["default"] is not None
    assert at["others", "one class"]["pooled"] is None


def test_an_interrupted_table_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as first:
        inline(first, dies_after=1)
        with pytest.raises(Interrupted) as caught:
            raydr.reproduce(content(columns=SEARCH["columns"][:2], groups=MANY), out=tmp_path / "p0")
    (left,) = tmp_path.glob("p0.incomplete-*")
    assert caught.value.__notes__ == [
        f"Continue after the trials that ended with `raydr reproduce {left} --resume`."
    ]
    ran = inline(monkeypatch)
    whole = raydr.resume_sweep(left)
    assert len(ran) == 1
    other = raydr.reproduce(content(columns=SEARCH["columns"][:2], groups=MANY), out=tmp_path / "whole")

    def values(folder: Path) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pq.read_table(folder / records.TABLE).to_pylist()
        return rows

    assert values(whole.folder) == values(other.folder)


def test_a_table_that_cannot_be_run_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="p0 cannot be run: it lists data sets"):
        raydr.reproduce(content(unmeasured="it lists data sets"), out=tmp_path / "p0")
    assert not list(tmp_path.iterdir())


def cell(
    default: SeedMean | None,
    paper: SeedMean | None,
    measure: str = "federated.npa_10",
    rounding: float = 0.005,
) -> CellResult:
    return CellResult(
        group="",
        row="",
        column="",
        measure=measure,
        paper=paper,
        rounding=rounding,
        published=None,
        default=default,
        pooled=None,
        runs=(),
        why=None,
    )


def seeds(*values: float) -> SeedMean:
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return SeedMean(statistics.fmean(values), deviation, dict(enumerate(values)))


def compared(
    default: SeedMean, paper: SeedMean, measure: str = "federated.npa_10"
) -> tuple[str, float | None, bool]:
    found = cell(default, paper, measure).comparison
    assert found is not None
    return found.verdict, found.ratio, found.interval is not None


def test_the_interval_of_the_ratio_decides() -> None:
    paper = SeedMean(0.70, 0.01)
    assert compared(seeds(0.79, 0.80, 0.81), paper)[0] == "better"
    assert compared(seeds(0.59, 0.60, 0.61), paper)[0] == "worse"
    assert compared(seeds(0.71, 0.72, 0.73), paper)[0] == "undecided"
    assert compared(seeds(0.70, 0.70, 0.70), SeedMean(0.70, 0.0001))[0] == "equal"
    assert compared(seeds(0.700, 0.701, 0.702), SeedMean(0.70, None))[0] == "equal"
    assert compared(seeds(0.68, 0.70, 0.72), SeedMean(0.70, None))[0] == "undecided", (
        "it is not equal because the seeds differ much"
    )
    assert compared(seeds(0.60), SeedMean(0.70, 0.01)) == ("worse", pytest.approx(0.60 / 0.7), True)


def test_of_errors_smaller_ones_are_better() -> None:
    verdict, ratio, _ = compared(seeds(0.09, 0.10, 0.11), SeedMean(0.20, 0.01), "federated.distance_error")
    assert (verdict, ratio) == ("better", pytest.approx(2.0))


def test_one_seed_and_no_deviation_of_the_paper_give_no_interval() -> None:
    """The mark is hollow, and what rounding explains is undecided and not equal."""
    paper = SeedMean(0.70, None)
    assert compared(seeds(0.72), paper) == ("better", pytest.approx(0.72 / 0.7), False)
    assert compared(seeds(0.703), paper)[::2] == ("undecided", False)
    assert compared(seeds(0.64), paper)[::2] == ("worse", False)
    assert compared(seeds(-0.1), SeedMean(0.2, 0.1), "federated.sc") == ("worse", None, False)
    marks = []
    for own in (seeds(0.72), seeds(0.703), seeds(0.64), seeds(0.80, 0.80), seeds(0.60, 0.60)):
        found = cell(own, paper).comparison
        assert found is not None
        marks.append(mark(found))
    assert marks == ["△", "?", "▽", "▲", "▼"]
    assert cell(None, paper).comparison is None


def test_the_summary_counts_verdicts_and_cells_without_an_interval() -> None:
    heading: dict[str, Any] = {"reduced": {}}
    apart, one = cell(seeds(0.8, 0.8), SeedMean(0.7, None)), cell(seeds(0.6), SeedMean(0.7, None))
    assert PaperTable(heading, (apart, one)).summary == (
        "2 cells compared, 1 without an interval: 1 better, 1 worse; least ratio 0.86 (, )"
    )
    assert PaperTable(heading, (one,)).summary.startswith("1 cell compared, without intervals: 1 worse")


def test_the_catalogue_has_the_result_of_the_latest_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline(monkeypatch)
    named = content(columns=SEARCH["columns"][:2], groups=NPA) | {"name": "p3-table-4"}
    raydr.reproduce(named, out=tmp_path / "runs" / "one")
    broken = tmp_path / "runs" / "two"
    broken.mkdir()
    (broken / records.TABLE).write_bytes(b"nothing")
    lines = catalogue(tmp_path / "runs")
    assert "2 cells compared" in lines["p3-table-4"]
    assert lines["p1-figure-3"].endswith(
        "; nothing to run: pictures of maps, without numbers; figure 2 is the same in numbers"
    )
    assert "CIFAR-10" in lines["p3-table-10"].partition("; nothing to run: ")[2]
    names = list(lines)
    assert names.index("p3-table-2") + 1 == names.index("p3-table-3") < names.index("p3-table-10")
    assert "p3-table-4" in results(tmp_path / "runs")


@pytest.mark.usefixtures("edits_accepted")
def test_the_page_is_rewritten_and_a_damaged_table_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inline(monkeypatch)
    named = content(
        columns=SEARCH["columns"][:2],
        groups=NPA,
        title="<script>alert(1)</script>",
        says="One.\n\nTwo.\n\nThree.",
    )
    folder = raydr.reproduce(named, out=tmp_path / "p0").folder
    page = (folder / records.TABLE_REPORT).read_text()
    assert "<script>" not in page
    above, _, below = page.partition("</table>")
    assert "<p>One.</p>" in above
    assert "Two." not in above, "findings come after the table"
    assert "<p>Two.</p><p>Three.</p>" in below
    (folder / records.TABLE_REPORT).unlink()
    assert status(["report", str(folder)]) == 0
    assert capsys.readouterr().out.strip() == str(folder / records.TABLE_REPORT)
    assert (folder / records.TABLE_REPORT).read_text() == page
    (folder / records.TABLE).write_bytes(b"PAR1")
    with pytest.raises(OutputError, match="not a table that `raydr reproduce` wrote"):
        write_paper_report(folder)


def test_the_page_of_papers_matches_the_results() -> None:
    kept = papers_reference.PAGE.read_text(encoding="utf-8").partition(papers_reference.MARK)[2]
    assert kept == papers_reference.reference(), (
        "run `python tests/papers_reference.py` to renew docs/papers.md"
    )
    readme = papers_reference.README.read_text(encoding="utf-8")
    assert readme == papers_reference.write_counts(readme), (
        "run `python tests/papers_reference.py` to renew the counts in README.md"
    )


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import yaml

    inline(monkeypatch)
    file = tmp_path / "p0.yaml"
    file.write_text(yaml.safe_dump(content(columns=SEARCH["columns"][:2], groups=NPA)))
    assert status(["reproduce", str(file), "--out", str(tmp_path / "p0")]) == 0
    out, err = capsys.readouterr()
    assert out.strip() == str(tmp_path / "p0" / records.TABLE_REPORT)
    assert "P0, table 1: A table to test by" in err
    assert "0.1000 ± " not in err
    assert status(["reproduce", str(file), "--out", str(tmp_path / "q"), "--only", "NPB"]) == 2
    assert "there is no row or column 'NPB'" in capsys.readouterr().err
    assert status(["reproduce", "p9-table-1"]) == 2
    assert "There is no table 'p9-table-1'" in capsys.readouterr().err
