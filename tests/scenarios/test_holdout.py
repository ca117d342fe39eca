"""Held-out rows are not in the run; the finished model places them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from fast import fast_only
from hypothesis import given, settings
from hypothesis import strategies as st
from resumed import edit, interrupted, refusal
from sklearn.manifold import trustworthiness
from sklearn.neighbors import KNeighborsClassifier
from tiny import tiny, tiny_run_with_report, tiny_scenario

import raydr
from raydr.arrays import FloatArray
from raydr.data import Table, hold_out, load
from raydr.errors import DataError, ScenarioError
from raydr.front.terminal import print_result
from raydr.journal import Event, IncidentEvent
from raydr.methods import METHODS
from raydr.metrics import METRICS
from raydr.runfolder import read_run
from raydr.scenarios.planning.plan import plan_of_scenario
from raydr.scenarios.runner import run
from raydr.scenarios.running.client_data import dealt_out
from raydr.scenarios.schema.reading import read

SHORT: dict[str, Any] = {"early_iterations": 5, "iterations": 5}
KINDS: dict[str, dict[str, Any]] = {
    "fed-tsne": {"kind": "fed-tsne", "landmarks": 12, **SHORT},
    "fed-umap": {"kind": "fed-umap", "landmarks": 12, "epochs": 5},
    "fed-spectral": {"kind": "fed-spectral", "clusters": 3, "embedder": {"kind": "tsne", **SHORT}},
    "sense": {"kind": "sense", "anchors": 5, "embedder": {"kind": "tsne", **SHORT}},
    "fedne": {"kind": "fedne", "rounds": 2, "hidden": [8], "local_steps": 2},
    "fedavg-ne": {"kind": "fedavg-ne", "rounds": 2, "hidden": [8], "local_steps": 2},
    "fedprox-ne": {"kind": "fedprox-ne", "rounds": 2, "hidden": [8], "local_steps": 2},
    "global-ne": {"kind": "global-ne", "rounds": 2, "hidden": [8]},
    "landmark-ne": {"kind": "landmark-ne", "rounds": 2, "hidden": [8]},
    "fed-pca": {"kind": "fed-pca"},
    "dsne": {"kind": "dsne", "reference_rows": 8, **SHORT},
    "private-map": {"kind": "private-map", "bounds": [-3, 3], "epsilon": 8, **SHORT},
}
NEW = [name for name, metric in METRICS.items() if "new" in metric.needs]
OF_GROUPS = {name for name in NEW if "steadiness" in name or "cohesiveness" in name}
"""Metrics of groups, which few rows do not have."""
FEATURES = ("a", "b", "c", "d")
HELD = np.arange(3, 90, 5)
"""Marked rows of the file."""


def test_every_method_that_places_rows_is_tested() -> None:
    assert set(KINDS) == {name for name, method in METHODS.items() if method.settings.offers("transform")}


def write(path: Path, rows: Sequence[int], marked: bool = True) -> Path:
    """Return rows of a table of 90: three classes at three hospitals, with or without a mark column."""
    rng = np.random.default_rng(7)
    values = (np.arange(90)[:, None] % 3 + rng.normal(size=(90, 4)) / 3).clip(-3, 3).round(4)
    head = ["number", *FEATURES, "class", "hospital", *["split"] * marked]
    lines = [",".join(head)]
    for row in rows:
        cells = [row, *values[row], "xyz"[row % 3], ("north", "east", "west")[row % 7 % 3]]
        cells += [("test" if row in HELD else "train")] if marked else []
        lines.append(",".join(map(str, cells)))
    path.write_text("\n".join(lines) + "\n")
    return path


def sections(path: Path, kind: str = "fed-tsne", **data: Any) -> dict[str, Any]:
    scale = "none" if kind == "private-map" else "standard"
    table = {"path": str(path), "label": "class", "id": "number", "features": list(FEATURES), "scale": scale}
    partition = {"partition": {"kind": "by-column", "column": "hospital"}}
    metrics = ["npa_10", "continuity_3", *(NEW if "holdout" in data else [])]
    return {"data": table | data, "clients": partition, "method": KINDS[kind], "metrics": metrics}


MARKED = {"column": "split", "value": "test"}


def quick_run(out: Path, **overrides: Any) -> Path:
    """Run without a report."""
    return run(tiny_scenario(**overrides), out=out, report=False)


def places(path: Path) -> tuple[list[Any], FloatArray]:
    """Return ids and positions of a map."""
    content = pq.read_table(path)
    return content["row"].to_pylist(), np.column_stack([content["x"].to_numpy(), content["y"].to_numpy()])


def measures(folder: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((folder / "metrics.json").read_text())
    return found


# --- drawing --------------------------------------------------------------------------------------------------------

labels_of_rows = st.lists(st.integers(0, 3), min_size=4, max_size=60)


def made(labels: Sequence[int], marks: Sequence[int] | None = None) -> Table:
    count = len(labels)
    return Table(
        name="made",
        rows=np.arange(2.0 * count).reshape(count, 2),
        features=("a", "b"),
        ids=np.arange(count),
        labels=np.array(labels, np.int64),
        label_names=tuple("wxyz"),
        client_keys=np.arange(count) % 3,
        client_names=("north", "east", "west"),
        marks=None if marks is None else np.array(marks, np.int64),
        mark_names=() if marks is None else ("train", "test"),
    )


@given(labels=labels_of_rows, part=st.floats(0.01, 0.5), seed=st.integers(0, 99))
@settings(max_examples=100)
def test_split_keeps_every_row_and_the_class_shares(labels: list[int], part: float, seed: int) -> None:
    table = made(labels)
    others, held_out = hold_out(table, part, seed=seed)
    np.testing.assert_array_equal(np.sort(np.concatenate([others.ids, held_out.ids])), table.ids)
    assert (np.diff(others.ids) > 0).all()
    assert (np.diff(held_out.ids) > 0).all()
    size = len(held_out.ids)
    assert size == int(np.ceil(part * len(labels)))
    assert held_out.labels is not None
    shares = np.bincount(labels, minlength=4) * size / len(labels)
    assert (np.abs(np.bincount(held_out.labels, minlength=4) - shares) < 1).all()
    by_count, again = hold_out(table, size, seed=seed)
    np.testing.assert_array_equal(again.ids, held_out.ids)
    np.testing.assert_array_equal(by_count.ids, others.ids)


def test_split_depends_on_the_seed() -> None:
    table = load(source="iris")
    drawn = [hold_out(table, 0.3, seed=seed)[1].ids.tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


@given(marks=st.lists(st.integers(0, 1), min_size=6, max_size=60), data=st.data())
@settings(max_examples=100)
def test_marked_rows_are_held_out_or_left_out(marks: list[int], data: st.DataObject) -> None:
    count, marked = len(marks), sum(marks)
    table = made([0] * count, marks)
    rows = data.draw(st.none() | st.integers(3, count))
    if not 1 <= marked <= count - 3:
        return
    try:
        others, held_out = hold_out(table, "test", rows, seed=0)
    except DataError:
        assert rows is not None
        assert rows - max(round(rows * marked / count), 1) < 2
        return
    assert set(held_out.ids) <= set(np.flatnonzero(marks))
    np.testing.assert_array_equal(others.ids, np.flatnonzero(np.array(marks) == 0))
    if rows is None:
        assert len(held_out.ids) == marked
    else:
        assert abs(len(held_out.ids) - rows * marked / count) <= 1
        assert 2 <= rows - len(held_out.ids) <= len(others.ids)


def test_client_with_only_marked_rows_is_not_in_the_run(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.csv", range(90))
    holdout = {"column": "hospital", "value": "west"}
    client_data = dealt_out(read(tiny() | sections(file, holdout=holdout)), None)
    assert client_data.names == ("east", "north")
    assert client_data.held_out is not None
    assert client_data.rows + len(client_data.held_out.rows) == 90
    table = made([0] * 9, [0, 0, 1] * 3)
    assert hold_out(table, "test", seed=0)[0].client_names == ("north", "east")
    table = replace(table, client_names=("south", "north", "east", "west"), client_keys=table.ids % 3 + 1)
    others = hold_out(table, "test", seed=0)[0]
    assert others.client_names == ("south", "north", "east")  # south has no row to hold out
    assert others.client_keys is not None
    assert others.client_keys.tolist() == [1, 2] * 3


def test_held_out_part_is_an_exact_decimal(tmp_path: Path) -> None:
    """In binary, 0.14 * 50 is 7.000000000000001."""
    file = write(tmp_path / "rows.csv", range(90))
    client_data = dealt_out(read(tiny() | sections(file, holdout=0.14, rows=50)), None)
    assert client_data.held_out is not None
    assert len(client_data.held_out.rows) == 7


@pytest.mark.parametrize("kind", ["fed-tsne", "sense"])
@pytest.mark.parametrize("holdout", [0.25, 15, MARKED])
def test_mapped_and_held_out_rows_are_disjoint_and_complete(tmp_path: Path, kind: str, holdout: Any) -> None:
    """In a subsample, no row is on both sides or among the anchors."""
    file = write(tmp_path / "rows.csv", range(90))
    client_data = dealt_out(read(tiny() | sections(file, kind, holdout=holdout, rows=60)), None)
    assert client_data.held_out is not None
    assert len(client_data.held_out.rows) == {"0.25": 15, "15": 15}.get(str(holdout), 12)
    assert client_data.rows + len(client_data.held_out.rows) == 60
    assert not set(client_data.ids) & set(client_data.held_out.ids)
    held = {row.tobytes() for row in client_data.held_out.rows}
    assert not held & {row.tobytes() for row in client_data.pooled()}
    if kind == "sense":
        assert client_data.public is not None
        assert not held & {
            row.tobytes() for row in client_data.public.astype(client_data.held_out.rows.dtype)
        }
    data = client_data.provenance("none")
    assert (data.held_out, data.mapped) == (len(client_data.held_out.rows), client_data.rows)
    assert data.not_drawn == 30 - data.set_apart
    if holdout is MARKED:
        assert set(client_data.held_out.ids) <= set(HELD)
        assert not set(client_data.ids) & set(HELD)


@pytest.mark.parametrize(
    ("wanted", "rows", "message"),
    [
        (0.99, None, "data.holdout takes 149 of the 150 rows of iris, but a map needs at least 2"),
        (149, None, "data.holdout takes 149 of the 150"),
        (500, None, "data.holdout takes 500 of the 150"),
        (20, 21, "data.holdout takes 20 of the 21"),
        (0.5, 151, "data.rows is 151, but iris has 150 rows"),
        ("test", None, "read without a column that marks rows"),
    ],
)
def test_impossible_holdouts_are_refused(wanted: Any, rows: int | None, message: str) -> None:
    with pytest.raises(DataError) as caught:
        hold_out(load(source="iris"), wanted, rows, seed=0)
    assert message in str(caught.value)


def test_unknown_mark_suggests_the_nearest(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.csv", range(90))
    for changes, message in (
        ({"value": "tset"}, "No row of rows.csv has 'tset' in the column .* \\(did you mean test\\?\\)"),
        ({"column": "splt"}, "no column 'splt', which data.holdout.column names \\(did you mean split\\?\\)"),
    ):
        with pytest.raises(DataError, match=message):
            dealt_out(read(tiny() | sections(file, holdout=MARKED | changes)), None)


@pytest.mark.parametrize(("value", "count"), [(1, 2), (0, 3), (True, 2), ("1", 2)])
def test_marks_are_compared_as_text(tmp_path: Path, value: Any, count: int) -> None:
    file = tmp_path / "rows.csv"
    words = ("false", "true") if isinstance(value, bool) else ("0", "1")
    file.write_text("a,b,s\n" + "".join(f"{row},{row * row},{words[row % 2]}\n" for row in range(5)))
    scenario = tiny_scenario(
        data={"path": str(file), "holdout": {"column": "s", "value": value}}, clients__count=1
    )
    held_out = dealt_out(scenario, None).held_out
    assert held_out is not None
    assert len(held_out.rows) == count


def test_built_in_split_is_an_array_of_the_data_set(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "rows.npz", X=rng.normal(size=(40, 3)), y=np.arange(40) % 2, split=np.arange(40) // 30
    )
    data = {"path": str(tmp_path / "rows.npz"), "holdout": {"column": "split", "value": 1}}
    held_out = dealt_out(tiny_scenario(data=data), None).held_out
    assert held_out is not None
    assert held_out.ids.tolist() == list(range(30, 40))


# --- runs -----------------------------------------------------------------------------------------------------------


FAST = ("fed-tsne", "sense", "fedne", "fed-pca", "dsne")
"""A method of each family whose map of equal rows is equal."""


@pytest.fixture(scope="module", params=fast_only(lambda kind: kind in FAST, KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def held(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of the file with marks, with the pooled-data map."""
    folder = tmp_path_factory.mktemp(kind)
    file = write(folder / "rows.csv", range(90))
    return quick_run(folder / "run", **sections(file, kind, holdout=MARKED), compare=["central"])


