"""Runs whose label takes part in distances: what they release, say, measure, place and refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from resumed import interrupted
from safetensors.numpy import load_file
from scipy.sparse import csr_array
from sklearn.manifold import trustworthiness
from sklearn.metrics import silhouette_score
from sweeps import inline, table

import raydr
from raydr.attacks.attribute_inference import fitted_to_the_rest
from raydr.data import load
from raydr.errors import DataError, ScenarioError
from raydr.front.cli import status
from raydr.scenarios.afterwards.auditing import AuditSettings, _case
from raydr.scenarios.afterwards.repetition import repeated
from raydr.scenarios.planning.plan import plan_of_scenario
from raydr.scenarios.schema.reading import read
from raydr.tune.reading import read_sweep
from raydr.tune.sweeping import sweep

SITES = ("north", "east", "west")


def patients(folder: Path, *, gaps: bool = False) -> Path:
    """Write a table of 90 rows at three sites, with classes of unequal size; one of them is only in the west."""
    random = np.random.default_rng(0)
    lines = ["a,b,c,site,kind,year"]
    for row in range(90):
        site = SITES[row % 3]
        kind = "rare" if site == "west" and row % 4 == 0 else ("ill" if row % 5 < 2 else "well")
        numbers = random.normal(size=3) + np.array([2.0 * (kind == "ill"), 0.0, 0.0])
        kind = "" if gaps and row % 6 == 1 else kind
        lines.append(",".join(f"{value:.6f}" for value in numbers) + f",{site},{kind},{2000 + row}")
    path = folder / "patients.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def scenario(path: Path, weight: float = 0.5, **more: Any) -> dict[str, Any]:
    data = {
        "path": str(path),
        "label": "kind",
        "features": ["a", "b", "c"],
        "scale": "standard",
        "target_weight": weight,
    }
    return {
        "name": "steered",
        "data": data | more.pop("data", {}),
        "clients": {"partition": {"kind": "by-column", "column": "site"}},
        "method": {"kind": "fed-tsne", "perplexity": 5, "iterations": 30, "early_iterations": 10},
        "runtime": {"federation": "inline"},
        "metrics": [],
    } | more


def content(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_bytes())


def places(path: Path) -> Any:
    found = parquet.read_table(path)
    return np.column_stack([found["x"], found["y"]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with held-out rows and a pooled-data map, in a folder with its table."""
    root = tmp_path_factory.mktemp("steered")
    metrics = ["trustworthiness", "distance_error", "ca_10", "nmi", "knn_accuracy"]
    wanted = scenario(patients(root), data={"holdout": 0.2}, compare=["central"], metrics=metrics)
    raydr.run(wanted, out=root / "run")
    return root / "run"


def test_maps_are_compared_with_the_features_and_recovery_with_the_label_too(folder: Path) -> None:
    found, measures = raydr.Result(folder), content(folder, "metrics.json")
    table = load(path=folder.parent / "patients.csv", features=("a", "b", "c"))
    rows = table.rows[found.ids]
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    for which in ("federated", "central"):
        embedding = found.embedding if which == "federated" else places(folder / "central.parquet")
        assert measures[which]["trustworthiness"] == pytest.approx(
            trustworthiness(rows, embedding, n_neighbors=5)
        )
    assert measures["federated"]["distance_error"] < 1e-6, (
        "the server recovers distances with the label in them"
    )


def test_class_metrics_of_the_map_are_no_evidence_and_held_out_rows_are(folder: Path) -> None:
    measures = content(folder, "metrics.json")
    assert set(measures["not_computed"]) == {"ca_10", "nmi"}
    assert all("data.target_weight" in reason for reason in measures["not_computed"].values())
    assert {"ca_10", "nmi"}.isdisjoint(measures["federated"])
    assert {"ca_10", "nmi"}.isdisjoint(measures["central"])
    assert 0.0 < measures["federated"]["knn_accuracy"] < 1.0


def test_the_ledger_the_statement_and_the_page_say_that_the_label_takes_part(folder: Path) -> None:
    kinds = {entry["kind"] for entry in content(folder, "ledger.json")}
    assert {"TargetMomentsRequest", "TargetMoments", "SteerRows"} <= kinds
    privacy = content(folder, "privacy.json")
    assert any("The label takes part in distances" in notice for notice in privacy["notices"])
    assert any(reason.startswith("TargetMoments leaves the client") for reason in privacy["infinite"])
    (notice,) = [text for text in content(folder, "data.json")["notices"] if "shows the label" in text]
    assert "0.5 of the variance" in notice
    page = (folder / "report.html").read_text()
    assert "The map shows the label" in page
    assert "Federated map, moved by the label" in page


