"""Maps of a run with other seeds and without sites: what is repeated, what is written, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from fast import fast_only
from placed import CASES, folder_of
from tiny import Wards, tiny_run, tiny_run_with_report

import raydr
from raydr.data.provenance import sha256_of_file
from raydr.errors import DataError, OutputError, RunError, ScenarioError
from raydr.front.cli import status
from raydr.journal import Journal
from raydr.privacy.composition import composed
from raydr.report import write_report
from raydr.report.run.stability_rows import sentences
from raydr.runfolder import read_run
from raydr.runfolder.records import RELIABILITY, STABILITIES, STABILITY
from raydr.scenarios.afterwards import other_maps as module
from raydr.scenarios.afterwards.other_maps import Layouts, OtherMaps, other_maps
from raydr.scenarios.afterwards.repetition import data_of_run
from raydr.scenarios.afterwards.stability import stability
from raydr.scenarios.schema.reading import read

BRIEF: dict[str, Any] = {"kind": "fed-tsne", "landmarks": 12, "early_iterations": 20, "iterations": 50}
WRITTEN = {STABILITY, RELIABILITY, "report.html", "manifest.json"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run whose maps were compared by the command."""
    folder = tiny_run_with_report(tmp_path_factory.mktemp("compared") / "run", method=BRIEF)
    assert status(["stability", str(folder), "--seeds", "2", "--quiet"]) == 0
    return folder


@pytest.fixture
def run(compared: Path, tmp_path: Path) -> Path:
    """Return a copy for one test."""
    return Path(shutil.copytree(compared, tmp_path / "run"))


def maps_of(folder: Path) -> OtherMaps:
    run, scenario, journal = read_run(folder), read(folder / "scenario.yaml"), Journal()
    return other_maps(run, scenario, data_of_run(run, scenario, None, journal), journal)


def facts(folder: Path) -> dict[str, str]:
    """Return the hash of every file."""
    return {
        path.relative_to(folder).as_posix(): sha256_of_file(path)
        for path in folder.rglob("*")
        if path.is_file()
    }


def on_one_line(text: str) -> str:
    return " ".join(text.split())


# --------------------------------------------------------------------------------------- which other maps


FAST = (
    "fed-tsne",
    "fed-tsne, keyed",
    "fed-spectral",
    "sense, hyperbolic in the disk",
    "fedne",
    "private-map",
)


@pytest.mark.parametrize(
    "case", fast_only(lambda case: case in FAST, [case for case in CASES if "noisy" not in case])
)
def test_seed_of_the_run_gives_the_map_of_the_run(case: str, root: Path) -> None:
    """Nothing but the seed differs from the run, unless each run has its own noise. So places change with the seed."""
    folder = folder_of(case, root)
    maps = maps_of(folder)
    np.testing.assert_array_equal(maps.with_seed(0).places, read_run(folder).federated)
    found = maps.cost()
    assert found.redrawn == (case == "private-map") == (found.messages == 0)