def test_run_with_holdout_equals_run_of_the_other_rows(held: Path, kind: str, tmp_path: Path) -> None:
    """Map, pooled map, ledger, model and metrics of the map are equal."""
    if kind == "private-map":
        pytest.skip("its noise is each run's own")
    others = write(tmp_path / "others.csv", [row for row in range(90) if row not in HELD], marked=False)
    alone = quick_run(tmp_path / "alone", **sections(others, kind), compare=["central"])
    for file in ("embedding.parquet", "central.parquet", "ledger.json", "privacy.json", "model/arrays.npz"):
        assert (held / file).read_bytes() == (alone / file).read_bytes(), file
    of_held = {"held_out": 0, "unlike": 0}
    assert [{**site, **of_held} for site in measures(held)["sites"]] == measures(alone)["sites"]
    for side in ("federated", "central", "not_computed"):
        values, reported = measures(alone)[side], measures(held)[side]
        assert {name: value for name, value in reported.items() if name not in NEW} == values


def test_held_out_rows_are_placed_like_transform(held: Path, tmp_path: Path) -> None:
    raydr.transform(held, write(tmp_path / "new.csv", HELD), out=tmp_path / "placed.parquet")
    rows, positions = places(held / "held_out.parquet")
    expected, by_transform = places(tmp_path / "placed.parquet")
    assert rows == expected == HELD.tolist()
    np.testing.assert_array_equal(positions, by_transform)
    held_out, placed = (
        pq.read_table(file) for file in (held / "held_out.parquet", tmp_path / "placed.parquet")
    )
    assert ("novelty" in held_out.column_names) == ("novelty" in placed.column_names)
    if "novelty" in placed.column_names:
        assert held_out["novelty"].to_pylist() == placed["novelty"].to_pylist()
    labels = pq.read_table(held / "held_out.parquet")["label"].to_pylist()
    assert labels == ["xyz"[row % 3] for row in HELD]