def test_new_rows_are_placed_without_their_label(folder: Path, tmp_path: Path) -> None:
    """Held-out rows lie where transform places them, whatever their label says; a joining site's rows too."""
    table = patients(tmp_path)
    raydr.transform(folder, table, out=tmp_path / "all.parquet")
    held = parquet.read_table(folder / "held_out.parquet")
    again = places(tmp_path / "all.parquet")
    np.testing.assert_allclose(places(folder / "held_out.parquet"), again[held["row"].to_numpy()], rtol=1e-5)
    other = tmp_path / "other.csv"
    other.write_text(table.read_text().replace("ill", "well"))
    raydr.transform(folder, other, out=tmp_path / "other.parquet")
    np.testing.assert_array_equal(places(tmp_path / "other.parquet"), again)
    raydr.join(folder, table, site="south")
    joined = places(folder / "joined" / "1" / "embedding.parquet")
    np.testing.assert_allclose(joined, again, rtol=1e-5)


def test_an_unlabelled_row_is_as_near_to_a_reference_of_two_classes_as_to_one_of_one(folder: Path) -> None:
    """The label's columns of the references are zero, so that the place of a new row follows from its features."""
    with np.load(folder / "model" / "arrays.npz") as model:
        references, block = model["references"], model["target"]
    assert references.shape[1] == 3 + 3
    assert block.shape == (3 + 3,)
    assert np.abs(references[:, :3]).min() > 0.0
    assert not references[:, 3:].any()


def test_the_plan_knows_the_messages_of_the_label(folder: Path) -> None:
    planned = plan_of_scenario(read(folder / "scenario.yaml"))
    wanted = {message.kind: (message.count, message.bytes) for message in planned.messages}
    for entry in content(folder, "ledger.json"):
        if entry["direction"] != "simulation-only":
            assert wanted[entry["kind"]] == (entry["count"], entry["bytes"]), entry["kind"]


def test_records_outside_the_run_have_labels_in_an_audit_like_those_inside(tmp_path: Path) -> None:
    """Otherwise a missing label alone would tell members from others."""
    wanted = scenario(patients(tmp_path), data={"rows": 60})
    raydr.run(wanted, out=tmp_path / "run")
    repetition = repeated(tmp_path / "run", None, lambda event: None)
    case = _case(repetition, AuditSettings(), None, None)
    assert case.truth.columns == ("a", "b", "c", "kind=ill", "kind=rare", "kind=well")
    assert np.abs(case.side.candidates[:, 3:]).sum(axis=1).all()
    assert np.abs(case.truth.rows[:, 3:]).sum(axis=1).all()
    assert case.view.label_columns.tolist() == [3, 4, 5]
    found = raydr.audit(tmp_path / "run", attacks=["attribute-inference", "membership"])
    assert found.audit is not None


def test_the_guess_of_a_label_does_not_know_its_other_columns() -> None:
    random = np.random.default_rng(0)
    classes = np.eye(3)[random.integers(0, 3, 200)]
    rows, together = np.hstack([random.normal(size=(200, 2)), classes]), np.array([2, 3, 4])
    found = fitted_to_the_rest(rows, None, together)
    assert not found.weights[np.ix_(together, together)].any()
    assert (found.held_out[together] > 0.9).all(), "no feature says anything about the class"
    apart = fitted_to_the_rest(rows, None)
    assert (apart.held_out[together] < 1e-3).all(), "two of three columns say all about the third"
    np.testing.assert_array_equal(found.weights[:, :2], apart.weights[:, :2])
    posted = fitted_to_the_rest(rows, classes @ random.normal(size=(3, 3)), together)
    assert (posted.held_out[together] < 1e-3).all(), "what was posted says all about the class"


def test_rows_without_a_label_and_quantities_steer_too(tmp_path: Path) -> None:
    path = patients(tmp_path, gaps=True)
    found = raydr.run(
        scenario(path, data={"missing": "median"}, metrics=["distance_error"]), out=tmp_path / "run"
    )
    assert found.metrics["federated"]["distance_error"] < 1e-6
    wanted = scenario(path, data={"label": "year"}, metrics=["distance_error"])
    found = raydr.run(wanted, out=tmp_path / "year")
    assert found.metrics["federated"]["distance_error"] < 1e-6
    with np.load(tmp_path / "year" / "model" / "arrays.npz") as model:
        assert model["target"][:2].tolist() == [2000.0, 2089.0]


