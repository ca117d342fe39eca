"""Metrics by site: in metrics.json, on the page, in the terminal, and the warning of a site that is mapped worse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from run_pages import SCRIPT, read_page, write_run
from tiny import tiny_run

import raydr
from raydr.front.terminal import print_result
from raydr.report import write_report
from raydr.report.run.comparison import compare
from raydr.report.run.site_rows import site_table, unlike, warning, worst
from raydr.runfolder.reading import RunFolder, read_run

pytestmark = pytest.mark.usefixtures("edits_accepted")


def site(
    name: str, mean: float, rows: int = 100, measured: int | None = None, deviation: float = 0.2
) -> dict[str, Any]:
    return {
        "site": name,
        "rows": rows,
        "measured": rows if measured is None else measured,
        "federated": {
            "npa_10": {"mean": mean, "deviation": deviation},
            "trustworthiness": {"mean": 0.9, "deviation": 0.1},
        },
        "central": {
            "npa_10": {"mean": 0.28, "deviation": deviation},
            "trustworthiness": {"mean": 0.95, "deviation": 0.1},
        },
    }


def run_of(folder: Path, sites: list[dict[str, Any]]) -> RunFolder:
    measures = {
        "federated": {"npa_10": 0.3, "trustworthiness": 0.91},
        "central": {"npa_10": 0.33, "trustworthiness": 0.95},
        "not_computed": {},
        "sites": sites,
    }
    return read_run(write_run(folder, metrics=measures))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run in which each site has one class."""
    return tiny_run(
        tmp_path_factory.mktemp("sites") / "run",
        metrics=["npa_10", "trustworthiness"],
        compare=["central"],
        clients__partition={"kind": "shards", "classes": 1},
    )


def test_site_values_are_means_of_the_rows_of_the_map(whole: Path) -> None:
    sites = raydr.Result(whole).site_metrics
    assert len(sites) == 3
    for file, which in (("embedding", "federated"), ("central", "central")):
        kept = pq.read_table(whole / f"{file}.parquet")["npa_10"].to_numpy()
        clients = pq.read_table(whole / "embedding.parquet")["client"].to_numpy(zero_copy_only=False)
        for each in sites:
            own = kept[clients == each["site"]]
            assert (each["rows"], each["measured"]) == (own.size, own.size)
            assert each[which]["npa_10"]["mean"] == pytest.approx(own.mean())
            assert each[which]["npa_10"]["deviation"] == pytest.approx(own.std(ddof=1))
    means = [each["federated"]["npa_10"]["mean"] for each in sites]
    assert means == sorted(means)