@pytest.mark.parametrize(
    "settings", [{}, {"harmonize": {"kind": "combat", "keep": ["diagnosis"]}}, {"target_weight": 0.3}]
)
def test_map_without_a_site_is_that_of_a_table_without_its_rows(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    wards = Wards.drawn(150)
    data = {"scale": "standard", **settings}
    folder = tiny_run(tmp_path / "run", method=BRIEF, **wards.written(tmp_path / "wards.csv", **data))
    for site, ward in enumerate(wards.names):
        found = maps_of(folder).without(site)
        kept = np.flatnonzero(wards.wards != ward)
        np.testing.assert_array_equal(found.rows, kept)
        less = Wards(wards.ids[kept], wards.wards[kept], wards.labels[kept], wards.rows[kept])
        alone = tiny_run(
            tmp_path / ward, method=BRIEF, **less.written(tmp_path / f"without-{ward}.csv", **data)
        )
        np.testing.assert_array_equal(found.places, read_run(alone).federated)
        left = tiny_run(
            tmp_path / f"left-{ward}",
            method=BRIEF,
            data={**data, "path": str(tmp_path / "wards.csv"), "id": "patient", "label": "diagnosis"},
            clients={"partition": {"kind": "by-column", "column": "ward"}, "without": [ward]},
        )
        np.testing.assert_array_equal(found.places, read_run(left).federated)


def test_sites_with_their_own_files_are_left_out_too(tmp_path: Path) -> None:
    wards = Wards.drawn(150).in_blocks
    whole = wards.written(tmp_path / "wards.csv")
    paths = []
    for ward in wards.names:
        own = wards.of(ward)
        one = Wards(wards.ids[own], wards.wards[own], wards.labels[own], wards.rows[own])
        one.written(tmp_path / f"{ward}.csv")
        paths.append({"path": str(tmp_path / f"{ward}.csv")})
    data = {"id": "patient", "label": "diagnosis", "exclude": ["ward"]}
    folder = tiny_run(tmp_path / "files", method=BRIEF, data=data, clients={"sites": paths})
    table = tiny_run(tmp_path / "table", method=BRIEF, **whole)
    np.testing.assert_array_equal(maps_of(folder).without(1).places, maps_of(table).without(1).places)


def test_other_seeds_have_the_clients_and_rows_of_the_run(tmp_path: Path) -> None:
    """The seed draws rows and clients too, but here only the method's own draws change."""
    folder = tiny_run(tmp_path / "run", method={"kind": "fed-pca"}, data={"source": "iris", "rows": 100})
    maps = maps_of(folder)
    np.testing.assert_array_equal(maps.with_seed(1).places, read_run(folder).federated)


# -------------------------------------------------------------------------------------------- what is written


def test_columns_counts_and_sentences_agree(compared: Path) -> None:
    found, table = raydr.load(compared).stability, pq.read_table(compared / RELIABILITY)
    assert found is not None
    record = found.record
    assert table.column_names == ["row", "client", "stability_seeds", "stability_sites", "stability"]
    texts = table["stability"].to_pylist()
    assert texts.count(STABILITIES[1]) == record.with_seed
    assert texts.count(STABILITIES[2]) == record.without_site
    assert [(other.seed, other.without) for other in record.comparisons] == [
        (1, None),
        (2, None),
        (0, "client-0"),
        (0, "client-1"),
        (0, "client-2"),
    ]
    assert sum(other.rows for other in record.comparisons) == 2 * 150 + 2 * 150
    assert record.neighbors == 15
    page = on_one_line((compared / "report.html").read_text(encoding="utf-8"))
    assert all(on_one_line(sentence) in page for sentence in sentences(read_run(compared)))
    ledger = [entry for entry in raydr.load(compared).ledger if entry["direction"] == "up"]
    assert record.cost.repetitions == 5
    # Three clients send three fifths of five runs, and two clients of three the rest.
    assert record.cost.messages == 4 * sum(entry["count"] for entry in ledger)


def test_command_tells_on_the_terminal_and_replaces_its_files(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = facts(run)
    assert status(["stability", str(run), "--seeds", "2"]) == 0
    captured = capsys.readouterr()
    assert captured.out.strip().endswith("report.html")
    for sentence in sentences(read_run(run)):
        assert on_one_line(sentence) in on_one_line(captured.err)
    after = facts(run)
    assert {name for name in after if after[name] != before.get(name)} <= WRITTEN
    assert after[RELIABILITY] == before[RELIABILITY]
    stability(run, seeds=1, without_sites=False, report=False)
    found = read_run(run).stability
    assert found is not None
    assert len(found.record.comparisons) == 1
    assert np.isnan(found.over_sites).all()


@pytest.mark.parametrize(
    ("method", "islands"),
    [
        ({**BRIEF, "dimensions": 3, "iterations": 250}, True),
        (CASES["sense, hyperbolic in the disk"]["method"], False),
    ],
    ids=["3-D", "disk"],
)
def test_maps_of_three_dimensions_and_in_the_disk(
    method: dict[str, Any], islands: bool, tmp_path: Path
) -> None:
    folder = tiny_run(tmp_path / "run", method=method)
    stability(folder, seeds=1, without_sites=False)
    found = read_run(folder).stability
    assert found is not None
    assert bool(found.record.islands) == islands
    assert 0.0 < found.over_seeds.mean() <= 1.0


def test_other_type_of_processor_is_told(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raydr.scenarios.afterwards.stability.blas_core_types", lambda: ["Strange"])
    heard: list[str] = []
    stability(
        run, seeds=1, without_sites=False, report=False, listener=lambda event: heard.append(str(event))
    )
    assert any("this processor (Strange) is of another type" in event for event in heard)


def test_verdict_of_the_metric_is_in_the_same_file(tmp_path: Path) -> None:
    folder = tiny_run(tmp_path / "run", metrics=["reliable"])
    stability(folder, seeds=1, without_sites=False, report=False)
    table, own = pq.read_table(folder / RELIABILITY), pq.read_table(folder / "embedding.parquet")
    assert table.column_names[2:4] == ["reliability", "verdict"]
    for name in ("row", "client", "reliability", "verdict"):
        assert table[name].to_pylist() == own[name].to_pylist()


@pytest.mark.usefixtures("no_report")
def test_interruption_leaves_the_folder_as_it_was(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, served = facts(run), []
    serve = module.InlineBackend.serve

    def interrupted(self: Any, *arguments: Any, **options: Any) -> Any:
        served.append(1)
        if len(served) == 3:
            raise KeyboardInterrupt
        return serve(self, *arguments, **options)

    monkeypatch.setattr(module.InlineBackend, "serve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stability(run, seeds=2)
    assert facts(run) == before


def test_failed_repetition_names_its_map(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RunError("lost")

    before = facts(run)
    monkeypatch.setattr(module.InlineBackend, "serve", fail)
    with pytest.raises(RunError, match="lost") as caught:
        stability(run, seeds=0)
    assert caught.value.__notes__ == ["This was the map without client-0. The run folder is unchanged."]
    assert facts(run) == before


def test_read_only_folder_is_refused_before_any_work(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: Any) -> Any:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("raydr.files.os.replace", read_only)
    monkeypatch.setattr(module.InlineBackend, "serve", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(OutputError, match=r"Read-only file system\): free space or permissions"):
        stability(run)


def test_owner_may_delete_the_files(run: Path) -> None:
    (run / RELIABILITY).unlink()
    with pytest.raises(OutputError, match=r"reliability\.parquet is missing"):
        read_run(run)
    (run / STABILITY).unlink()
    assert read_run(run).stability is None
    write_report(run)


def test_changed_columns_are_refused(run: Path) -> None:
    table = pq.read_table(run / RELIABILITY)
    pq.write_table(table.slice(1), run / RELIABILITY)
    with pytest.raises(OutputError, match=r"reliability\.parquet was changed"):
        read_run(run)


@pytest.mark.usefixtures("edits_accepted")
def test_columns_of_other_rows_and_records_of_other_maps_are_refused(run: Path) -> None:
    table = pq.read_table(run / RELIABILITY)
    pq.write_table(table.slice(1), run / RELIABILITY)
    with pytest.raises(OutputError, match="does not hold the rows"):
        read_run(run)
    wrong = table.set_column(4, "stability", [["perhaps"] * table.num_rows])
    pq.write_table(wrong, run / RELIABILITY)
    with pytest.raises(OutputError, match="has a stability 'perhaps', which is none of stays"):
        read_run(run)
    pq.write_table(table, run / RELIABILITY)
    record = json.loads((run / STABILITY).read_text())
    (run / STABILITY).write_text(json.dumps(record | {"map": "0" * 64}))
    with pytest.raises(OutputError, match=r"stability\.json belongs to another map"):
        read_run(run)


# -------------------------------------------------------------------------------------------- what is refused


def test_changed_data_are_refused(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    np.save(tmp_path / "rows.npy", rows)
    folder = tiny_run(tmp_path / "run", data={"path": str(tmp_path / "rows.npy")}, method={"kind": "fed-pca"})
    np.save(tmp_path / "rows.npy", rows + 1.0)
    with pytest.raises(DataError, match="have changed"):
        stability(folder)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("{}")
    with pytest.raises(OutputError, match="is a sweep folder"):
        stability(tmp_path)
    with pytest.raises(OutputError, match="is not a folder"):
        stability(tmp_path / "absent")
    (tmp_path / "run.incomplete-abc").mkdir()
    with pytest.raises(OutputError, match="interrupted"):
        stability(tmp_path / "run.incomplete-abc")


def test_few_rows_are_refused(tmp_path: Path) -> None:
    folder = tiny_run(tmp_path / "run", method={"kind": "fed-pca"}, data={"source": "iris", "rows": 49})
    with pytest.raises(ScenarioError, match="has 49 rows, and comparing neighbours needs at least 50"):
        stability(folder)


def test_two_sites_are_compared_by_seeds_alone(tmp_path: Path) -> None:
    folder = tiny_run(tmp_path / "run", clients={"count": 2}, method={"kind": "fed-pca"})
    stability(folder, seeds=1, report=False)
    found = read_run(folder).stability
    assert found is not None
    assert found.record.kept == [
        "The run has 2 sites with rows, and leaving one out needs 3, so none was left out."
    ]
    with pytest.raises(ScenarioError, match="leave out --without-sites"):
        stability(folder, without_sites=True)
    with pytest.raises(ScenarioError, match=r"no map to compare with: give --seeds 1"):
        stability(folder, seeds=0)
    with pytest.raises(ScenarioError, match="give 0 or more"):
        raydr.stability(folder, seeds=-1)


def test_largest_sites_are_left_out_and_the_others_named(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(130, 3))
    owner = np.repeat(["a", "b", "c", "d"], [90, 20, 15, 5])
    lines = [",".join([name, *map(str, row)]) for name, row in zip(owner, rows.tolist(), strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["site,x,y,z", *lines]) + "\n")
    folder = tiny_run(
        tmp_path / "run",
        data={"path": str(tmp_path / "rows.csv")},
        clients={"partition": {"kind": "by-column", "column": "site"}},
        method={"kind": "fed-pca"},
    )
    maps = maps_of(folder)
    assert maps.sites(None) == (
        [1, 2, 3],
        ["a was not left out: the other sites have 40 rows, and comparing neighbours needs 50."],
    )
    assert maps.sites(False) == ([], [])


def test_number_of_sites_is_limited(tmp_path: Path) -> None:
    folder = tiny_run(tmp_path / "run", clients={"count": 12}, method={"kind": "fed-pca"})
    chosen, kept = maps_of(folder).sites(True)
    assert len(chosen) == 10
    assert kept == ["Only the 10 largest of 12 sites were left out, one at a time."]


# ------------------------------------------------------------------------------------------- what it would cost


def noisy(tmp_path: Path, **privacy: Any) -> Path:
    """Return a run with an epsilon."""
    settings = {
        "kind": "fedne", "rounds": 2, "hidden": [8], "local_epochs": 1, "publish": "local", "bounds": [0, 8]
    }  # fmt: skip
    privacy = {"noise": {"on": "update", "epsilon": 4.0, "clip": 1.0, "per": "sum"}, **privacy}
    return tiny_run(tmp_path / "run", method=settings, privacy=privacy)


def test_epsilon_of_repetitions_is_composed(tmp_path: Path) -> None:
    folder = noisy(tmp_path)
    stability(folder, seeds=2, without_sites=False, report=False)
    run = read_run(folder)
    assert run.stability is not None
    seeds, own = run.stability.record.cost, run.privacy.cost
    assert own.accounted > 0.0
    assert seeds.accounted == pytest.approx(composed([own] * 3, own.delta).accounted, abs=1e-6)
    assert seeds.epsilon == (None if own.epsilon is None else seeds.accounted)
    told = " ".join(sentences(run))
    assert f"The run and all repetitions would cost epsilon {seeds.epsilon:.3g} at delta 1e-5" in told
    stability(folder, seeds=2, report=False)
    again = read_run(folder).stability
    assert again is not None
    assert again.record.cost.accounted > seeds.accounted  # type: ignore[operator]


def test_budget_of_the_scenario_limits_the_repetitions(tmp_path: Path) -> None:
    spent = read_run(noisy(tmp_path)).privacy.epsilon_accounted
    folder = noisy(tmp_path / "limited", epsilon_max=1.7 * spent, strict="sums")
    stability(folder, seeds=1, without_sites=False, report=False)
    with pytest.raises(ScenarioError, match=r"privacy\.epsilon_max is .*--no-without-sites"):
        stability(folder, seeds=1)


def test_private_map_is_drawn_again_from_its_release(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(folder_of("private-map", root), tmp_path / "run"))
    monkeypatch.setattr(module.InlineBackend, "serve", lambda *_, **__: pytest.fail("a message was sent"))
    with pytest.raises(ScenarioError, match="Leave out --without-sites"):
        stability(folder, without_sites=True)
    stability(folder, seeds=2, report=False)
    run = read_run(folder)
    assert run.stability is not None
    cost = run.stability.record.cost
    assert (cost.messages, cost.bytes, cost.repetitions) == (0, 0, 0)
    assert cost.epsilon == run.privacy.epsilon
    assert f"epsilon stays {run.privacy.epsilon:.3g}" in " ".join(sentences(run))
    assert isinstance(maps_of(folder), Layouts)


# -------------------------------------------------------------------------------------------- what it finds


def test_places_of_noise_change_and_places_of_irises_stay(tmp_path: Path) -> None:
    np.save(tmp_path / "noise.npy", np.random.default_rng(0).normal(size=(400, 10)))
    shares = {}
    for name, data in {"noise": {"path": str(tmp_path / "noise.npy")}, "iris": {"source": "iris"}}.items():
        folder = tiny_run(tmp_path / name, data=data, method={"kind": "fed-umap", "epochs": 200})
        stability(folder, report=False)
        found = read_run(folder).stability
        assert found is not None
        shares[name] = float((found.verdicts > 0).mean())
    assert shares["noise"] >= 0.8
    assert shares["iris"] <= 0.1