def test_sites_with_files_of_their_own_have_the_map_of_one_table(tmp_path: Path) -> None:
    lines = patients(tmp_path).read_text().splitlines()
    sites = []
    for site in SITES:
        file = tmp_path / f"{site}.csv"
        file.write_text("\n".join([lines[0], *(line for line in lines if f",{site}," in line)]) + "\n")
        sites.append({"path": str(file)})
    wanted = scenario(tmp_path / "patients.csv")
    # The sites of one table are in the order of their names.
    files = wanted | {"clients": {"sites": sorted(sites, key=lambda site: site["path"])}}
    files["data"] = {key: value for key, value in wanted["data"].items() if key != "path"}
    one, other = raydr.run(wanted, out=tmp_path / "one"), raydr.run(files, out=tmp_path / "other")
    by_row = np.argsort(one.sites, kind="stable")
    np.testing.assert_array_equal(one.embedding[by_row], other.embedding)


def test_a_label_moves_classes_apart(tmp_path: Path) -> None:
    """Weight 0 is the map of the features, bit for bit; with more weight, classes lie farther apart."""
    path = patients(tmp_path)
    apart = []
    for weight in (0.0, 0.2, 0.8):
        found = raydr.run(scenario(path, weight), out=tmp_path / f"{weight}")
        apart.append(silhouette_score(found.embedding, found.labels))
    assert apart[0] < apart[1] < apart[2]
    plain = scenario(path)
    del plain["data"]["target_weight"]
    assert np.array_equal(
        raydr.run(plain, out=tmp_path / "x").embedding, places(tmp_path / "0.0" / "embedding.parquet")
    )


