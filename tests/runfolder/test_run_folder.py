"""A run folder is complete or named incomplete, describes the run, and repeats it bit for bit."""

from __future__ import annotations

import errno
import json
import re
import shlex
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from places import DOCS
from sklearn.datasets import load_iris
from tiny import Wards, tiny, tiny_file, tiny_run, tiny_run_with_report, tiny_scenario

import raydr
from raydr.errors import OutputError, ScenarioError
from raydr.front.cli import status
from raydr.journal import Event, StageEnded, StageStarted
from raydr.runfolder.locking import locked
from raydr.runfolder.making import default_folder, incomplete
from raydr.runfolder.reading import read_run
from raydr.scenarios.runner import run
from raydr.scenarios.running.checkpoints import Checkpoints
from raydr.scenarios.schema.reading import dump, read

FILES = {
    "scenario.yaml",
    "embedding.parquet",
    "metrics.json",
    "ledger.json",
    "privacy.json",
    "rounds.jsonl",
    "data.json",
    "fingerprints.json",
    "model",
    "report.html",
    "embedding.png",
    "environment.json",
    "notes.json",
    "manifest.json",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny run with labels and the pooled-data map."""
    return tiny_run_with_report(
        tmp_path_factory.mktemp("runs") / "whole", compare=["central"], metrics=["npa_10", "ca_10", "f_score"]
    )


def embedding(folder: Path) -> bytes:
    """Return the bits of the map."""
    return raydr.Result(folder).embedding.tobytes()


# --- content --------------------------------------------------------------------------------------------------------


def test_run_folder_is_complete_and_read_back(whole: Path) -> None:
    assert {entry.name for entry in whole.iterdir()} == FILES | {"central.parquet"}
    assert [entry.name for entry in whole.parent.iterdir()] == ["whole"]
    assert len(read_run(whole).federated) == 150


def test_embedding_has_every_row_once_in_table_order(whole: Path) -> None:
    table = pq.read_table(whole / "embedding.parquet")
    assert table.column_names == ["row", "client", "x", "y", "label", "npa_10"]
    assert table["row"].to_pylist() == list(range(150))
    assert set(table["client"].to_pylist()) == {"client-0", "client-1", "client-2"}
    assert set(table["label"].to_pylist()) == {"setosa", "versicolor", "virginica"}


MIXED: dict[str, dict[str, Any]] = {
    "clusters": {
        "method": {
            "kind": "fed-spectral",
            "affinity": "rbf",
            "clusters": 3,
            "landmarks": 12,
            "rounds": 2,
            "embedder": {"kind": "tsne", "early_iterations": 5, "iterations": 5},
        },
        "metrics": ["npa_10", "distance_error", "f_score", "nmi"],
    },
    "maps along the way": {"metrics": ["npa_10", "distance_error", "f_score"], "evaluate_every": 1},
    "classes that are kept": {
        "data__harmonize": {"kind": "combat", "keep": ["diagnosis"]},
        "compare": ["central"],
    },
}


@pytest.mark.parametrize("what", MIXED)
def test_mixed_clients_give_the_map_of_clients_in_blocks(tmp_path: Path, what: str) -> None:
    """Clients have the same rows in the same order, so every row has the same place, cluster and scores."""
    mixed = Wards.drawn()
    assert not np.array_equal(mixed.in_blocks.ids, mixed.ids)
    found = []
    for name, wards in (("mixed", mixed), ("blocks", mixed.in_blocks)):
        settings = wards.written(tmp_path / f"{name}.csv")
        folder = tiny_run(tmp_path / name, **settings, **MIXED[what])
        table = pq.read_table(folder / "embedding.parquet")
        assert table["row"].to_pylist() == wards.ids.tolist()
        assert table["client"].to_pylist() == wards.wards.tolist()
        assert table["label"].to_pylist() == wards.labels.tolist()
        scores = {"whole": json.loads((folder / "metrics.json").read_text())["federated"]}
        maps = [table.sort_by("row")]
        if (folder / "progress.json").exists():
            scores |= json.loads((folder / "progress.json").read_text())
            along = pq.read_table(folder / "progress.parquet")
            maps.append(along.sort_by([("round", "ascending"), ("row", "ascending")]))
        found.append((scores, maps))
    (scores, maps), (expected, others) = found
    for one, other in zip(maps, others, strict=True):
        for column in one.column_names:
            assert one[column].to_pylist() == other[column].to_pylist(), column
    assert scores.keys() == expected.keys()
    for when, score in scores.items():
        assert score == pytest.approx(expected[when], rel=1e-6)
        assert list(score) == MIXED[what].get("metrics", ["npa_10"])
    assert ("cluster" in maps[0].column_names) is (what == "clusters")
    assert len(maps) == 1 + (what == "maps along the way")


def test_metrics_are_the_requested_ones(
    whole: Path,
) -> None:
    content = json.loads((whole / "metrics.json").read_text())
    assert list(content["federated"]) == ["npa_10", "ca_10", "f_score"]
    assert list(content["central"]) == ["npa_10", "ca_10"]


def test_ledger_has_plain_distances_and_simulation_entries(
    whole: Path,
) -> None:
    entries = {entry["kind"]: entry for entry in raydr.Result(whole).ledger}
    distances = entries["Distances"]
    assert (distances["direction"], distances["granularity"], distances["protection"]) == (
        "up",
        "per-record",
        None,
    )
    assert distances["epsilon"] is None
    assert entries["pooled evaluation"]["direction"] == "simulation-only"


def test_rounds_have_lines_and_stages_have_seconds(whole: Path) -> None:
    rounds = [json.loads(line) for line in (whole / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in rounds] == [1, 2]
    seconds = json.loads((whole / "environment.json").read_text())["seconds"]
    assert {"data", "landmarks", "distances", "embedding", "central map", "metrics"} <= seconds.keys()


def test_model_has_no_training_row(whole: Path) -> None:
    rows = {row.tobytes() for row in np.load(whole / "model" / "arrays.npz")["landmarks"]}
    from raydr.data import load

    assert not rows & {row.tobytes() for row in load(source="iris").rows.astype(np.float64)}


def test_scenarios_page_lists_every_file(whole: Path) -> None:
    page = (DOCS / "scenarios.md").read_text()
    table = re.search(r"## What a run leaves\n.*?\n\|.*?\n\n", page, re.DOTALL)
    assert table is not None
    rows = [line.split("|")[1] for line in table[0].splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    unasked = {
        "progress.json",
        "progress.parquet",
        "held_out.parquet",
        "stress.json",
        "earlier.json",
        "stability.json",
        "reliability.parquet",
        "joined",
        "shown.parquet",
    }
    assert listed == {entry.name for entry in whole.iterdir()} | unasked


def test_mean_row_faithfulness_equals_the_metric(whole: Path) -> None:
    measures = json.loads((whole / "metrics.json").read_text())
    for file, which in (("embedding", "federated"), ("central", "central")):
        kept = pq.read_table(whole / f"{file}.parquet")["npa_10"].to_numpy()
        assert kept.mean() == pytest.approx(measures[which]["npa_10"], abs=1e-12)
        assert len(set(kept)) > 3
    read = read_run(whole)
    assert read.faithfulness is not None
    assert read.faithfulness.neighbors == 10


def test_run_without_neighbour_metrics_has_no_faithfulness(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", metrics=["trustworthiness"])
    assert pq.read_table(run / "embedding.parquet").column_names == ["row", "client", "x", "y", "label"]
    assert read_run(run).faithfulness is None


def test_shown_columns_are_stored_and_change_no_bit(whole: Path, tmp_path: Path) -> None:
    names = ["petal width (cm)", "sepal length (cm)"]
    run = tiny_run(tmp_path / "run", compare=["central"], show=names, data__scale="standard")
    table = load_iris(as_frame=True).frame
    shown = pq.read_table(run / "shown.parquet")
    assert shown.column_names == ["row", *(f"column.{name}" for name in names)]
    for name in names:
        np.testing.assert_allclose(shown[f"column.{name}"].to_numpy(), table[name].to_numpy())
        np.testing.assert_allclose(read_run(run).shown[name], table[name].to_numpy())
    plain = tiny_run(tmp_path / "plain", compare=["central"], data__scale="standard")
    assert embedding(plain) == embedding(run)
    assert not (plain / "shown.parquet").exists()


def test_unmapped_column_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(
        ScenarioError, match=r"'petal width', which is not mapped \(did you mean 'petal width"
    ):
        tiny_run_with_report(tmp_path / "run", show=["petal width"])
    with pytest.raises(ScenarioError, match="twice"):
        tiny_run_with_report(tmp_path / "run", show=["petal width (cm)"] * 2)
    assert not list(tmp_path.iterdir())


# --- the same again -------------------------------------------------------------------------------------------------


def test_scenario_of_a_run_folder_repeats_the_run(whole: Path, tmp_path: Path) -> None:
    assert status(["run", str(whole / "scenario.yaml"), "--out", str(tmp_path / "again"), "--quiet"]) == 0
    assert embedding(tmp_path / "again") == embedding(whole)
    for file in ("scenario.yaml", "metrics.json", "ledger.json"):
        assert (tmp_path / "again" / file).read_bytes() == (whole / file).read_bytes()


def test_scenario_of_a_run_folder_is_the_one_that_ran(whole: Path) -> None:
    scenario = tiny_scenario(compare=["central"], metrics=["npa_10", "ca_10", "f_score"])
    assert read(whole / "scenario.yaml") == scenario
    assert (whole / "scenario.yaml").read_text() == dump(scenario)


def test_python_and_command_line_give_equal_runs(whole: Path, tmp_path: Path) -> None:
    metrics = ["npa_10", "ca_10", "f_score"]
    result = raydr.run(
        tiny(), out=tmp_path / "python", metrics=metrics, compare=["central"], clients__count=3
    )
    assert result.folder == tmp_path / "python"
    assert result.report == tmp_path / "python" / "report.html"
    assert embedding(result.folder) == embedding(whole)
    assert result.metrics == raydr.Result(whole).metrics
    assert result.embedding.shape == (150, 2)


def test_another_seed_changes_the_run(whole: Path, tmp_path: Path) -> None:
    other = tiny_run(tmp_path / "other", seed=1)
    assert embedding(other) != embedding(whole)
    clients = [pq.read_table(folder / "embedding.parquet")["client"] for folder in (other, whole)]
    assert clients[0] != clients[1]


# --- whole or incomplete --------------------------------------------------------------------------------------------


def test_unfinished_folder_is_named_incomplete(tmp_path: Path) -> None:
    seen: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage != "report":
            seen.extend(entry.name for entry in tmp_path.iterdir())

    run(tiny_scenario(), out=tmp_path / "out", listener=listen)
    assert seen
    assert all(name.startswith("out.incomplete-") for name in seen)
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("stage", "error"),
    [
        ("data", KeyboardInterrupt),
        ("landmarks", RuntimeError),
        ("embedding", KeyboardInterrupt),
        ("metrics", RuntimeError),
        ("run folder", KeyboardInterrupt),
    ],
)
def test_failed_run_leaves_no_folder(tmp_path: Path, stage: str, error: type[BaseException]) -> None:
    def listen(event: Event) -> None:
        if event == StageStarted(stage):
            raise error

    with pytest.raises(error):
        run(tiny_scenario(), out=tmp_path / "out", listener=listen)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "stage", ["landmarks", pytest.param("neighbours", marks=pytest.mark.slow), "run folder"]
)
def test_resumed_run_equals_the_uninterrupted_run(whole: Path, tmp_path: Path, stage: str) -> None:
    def listen(event: Event) -> None:
        if event == StageEnded(stage, getattr(event, "seconds", 0.0)):
            raise KeyboardInterrupt

    scenario = tiny_scenario(metrics=["npa_10", "ca_10", "f_score"], runtime__checkpoint_every=1)
    with pytest.raises(KeyboardInterrupt) as caught:
        run(scenario, out=tmp_path / "out", listener=listen)
    (folder,) = tmp_path.iterdir()
    assert caught.value.__notes__ == [
        f"Continue from the last checkpoint with `raydr run {folder} --resume`."
    ]
    result = raydr.resume(folder)
    assert result.folder == tmp_path / "out"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    assert {entry.name for entry in result.folder.iterdir()} == FILES
    assert embedding(result.folder) == embedding(whole)
    assert len(read_run(result.folder).rounds) == 2


def test_failed_write_is_an_output_error(tmp_path: Path) -> None:
    def listen(event: Event) -> None:
        if event == StageStarted("run folder"):
            next(tmp_path.iterdir()).rename(tmp_path / "moved")

    with pytest.raises(OutputError, match=r"could not be written: .*No such file or directory"):
        run(tiny_scenario(), out=tmp_path / "out", listener=listen)
    assert not (tmp_path / "out").exists()


def test_file_system_error_elsewhere_is_no_output_error(tmp_path: Path) -> None:
    def listen(event: Event) -> None:
        if event == StageStarted("landmarks"):
            raise ConnectionError("the cluster went away")

    with pytest.raises(ConnectionError):
        run(tiny_scenario(), out=tmp_path / "out", listener=listen)


# --- whole before it is shown ---------------------------------------------------------------------------------------


def test_picture_is_drawn_after_the_folder_is_complete(tmp_path: Path) -> None:
    seen: list[set[str]] = []

    def listen(event: Event) -> None:
        if event == StageStarted("report"):
            seen.append({entry.name for entry in (tmp_path / "out").iterdir()})

    run(tiny_scenario(), out=tmp_path / "out", listener=listen)
    assert seen == [FILES - {"report.html", "embedding.png"}]


@pytest.mark.parametrize(
    ("failing", "other", "checkpoint_every"), [("picture", "report.html", 0), ("report", "embedding.png", 1)]
)
def test_failed_picture_keeps_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failing: str,
    other: str,
    checkpoint_every: int,
) -> None:
    def fail(folder: Path) -> Path:
        raise ValueError("Expected end of text,\nfound '$'")

    out = tmp_path / "out"
    settings = ["--set", f"runtime.checkpoint_every={checkpoint_every}", "--out", str(out), "-q"]
    with monkeypatch.context() as patch:
        patch.setattr(f"raydr.scenarios.afterwards.showing.write_{failing}", fail)
        assert status(["run", str(tiny_file(tmp_path)), *settings]) == 3
    message = capsys.readouterr().err
    assert f"The run is complete in {out}" in message
    assert "Expected end of text, found '$'" in message
    assert f"`raydr report {out}`" in message
    assert message.count("\n") == 1
    assert {entry.name for entry in tmp_path.iterdir()} == {"tiny.yaml", "out"}
    assert {entry.name for entry in out.iterdir()} == FILES - {"report.html", "embedding.png"} | {other}
    assert status(["report", str(out)]) == 0
    assert {entry.name for entry in out.iterdir()} == FILES


def test_interrupted_drawing_keeps_the_folder_with_a_note(tmp_path: Path) -> None:
    def listen(event: Event) -> None:
        if event == StageStarted("report"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        run(tiny_scenario(), out=tmp_path / "out", listener=listen)
    assert caught.value.__notes__ == [
        f"The run in {tmp_path / 'out'} is complete: to write its picture and report, run `raydr report"
        f" {tmp_path / 'out'}`."
    ]
    assert len(read_run(tmp_path / "out").federated) == 150


def test_labels_with_dollar_signs_are_mapped(tmp_path: Path) -> None:
    classes = ["$25k_to_$50k", "$x_$", "_y"]
    lines = [f"{row * row % 17},{row % 5},{classes[row % 3]}" for row in range(40)]
    (tmp_path / "incomes.csv").write_text("\n".join(["a,b,income", *lines]))
    folder = tiny_run_with_report(
        tmp_path / "out", data={"path": str(tmp_path / "incomes.csv"), "label": "income"}
    )
    assert set(read_run(folder).labels or ()) == set(classes)
    assert (folder / "embedding.png").exists()


# --- places ---------------------------------------------------------------------------------------------------------


def refused(target: Path) -> str:
    """Return the error for an unusable folder."""
    with pytest.raises(OutputError) as caught, incomplete(target, Checkpoints):
        pytest.fail("the work began")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_non_empty_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    assert "exists and is not empty" in refused(tmp_path)
    assert "is a file, but a run writes a folder" in refused(tmp_path / "kept")
    assert (tmp_path / "kept").read_text() == "kept"


def test_empty_folder_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with incomplete(tmp_path / "empty", Checkpoints) as folder:
        (folder / "file").touch()
    assert (tmp_path / "empty" / "file").exists()


@pytest.mark.parametrize("place", ["file/below", "file/further/below", "x" * 300])
def test_folder_that_cannot_be_created_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    assert "Cannot create the output folder" in refused(tmp_path / place)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs an unwritable file system")
def test_read_only_folder_is_refused() -> None:
    assert "Cannot create the output folder" in refused(Path("/proc/run"))


def test_complete_run_cannot_be_named_incomplete(tmp_path: Path) -> None:
    assert "marks a run that is not complete" in refused(tmp_path / "my-incomplete-run")


def test_runs_in_the_same_second_get_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    now = datetime(2026, 2, 3, 10, 22, 31)
    first = default_folder("tiny", now)
    assert first == Path("runs/tiny-20260203-102231")
    with incomplete(first.absolute(), Checkpoints):
        second = default_folder("tiny", now)
        assert second == Path("runs/tiny-20260203-102231-2")
        second.mkdir()
    assert default_folder("tiny", now) == Path("runs/tiny-20260203-102231-3")


# --- nothing is lost where the name is taken -------------------------------------------------------------------------


def finish(target: Path, take: Callable[[Path], object]) -> None:
    with incomplete(target, Checkpoints) as folder:
        (folder / "result").write_text("kept")
        take(target)


def left_at(target: Path, take: Callable[[Path], object]) -> str:
    """Finish a run while ``take`` uses its target; check that the results are kept and return the error."""
    with pytest.raises(OutputError) as caught:
        finish(target, take)
    (folder,) = target.parent.glob("*.incomplete-*")
    assert (folder / "result").read_text() == "kept"
    assert shlex.join(["mv", str(folder), str(target)]) in str(caught.value)
    return str(caught.value)


def full_folder(target: Path) -> None:
    target.mkdir()
    (target / "other").touch()


@pytest.mark.parametrize(
    ("take", "why"),
    [
        (full_folder, "Directory not empty"),
        (Path.touch, "Not a directory"),
        (lambda target: target.symlink_to("nowhere"), "Not a directory"),
    ],
)
def test_complete_run_is_kept_if_its_name_is_taken(
    tmp_path: Path, take: Callable[[Path], object], why: str
) -> None:
    assert why in left_at(tmp_path / "my run", take)


def test_complete_run_is_kept_if_the_rename_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: Path, target: Path) -> Path:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "rename", failing)
    assert "Input/output error" in left_at(tmp_path / "out", lambda target: None)


def test_run_uses_an_empty_folder_created_meanwhile(tmp_path: Path) -> None:
    with incomplete(tmp_path / "out", Checkpoints) as folder:
        (folder / "result").write_text("kept")
        (tmp_path / "out").mkdir()
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"result", "manifest.json"}


def test_two_runs_cannot_write_one_folder(tmp_path: Path) -> None:
    with incomplete(tmp_path / "out", Checkpoints):
        assert "Another process is writing" in refused(tmp_path / "out")
        with incomplete(tmp_path / "out-2", Checkpoints):
            pass
    assert {place.name for place in tmp_path.iterdir()} == {"out", "out-2"}


def test_interrupted_run_does_not_block_its_name(tmp_path: Path) -> None:
    left = tmp_path / "out.incomplete-abcdef"
    left.mkdir()
    with locked(left / "checkpoints", "run"):
        pass
    with incomplete(tmp_path / "out", Checkpoints) as folder:
        (folder / "result").touch()
    assert (tmp_path / "out" / "result").exists()
    assert left.exists()


# --- refused before any work ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("federation", ["inline", pytest.param("ray", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"method__landmarks": 151}, "method.landmarks is 151, but the clients hold only 150 rows"),
        ({"method__landmarks": 151, "data__rows": 150}, "Choose at most 150 landmarks"),
        (
            {"method__perplexity": 60.0},
            "perplexity is 60.*The largest perplexity for 150 rows is 49.66",
        ),
        (
            {"method": {"kind": "fed-umap", "neighbors": 150}},
            "neighbors is 150.*The largest neighbors for 150 rows is 149",
        ),
    ],
)
def test_too_many_for_the_rows_is_refused_before_the_run(
    tmp_path: Path, federation: str, overrides: dict[str, Any], message: str
) -> None:
    stages: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageStarted):
            stages.append(event.stage)

    scenario = tiny_scenario(**overrides, runtime__federation=federation)
    with pytest.raises(ScenarioError, match=message):
        run(scenario, out=tmp_path / "out", listener=listen)
    assert set(stages) <= {"starting Ray", "data"}  # side by side
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"faults__crashes": [{"client": 3, "round": 1}]}, "names client 3, but there are 3 clients"),
        ({"faults__adversary": {"kind": "scaling", "fraction": 0.1}}, "is no client of 3"),
        ({"method__aggregation": {"kind": "krum", "attackers": 1}}, "at least 5 clients"),
    ],
)
def test_too_many_for_the_clients_is_refused(tmp_path: Path, overrides: dict[str, Any], message: str) -> None:
    scenario = tiny_scenario(clients={"partition": {"kind": "one-class"}}, **overrides)
    with pytest.raises(ScenarioError, match=message):
        run(scenario, out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_as_many_landmarks_as_rows_are_allowed(tmp_path: Path) -> None:
    assert tiny_run_with_report(tmp_path / "out", method__landmarks=150).exists()