def test_metrics_of_new_rows_use_their_places(held: Path) -> None:
    reported = measures(held)
    assert set(NEW) - OF_GROUPS <= set(reported["federated"])
    assert "rows" in reported["not_computed"]["new_steadiness"]  # 18 are too few for groups
    mapped, embedding = places(held / "embedding.parquet")
    _, positions = places(held / "held_out.parquet")
    classifier = KNeighborsClassifier(7).fit(embedding, np.array(mapped) % 3)
    assert reported["federated"]["knn_accuracy"] == pytest.approx(classifier.score(positions, HELD % 3))
    client_data = dealt_out(read(held / "scenario.yaml"), None)
    assert client_data.held_out is not None
    rows = client_data.held_out.rows
    if read(held / "scenario.yaml").data.scale == "standard":
        pooled = client_data.pooled()
        rows = (rows - pooled.mean(axis=0)) / pooled.std(axis=0)
    expected = trustworthiness(rows, positions, n_neighbors=5)
    # Equal places have no order, and each side ranks them differently.
    tied = len(np.unique(positions, axis=0)) < len(positions)
    assert reported["federated"]["new_trustworthiness"] == pytest.approx(expected, abs=0.05 if tied else 1e-3)


def test_pooled_map_places_new_rows(held: Path) -> None:
    reported = measures(held)
    assert set(reported["central"]) & set(NEW) == set(reported["federated"]) & set(NEW)


