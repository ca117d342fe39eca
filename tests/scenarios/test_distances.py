"""Runs by distances that are not Euclidean: new rows, a site that joins, keys, audits, plans and private modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest

from raydr.errors import DataError, ScenarioError
from raydr.front.api import run
from raydr.front.finished_runs import audit, join, transform
from raydr.front.own_data import own_data
from raydr.scenarios.planning.plan import plan_of_scenario
from raydr.scenarios.schema.reading import read


def table(folder: Path, name: str = "table.csv", *, rows: int = 80, seed: int = 0, more: str = "") -> str:
    """Write a table of counts, and of words that every site has."""
    random = np.random.default_rng(seed)
    lines = ["a,b,c,d,word"]
    for counts in random.poisson(3.0, (rows, 4)):
        lines.append(",".join(map(str, counts)) + "," + ("red", "green", "blue")[random.integers(3)])
    path = folder / name
    path.write_text("\n".join(lines) + "\n" + more)
    return str(path)


def scenario(path: str, metric: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "distances",
        "data": {"path": path, "metric": metric, "categories": "one-hot", "words": {"sites": 1, "rows": 1}},
        "clients": {"count": 3},
        "method": {"kind": "fed-tsne", "iterations": 20, "early_iterations": 10},
        "metrics": ["f_score", "distance_error"],
        "runtime": {"federation": "inline"},
    } | more


def places(path: Path) -> Any:
    found = parquet.read_table(path)
    return np.column_stack([found["x"], found["y"]])


@pytest.mark.parametrize("metric", ["cosine", "gower", pytest.param("hamming", marks=pytest.mark.slow)])
def test_rows_that_come_later_are_transformed_like_those_of_the_run(tmp_path: Path, metric: str) -> None:
    """A site that joins, and held-out rows, lie where transform places the same rows; the pooled map is the same."""
    path = table(tmp_path)
    wanted = scenario(path, metric, compare=["central"], metrics=["f_score", "distance_error", "new_npa_10"])
    wanted["data"]["holdout"] = 0.2
    found = run(wanted, out=tmp_path / "run")
    assert found.metrics["federated"]["distance_error"] < 1e-4
    assert found.metrics["federated"]["new_npa_10"] > 0.3
    new = table(tmp_path, "new.csv", rows=20, seed=1)
    join(tmp_path / "run", new, site="later")
    transform(tmp_path / "run", new, out=tmp_path / "places.parquet")
    joined = places(tmp_path / "run" / "joined" / "1" / "embedding.parquet")
    np.testing.assert_allclose(joined, places(tmp_path / "places.parquet"), rtol=1e-5)
    transform(tmp_path / "run", path, out=tmp_path / "all.parquet")
    held = parquet.read_table(tmp_path / "run" / "held_out.parquet")
    again = places(tmp_path / "all.parquet")[held["row"].to_numpy()]
    np.testing.assert_allclose(np.column_stack([held["x"], held["y"]]), again, rtol=1e-5)


@pytest.mark.parametrize("metric", ["gower", "hamming"])
def test_rows_are_set_apart_for_the_features_of_transformed_rows(tmp_path: Path, metric: str) -> None:
    """SENSE takes one anchor less than features by default, and Gower's distance makes many of a column."""
    path = table(tmp_path)
    settings = scenario(path, metric, method={"kind": "sense", "iterations": 10}, metrics=["distance_error"])
    settings["data"] |= {"label": "word", "target_weight": 0.3}
    found = run(settings, out=tmp_path / "run")
    rows, features = found.data["mapped"] + found.data["set_apart"], 5
    assert features < found.data["set_apart"] <= rows // 2
    planned = {each.kind: each.bytes for each in plan_of_scenario(read(settings)).messages}
    sent = {each["kind"]: each["bytes"] for each in found.ledger if each["direction"] == "up"}
    assert {kind: planned[kind] for kind in sent} == sent


@pytest.mark.parametrize("metric", ["gower", pytest.param("hamming", marks=pytest.mark.slow)])
def test_an_audit_names_the_features_of_transformed_rows(tmp_path: Path, metric: str) -> None:
    run(scenario(table(tmp_path), metric, metrics=[]), out=tmp_path / "run")
    found = audit(tmp_path / "run", attacks=["trilateration"])
    assert found.audit is not None
    named = found.audit["shown"]
    sign = "=" if metric == "hamming" else ">"
    assert named
    assert all(
        name.startswith("word=") or name[:2] in {f"{column}{sign}" for column in "abcd"} for name in named
    )


def test_a_plan_sends_what_the_run_sends(tmp_path: Path) -> None:
    for metric in ("cosine", "gower"):
        wanted = scenario(table(tmp_path), metric, metrics=[])
        ledger = {entry["kind"]: entry["bytes"] for entry in run(wanted, out=tmp_path / metric).ledger}
        found = plan_of_scenario(read(wanted))
        assert found.features == 7
        planned = {message.kind: message.bytes for message in found.messages}
        for kind in ("TransformRows", "Distances", "Beyond"):
            assert planned.get(kind) == ledger.get(kind), (metric, kind)