def test_terminal_and_comparison_have_the_worst_site(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worst_site = raydr.Result(whole).site_metrics[0]
    print_result(whole)
    lines = [line.split() for line in capsys.readouterr().err.splitlines()]
    value = f"{worst_site['federated']['npa_10']['mean']:.4f}"
    assert ["Worst", "site,", f"{worst_site['site']}:", "NPA-10", value] in [line[:5] for line in lines]
    rows = {row.name: row.texts for row in compare([whole, whole]).rows}
    assert rows["worst_site.npa_10"] == (value, value)


def test_estimator_has_the_metrics_of_sites() -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    estimator = raydr.FedPCA(metrics=("npa_10",)).fit(X, sites=np.repeat(["north", "south"], [20, 40]))
    assert {each["site"]: each["rows"] for each in estimator.site_metrics_} == {"north": 20, "south": 40}
    assert estimator.site_metrics_ == estimator.result_.site_metrics
    assert estimator.result_.fidelity == {}


def test_estimator_has_verdicts_islands_and_fidelity() -> None:
    X = np.random.default_rng(0).normal(size=(120, 3))
    X[:60] += 9
    estimator = raydr.FedPCA(metrics=("default", "reliable"), scenario={"fidelity_rows": 40}).fit(X)
    frame = estimator.result_.to_frame("pyarrow")
    assert {"verdict", "reliability", "island"} <= set(frame.column_names)
    assert [island["rows"] for island in estimator.islands_] == [60, 60]
    found = estimator.result_.fidelity["query rows"]
    assert found["rows"] == 40
    npa = found["metrics"]["npa_10"]
    assert abs(npa["estimate"] - npa["pooled"]) < 4 * npa["standard_error"]
    assert npa["pooled"] == estimator.metrics_["federated"]["npa_10"]


def test_page_warns_of_a_site_with_unlike_rows(tmp_path: Path) -> None:
    few = [
        {**site(name, 0.3), "held_out": 40, "unlike": count} for name, count in (("a", 8), ("b", 3), ("c", 2))
    ]
    run = run_of(tmp_path / "few", few)
    text = "Site a has rows that are unlike those of the map: 8 of 40 held-out rows, and chance gives 2.0."
    assert unlike(run) == text
    assert text in read_page(write_report(run.path)).text
    table = site_table(run)
    assert table is not None
    assert table.headings[-1] == "Held-out rows that are unlike the others"
    assert [line.cells[-1] for line in table.lines] == ["8 of 40", "3 of 40", "2 of 40"]
    many = [
        {**site(name, 0.3), "held_out": 40, "unlike": count}
        for name, count in (("a", 9), ("b", 20), ("c", 15))
    ]
    assert unlike(run_of(tmp_path / "many", many)).endswith("and chance gives 2.0. So have 2 more sites.")
    assert unlike(run_of(tmp_path / "none", [site("a", 0.3), {**site("b", 0.3), "held_out": 40}])) == ""


def test_a_site_of_other_rows_is_warned_of(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    sites = np.repeat(["north", "south", "east"], [150, 150, 30])
    rows = random.normal(size=(330, 4))
    rows[sites == "east"] *= 6  # rows of its own kind, far from each other
    lines = [f"{name},{','.join(map(str, row))}" for name, row in zip(sites, rows.tolist(), strict=True)]
    (tmp_path / "own.csv").write_text("\n".join(["site,p,q,r,s", *lines]) + "\n")
    result = raydr.map(
        tmp_path / "own.csv",
        data__holdout=0.3,
        runtime__federation="inline",
        metrics=["npa_10"],
        compare=[],
        out=tmp_path / "run",
    )
    found = {each["site"]: (each["held_out"], each["unlike"]) for each in result.site_metrics}
    assert sum(rows for rows, _ in found.values()) == 99
    assert found["east"] == (9, 5)  # by chance, 0.5 of 9 rows
    assert max(found["north"][1], found["south"][1]) <= 5
    assert unlike(read_run(result.folder)).startswith("Site east has rows that are unlike those of the map: ")


def test_page_shows_ten_sites_and_counts_the_others(tmp_path: Path) -> None:
    names = [SCRIPT, *(f"site {number}" for number in range(11))]
    run = run_of(tmp_path / "run", [site(name, 0.2 + 0.01 * place) for place, name in enumerate(names)])
    table = site_table(run)
    assert table is not None
    assert table.headings == (
        "NPA-10",
        "NPA-10, pooled data",
        "Trustworthiness",
        "Trustworthiness, pooled data",
    )
    assert [line.site for line in table.lines] == names[:10]
    assert table.lines[0].cells == ("0.2000", "0.2800", "0.9000", "0.9500")
    page = read_page(write_report(run.path))
    assert SCRIPT not in page.raw
    assert f"Worst site: {SCRIPT}" in page.text
    assert "NPA-10 of the 100 rows of this site; trustworthiness 0.9000" in page.text
    assert "site 8" in page.text
    assert "site 9" not in page.text
    assert "2 more sites are in metrics.json." in page.text


def test_one_site_alone_is_not_the_worst(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [site("north", 0.1)])
    assert (worst(run), site_table(run), warning(run)) == (None, None, "")
    assert "Worst site" not in write_report(run.path).read_text()


def test_sampled_site_has_its_standard_error(tmp_path: Path) -> None:
    sites = [site("north", 0.2, rows=4000, measured=1000), site("south", 0.3)]
    found = worst(run_of(tmp_path / "run", sites))
    assert found is not None
    assert found.federated[0] == "0.200 ± 0.005"  # 0.2 √(3/4 / 1000)


def test_page_names_a_site_that_is_mapped_worse(tmp_path: Path) -> None:
    sites = [site("north", 0.05), site("east", 0.35), site("south", 0.35)]
    run = run_of(tmp_path / "run", sites)
    sentence = (
        "Site north is mapped worse than the others: NPA-10 0.05, all rows 0.30."
        " On the pooled-data map it has 0.28."
    )
    assert warning(run) == sentence
    assert sentence in " ".join(read_page(write_report(run.path)).text.split())
    two = run_of(
        tmp_path / "two",
        [site("north", 0.05), *(site(str(place), 0.35) for place in range(8)), site("west", 0.2)],
    )
    assert warning(two).endswith("1 more site is mapped worse too.")


@pytest.mark.parametrize(
    ("worse", "why"),
    [
        (site("north", 0.15, rows=12, deviation=0.3), "a mean of twelve rows is this far off by chance"),
        (site("north", 0.30, rows=4000), "the difference is certain, and small"),
    ],
)
def test_small_differences_raise_no_warning(tmp_path: Path, worse: dict[str, Any], why: str) -> None:
    run = run_of(tmp_path / "run", [worse, site("east", 0.35), site("south", 0.35)])
    assert warning(run) == "", why


def test_equal_sites_raise_a_warning_in_one_of_a_hundred_cases_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sites of 12 rows with shares of ten neighbours, drawn from one distribution."""
    from raydr.report.run import site_rows
    from raydr.runfolder.records import SiteMean, SiteMeasures

    random = np.random.default_rng(1)
    raised = 0
    for _ in range(300):
        kept = random.binomial(10, random.beta(1.5, 2.0, size=(8, 12))) / 10
        sites = [
            SiteMeasures(
                site=str(place),
                rows=12,
                measured=12,
                federated={"npa_10": SiteMean(mean=own.mean(), deviation=own.std(ddof=1))},
            )
            for place, own in enumerate(kept)
        ]
        raised += any(site_rows._clearly_worse(each, sites, "npa_10") for each in sites)
    assert raised <= 8  # 3 are expected; more than 8 have a probability of 0.4 %