def test_page_and_terminal_show_held_out_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "rows.csv", range(90))
    asked = sections(file, holdout=MARKED) | {"metrics": ["new_trustworthiness_3"]}
    folder = tiny_run_with_report(tmp_path / "run", **asked)
    page = (folder / "report.html").read_text()
    assert "New rows: trustworthiness, k = 3" in page
    assert "Held out and placed on the map later" in page
    assert read_run(folder).data.held_out == len(HELD)
    print_result(folder)
    message = capsys.readouterr().err
    assert "New rows: trustworthiness, k = 3" in message
    assert "72 of 90 rows of rows.csv, 4 columns, standard scaling; 18 rows held out." in message


def test_scenario_of_a_run_folder_holds_out_the_same_rows(tmp_path: Path) -> None:
    first = quick_run(tmp_path / "first", data__holdout=0.2, metrics="default")
    again = run(read(first / "scenario.yaml"), out=tmp_path / "again", report=False)
    for file in ("embedding.parquet", "held_out.parquet", "metrics.json", "scenario.yaml"):
        assert (first / file).read_bytes() == (again / file).read_bytes()
    assert yaml.safe_load((first / "scenario.yaml").read_text())["data"]["holdout"]["part"] == 0.2
    assert set(NEW) - OF_GROUPS <= set(measures(first)["federated"])
    without = measures(quick_run(tmp_path / "without", metrics="default"))
    assert not set(NEW) & {*without["federated"], *without["not_computed"]}