def test_an_isometry_key_keeps_the_map(tmp_path: Path) -> None:
    wanted = scenario(table(tmp_path), "cosine")
    wanted["data"]["scale"] = "standard"
    wanted["method"] |= {"landmarks_from": "principal"}
    keyed = run(wanted | {"privacy": {"isometry_key": True}}, out=tmp_path / "keyed")
    plain = run(wanted, out=tmp_path / "plain")
    for name in ("f_score", "distance_error"):
        assert keyed.metrics["federated"][name] == pytest.approx(plain.metrics["federated"][name], abs=1e-5)


def test_a_private_map_and_strict_runs_take_metrics_of_rows_alone(tmp_path: Path) -> None:
    data = {"path": table(tmp_path), "features": ["a", "b", "c", "d"]}
    method = {"kind": "private-map", "epsilon": 50.0, "clip": 1.0, "iterations": 5, "early_iterations": 5}
    wanted: dict[str, Any] = {"name": "private", "clients": {"count": 3}, "method": method, "metrics": []}
    wanted |= {"runtime": {"federation": "inline"}}
    epsilons = {
        metric: run(wanted | {"data": data | {"metric": metric}}, out=tmp_path / metric).privacy["epsilon"]
        for metric in ("euclidean", "hellinger", "gower")
    }
    assert epsilons["hellinger"] == pytest.approx(epsilons["euclidean"], rel=1e-6)
    assert epsilons["gower"] is None, "the votes on extremes have no noise"
    wanted |= {"data": data | {"metric": "gower"}, "privacy": {"strict": True}}
    with pytest.raises(ScenarioError, match=r"no data\.metric of gower or hamming"):
        run(wanted, out=tmp_path / "strict")


def test_new_counts_below_zero_are_refused_by_name(tmp_path: Path) -> None:
    run(scenario(table(tmp_path), "hellinger", metrics=[]), out=tmp_path / "run")
    new = table(tmp_path, "new.csv", more="1,-2,3,4,red\n")
    with pytest.raises(DataError, match="compares counts, and the column 'b' has values below 0"):
        transform(tmp_path / "run", new, out=tmp_path / "places.parquet")


def test_hamming_refuses_measurements_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="compares categories, and the column 'd' has values, as read"):
        run(scenario(table(tmp_path, more="1,2,3,4.5,red\n"), "hamming"), out=tmp_path / "run")
    with pytest.raises(DataError, match="the column 'a' runs from 0 to 999: at most 50 whole numbers"):
        run(scenario(table(tmp_path, more="999,2,3,4,red\n"), "hamming"), out=tmp_path / "run")
    hours = tmp_path / "hours.csv"
    hours.write_text("hour,b\n" + "".join(f"{row % 24},{row % 3}\n" for row in range(60)))
    with pytest.raises(DataError, match=r"hour.*give the column the kind words in data\.codebook"):
        run(scenario(str(hours), "hamming"), out=tmp_path / "run")
    found = run(
        scenario(str(hours), "hamming", metrics=[]),
        data__codebook=[{"column": "hour", "kind": "words"}],
        out=tmp_path / "hours",
    )
    assert found.metrics["federated"] == {}
    with pytest.raises(ScenarioError, match="hamming compares columns as they are read"):
        run(scenario(table(tmp_path), "hamming"), data__scale="standard", out=tmp_path / "run")


def test_a_plan_counts_the_memory_of_wide_rows(tmp_path: Path) -> None:
    """Gower's thermometers make rows of seven features hundreds wide."""
    path = table(tmp_path, rows=2000)
    of = {metric: plan_of_scenario(read(scenario(path, metric))).memory for metric in ("euclidean", "gower")}
    largest = {metric: max(each.bytes for each in found) for metric, found in of.items()}
    assert largest["gower"] > largest["euclidean"] + 2000 * 500 * 4


def test_a_table_of_ones_own_is_not_scaled_for_metrics_of_columns_as_read(tmp_path: Path) -> None:
    """By default raydr map scales columns; the page and data.json name the metric."""
    path = table(tmp_path)
    for metric, scale in (("gower", "none"), ("hamming", "none"), ("cosine", "standard")):
        taken = own_data(path, overrides={"data.metric": metric}, site_needed=False)
        assert (taken.scenario.data.scale, taken.scenario.data.metric) == (scale, metric)
        assert any(fact.name == "Metric" and fact.text.startswith(metric) for fact in taken.facts)
    with pytest.raises(ScenarioError, match="leave scale out"):
        own_data(path, overrides={"data.metric": "gower", "data.scale": "minmax"}, site_needed=False)