STRICT = {
    "noise": {"on": "data", "epsilon": 2.0, "clip": 3.0, "stage": "all"},
    "strict": True,
    "secret": None,
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "strict": (
        {"privacy": STRICT, "data": {"scale": "none"}},
        r"data\.target_weight needs the shares of the classes, and privacy\.strict",
    ),
    "noise on records": (
        {"privacy": STRICT | {"strict": False}, "data": {"scale": "none"}},
        r"permanent noise on data does not cover it",
    ),
    "key": ({"privacy": {"isometry_key": True}}, r"privacy\.isometry_key: data\.target_weight would reveal"),
    "encoder": (
        {"method": {"kind": "landmark-ne"}},
        r"data\.target_weight: the encoder of method\.kind 'landmark-ne'",
    ),
    "mixed rows": (
        {"method": {"kind": "fedne", "mixed": "rows"}},
        r"data\.target_weight: method\.mixed: rows searches .* choose edges",
    ),
    "bounds": (
        {"method": {"kind": "fedavg-ne", "bounds": [-4.0, 4.0]}},
        r"data\.target_weight: method\.bounds limit the original features",
    ),
    "nystrom": (
        {"method": {"kind": "fed-umap", "estimator": "nystrom", "landmarks_from": "learnt"}},
        r"data\.target_weight: estimator nystrom .* set method\.estimator to trilateration",
    ),
    "hyperbolic": (
        {"method": {"kind": "sense", "geometry": "hyperbolic"}},
        r"data\.target_weight: hyperbolic distances have no part of a label",
    ),
    "public file": (
        {"method": {"kind": "dsne", "reference_path": "public.csv"}},
        r"data\.target_weight: the labels of a file of public rows are not read",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_steered_is_refused_with_what_to_do(case: str, tmp_path: Path) -> None:
    more, message = REFUSED[case]
    with pytest.raises(ScenarioError, match=message):
        read(scenario(tmp_path / "none.csv", **more))
    more = {**more, "data": more.get("data", {}) | {"target_weight": 0.0}}
    read(scenario(tmp_path / "none.csv", **more))


@pytest.mark.parametrize("where", [("supervised",), ("data", "supervised"), ("data", "target_metric")])
def test_names_of_other_packages_lead_to_the_key(where: tuple[str, ...], tmp_path: Path) -> None:
    wanted = scenario(tmp_path / "none.csv")
    (wanted if len(where) == 1 else wanted[where[0]])[where[-1]] = "label"
    with pytest.raises(
        ScenarioError, match=rf"{where[-1]} is not a key \(did you mean data\.target_weight\?\)"
    ):
        read(wanted)


def test_data_that_cannot_steer_are_refused(tmp_path: Path) -> None:
    path = patients(tmp_path)
    with pytest.raises(DataError, match=r"have no label: name its column in data\.label"):
        raydr.run(scenario(path, data={"label": None}), out=tmp_path / "run")
    path.write_text(path.read_text().replace("well", "ill").replace("rare", "ill"))
    with pytest.raises(DataError, match="only the label 'ill'"):
        raydr.run(scenario(path), out=tmp_path / "run")


def test_check_says_that_the_map_will_show_the_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = patients(tmp_path)
    options = ["--site", "site", "--label", "kind", "--set", "data.target_weight=0.3"]
    assert status(["check", str(path), *options]) == 0
    assert "The map shows the label, which has 0.3 of the variance" in " ".join(
        capsys.readouterr().out.split()
    )


def test_held_out_rows_of_a_linear_map_have_no_label_either(tmp_path: Path) -> None:
    path = patients(tmp_path)
    wanted = scenario(path, data={"holdout": 0.2}, method={"kind": "fed-pca"})
    raydr.run(wanted, out=tmp_path / "run")
    raydr.transform(tmp_path / "run", path, out=tmp_path / "all.parquet")
    held = parquet.read_table(tmp_path / "run" / "held_out.parquet")
    again = places(tmp_path / "all.parquet")[held["row"].to_numpy()]
    np.testing.assert_allclose(places(tmp_path / "run" / "held_out.parquet"), again, rtol=1e-5, atol=1e-9)


ENCODERS: dict[str, dict[str, Any]] = {
    "fedne": {"kind": "fedne", "rounds": 3, "prototypes": 4, "warm_steps": 5},
    "fedprox-ne": {"kind": "fedprox-ne", "rounds": 2, "standardise": False},
}


@pytest.mark.parametrize("method", ENCODERS.values(), ids=list(ENCODERS))
def test_an_encoder_has_neighbours_by_the_label_and_reads_the_features_alone(
    method: dict[str, Any], tmp_path: Path
) -> None:
    path = patients(tmp_path)
    wanted = scenario(
        path,
        data={"holdout": 0.2},
        method=method | {"hidden": [8], "neighbors": 5, "batch": 32},
        compare=["central"],
        metrics=["knn_accuracy"],
    )
    found = raydr.run(wanted, out=tmp_path / "run")
    first = load_file(tmp_path / "run" / "model" / "encoder.safetensors")["layers.0.weight"]
    assert first.shape == (8, 3 + 3)
    assert not first[:, 3:].any()
    assert first[:, :3].all()
    with np.load(tmp_path / "run" / "model" / "arrays.npz") as model:
        assert model["label_columns"] == [3], "the pooled-data map leaves them out too"
    raydr.transform(tmp_path / "run", path, out=tmp_path / "all.parquet")
    again = places(tmp_path / "all.parquet")
    np.testing.assert_allclose(found.embedding, again[found.ids], rtol=1e-4, atol=1e-5)
    held = parquet.read_table(tmp_path / "run" / "held_out.parquet")
    np.testing.assert_allclose(
        places(tmp_path / "run" / "held_out.parquet"), again[held["row"].to_numpy()], rtol=1e-4, atol=1e-5
    )
    for which in ("federated", "central"):
        assert found.metrics[which]["knn_accuracy"] > 0.0
    plain = raydr.run(wanted | {"data": wanted["data"] | {"target_weight": 0.0}}, out=tmp_path / "plain")
    assert not np.allclose(plain.embedding, found.embedding, atol=1e-5)
    assert not np.allclose(
        *(places(tmp_path / name / "central.parquet") for name in ("plain", "run")), atol=1e-5
    )
    planned = plan_of_scenario(read(tmp_path / "run" / "scenario.yaml"))
    assert {"ProjectRows", "SteerRows"} <= {message.kind for message in planned.messages}
    assert raydr.audit(tmp_path / "run", attacks=["attribute-inference", "membership"]).audit is not None


@pytest.mark.parametrize(
    "method",
    [
        {"kind": "private-map", "epsilon": 5.0, "bounds": [-4.0, 4.0], "rounds": 1, "placing_iterations": 5},
        {"kind": "fed-tsne", "bounds": [-4.0, 4.0], "rounds": 2, "landmarks": 8, "landmarks_from": "learnt"},
    ],
)
def test_sums_of_labels_have_no_noise_and_the_statement_says_so(
    method: dict[str, Any], tmp_path: Path
) -> None:
    """A private map alone has a finite epsilon; with the sums of its labels, it has none."""
    noise = {} if method["kind"] == "private-map" else {"noise": {"on": "gradient", "epsilon": 2.0}}
    found: dict[float, Any] = {}
    for weight in (0.0, 0.5):
        wanted = scenario(patients(tmp_path), weight, data={"scale": "none"}, method=method, privacy=noise)
        raydr.run(wanted, out=tmp_path / f"{weight}")
        found[weight] = content(tmp_path / f"{weight}", "privacy.json")
    assert found[0.5]["epsilon"] is None
    told = [reason for reason in found[0.5]["infinite"] if reason.startswith("TargetMoments")]
    assert told
    assert not [reason for reason in found[0.0]["infinite"] if reason.startswith("TargetMoments")]
    # What is charged bounds a record with its label, so it costs what it costs without.
    assert found[0.5]["epsilon_accounted"] == pytest.approx(found[0.0]["epsilon_accounted"], rel=1e-3)
    assert found[0.0]["epsilon"] is not None or method["kind"] != "private-map"


def test_the_block_of_the_label_is_no_column_that_varies_too_much(tmp_path: Path) -> None:
    """Unscaled, this one varies 100 times as much as each feature."""
    wanted = scenario(patients(tmp_path), 0.9999, data={"label": "year", "scale": "none"})
    notices = content(raydr.run(wanted, out=tmp_path / "steered").folder, "data.json")["notices"]
    assert not [text for text in notices if "Nothing is scaled" in text]


def test_a_run_with_a_label_resumes_to_the_same_map(tmp_path: Path) -> None:
    def steered(wanted: dict[str, Any]) -> None:
        wanted["data"]["target_weight"] = 0.5

    kept = interrupted(tmp_path, steered)
    again = raydr.run(kept / "scenario.yaml", out=tmp_path / "again")
    np.testing.assert_array_equal(raydr.resume(kept).embedding, again.embedding)


def test_a_sweep_over_the_weight_is_judged_by_held_out_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = scenario(patients(tmp_path), 0.0, data={"holdout": 0.2}, metrics=["knn_accuracy", "ca_10"])
    wanted = {"name": "weights", "base": base, "space": {"data.target_weight": [0.0, 0.5]}}
    inline(monkeypatch)
    rows = table(sweep(read_sweep(wanted | {"trial": {"report": False}}), out=tmp_path / "swept"))
    assert [row["set.data.target_weight"] for row in rows] == [0.0, 0.5]
    assert all(0.0 < row["federated.knn_accuracy"] <= 1.0 for row in rows)
    assert rows[0]["federated.ca_10"] is not None
    assert rows[1]["federated.ca_10"] is None


def test_estimators_take_missing_labels_quantities_and_sparse_rows() -> None:
    random = np.random.default_rng(0)
    rows = random.poisson(0.5, (60, 12)).astype(np.float32)
    words = np.array([None if row % 4 == 0 else f"kind {row % 3}" for row in range(60)], object)
    numbers = np.where([word is None for word in words], np.nan, np.arange(60) % 3)

    def fitted(table: Any, labels: Any, **settings: Any) -> Any:
        model = raydr.FedUMAP(target_weight=0.4, epochs=10, metrics=(), n_clients=3, **settings)
        return model.fit(table, labels)

    dense = fitted(rows, words)
    np.testing.assert_array_equal(fitted(rows, numbers).embedding_, dense.embedding_)
    np.testing.assert_allclose(fitted(csr_array(rows), words).embedding_, dense.embedding_, atol=1e-6)
    kinds = {entry["kind"]: entry for entry in fitted(rows, random.normal(size=60)).ledger_}
    assert kinds["TargetMoments"]["bytes"] - 3 * 8 * 3 in range(3 * 50), "a quantity has one mean"
    assert {entry["kind"]: entry for entry in dense.ledger_}["TargetMoments"]["bytes"] - 3 * 8 * 5 in range(
        3 * 50
    )
    with pytest.raises(ScenarioError, match=r"data\.target_weight is 1\.0: it must be less than 1"):
        raydr.FedUMAP(target_weight=1.0).fit(rows, words)