def test_held_out_rows_are_placed_under_the_key(tmp_path: Path) -> None:
    """Rows must be keyed before the model of keyed rows can place them."""
    privacy = {"isometry_key": True}
    file = write(tmp_path / "rows.csv", range(90))
    folder = quick_run(
        tmp_path / "run", **sections(file, holdout=MARKED), privacy=privacy, compare=["central"]
    )
    plain = quick_run(tmp_path / "plain", **sections(file, holdout=MARKED))
    raydr.transform(folder, write(tmp_path / "new.csv", HELD), out=tmp_path / "placed.parquet")
    np.testing.assert_array_equal(
        places(folder / "held_out.parquet")[1], places(tmp_path / "placed.parquet")[1]
    )
    assert measures(folder)["federated"]["knn_accuracy"] == pytest.approx(
        measures(plain)["federated"]["knn_accuracy"], abs=0.2
    )


def test_intermediate_maps_are_scored_without_held_out_rows(tmp_path: Path) -> None:
    method = KINDS["fedne"] | {"rounds": 2}
    folder = quick_run(
        tmp_path / "run", data__holdout=0.2, method=method, evaluate_every=1, metrics=["npa_10", *NEW]
    )
    progress = json.loads((folder / "progress.json").read_text())
    assert all(not set(scores) & set(NEW) for scores in progress.values())
    assert "npa_10" in progress["1"]
    assert "knn_accuracy" in measures(folder)["federated"]


def test_audit_reads_the_marked_file_again(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.csv", range(90))
    folder = quick_run(tmp_path / "run", **sections(file, holdout=MARKED) | {"metrics": ["npa_10"]})
    audit = raydr.audit(folder).audit
    assert audit["verdicts"]


def test_rows_that_cannot_be_placed_do_not_fail_the_run(tmp_path: Path) -> None:
    """One row is outside the ball of the hyperbolic space."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, size=(40, 3))
    X[-1] = 2.0
    np.savez(tmp_path / "rows.npz", X=X, split=np.arange(40) // 30)
    method = {"kind": "sense", "geometry": "hyperbolic", "points": "ball", "anchors": 6, "embedder": "tsne"}
    method["embedder"] = {"kind": "tsne", **SHORT}
    data = {"path": str(tmp_path / "rows.npz"), "holdout": {"column": "split", "value": 1}}
    reported: list[Event] = []
    scenario = read(tiny() | {"data": data, "method": method, "metrics": ["npa_10", "new_npa_5"]})
    folder = run(scenario, out=tmp_path / "run", listener=reported.append, report=False)
    assert any(
        isinstance(event, IncidentEvent) and "held-out rows have no place on the map" in event.text
        for event in reported
    )
    assert not (folder / "held_out.parquet").exists()
    found = measures(folder)
    assert set(found["federated"]) == {"npa_10"}
    assert found["not_computed"] == {"new_npa_5": "no rows were held out and placed on the map"}


# --- refused before anything starts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"method": {"kind": "local-ne"}, "privacy": {"isometry_key": True}},
            "each client of method.kind 'local-ne' places new rows by the features as they are: leave"
            " data.target_weight and privacy.isometry_key out",
        ),
        ({"data": {"graph": "tree.csv", "holdout": 0.2}}, "no node can be new: leave holdout out"),
        (
            {"data": {"holdout": 0.2}, "clients": {"sites": [{"path": "a.csv"}, {"path": "b.csv"}]}},
            "place them with raydr transform",
        ),
        ({"data": {"source": "iris", "holdout": 1.0}}, "data.holdout.part is 1.0: it must be less than 1"),
        ({"data": {"source": "iris", "holdout": 0}}, "data.holdout.rows is 0: it must be at least 1"),
        (
            {"data": {"source": "iris", "holdout": True}},
            "data.holdout: expected a fraction below 1, such as 0.2, a number of rows or",
        ),
        (
            {"data": {"source": "iris", "holdout": "half"}},
            "a number of rows or a section of keys, got 'half'",
        ),
        ({"data": {"source": "iris", "holdout": {}}}, "give exactly one of part (a fraction below 1)"),
        ({"data": {"source": "iris", "holdout": {"part": 0.1, "rows": 3}}}, "give exactly one of part"),
        ({"data": {"source": "iris", "holdout": {"column": "split"}}}, "column and value go together"),
        ({"data": {"source": "iris", "holdout": {"value": 1, "rows": 2}}}, "column and value go together"),
        ({"data": {"source": "iris", "holdout": {"colum": "split"}}}, "did you mean column?"),
    ],
)
def test_impossible_holdouts_are_refused_before_the_run(overrides: dict[str, Any], message: str) -> None:
    content = tiny() | {"data": {"source": "iris", "holdout": 0.2}} | overrides
    with pytest.raises(ScenarioError) as caught:
        read(content)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_metrics_of_new_rows_need_a_holdout() -> None:
    for name in ("knn_accuracy", "new_trustworthiness_7"):
        with pytest.raises(ScenarioError, match=f"metrics names {name}, .* set data.holdout"):
            tiny_scenario(metrics=["npa_10", name])
        assert tiny_scenario(metrics=["npa_10", name], data__holdout=30).metrics == ("npa_10", name)


# --- resumed and planned --------------------------------------------------------------------------------------------


def hold(holdout: Any) -> Any:
    return lambda scenario: scenario["data"].update(holdout=holdout)


def test_a_resumed_run_holds_out_the_same_rows(tmp_path: Path) -> None:
    kept = interrupted(tmp_path, hold(12))
    scenario = read(kept / "scenario.yaml")
    expected = run(scenario, out=tmp_path / "whole", report=False)
    folder = raydr.resume(kept).folder
    for file in ("embedding.parquet", "held_out.parquet", "metrics.json"):
        assert (folder / file).read_bytes() == (expected / file).read_bytes()


def test_resumed_run_refuses_another_holdout(tmp_path: Path) -> None:
    kept = interrupted(tmp_path, hold(12))
    edit(kept, "data", holdout=11)
    assert "data.holdout.rows was 12 and is 11" in refusal(kept, ScenarioError)


def test_resumed_run_refuses_changed_held_out_rows(tmp_path: Path) -> None:
    kept = interrupted(tmp_path, hold({"column": "hospital", "value": "west"}))
    path = tmp_path / "patients.csv"
    lines = path.read_text().splitlines()
    lines[3] = "9.0" + lines[3][3:]  # a row of west
    assert "west" in lines[3]
    path.write_text("\n".join(lines) + "\n")
    assert "since the interruption: the rows held out." in refusal(kept, DataError)


def test_plan_counts_only_mapped_rows() -> None:
    plan = plan_of_scenario(tiny_scenario(data__holdout=0.2))
    assert (plan.rows, plan.held_out) == (120, 30)
