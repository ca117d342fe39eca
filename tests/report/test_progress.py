"""Intermediate maps equal the maps of shorter runs and do not change the run."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from resumed import content, table
from tiny import tiny_run, tiny_scenario

import raydr
from raydr.arrays import FloatArray
from raydr.errors import OutputError, ScenarioError
from raydr.journal import Event, Progress, RoundEnded
from raydr.report import write_report
from raydr.report.run.progress import MOST_MAPS, curves, small_maps
from raydr.runfolder import read_run
from raydr.runfolder.reading import RoundMap
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read

METHODS: dict[str, dict[str, Any]] = {
    "fed-tsne": {"landmarks": 4, "early_iterations": 5, "iterations": 5},
    "fed-umap": {"landmarks": 12, "epochs": 5, "estimator": "nystrom"},
    "fedne": {"hidden": [8], "local_steps": 2},
}
FILES = ("embedding.parquet", "metrics.json", "ledger.json", "model/arrays.npz")


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def map_of(folder: Path, round: int | None = None) -> FloatArray:
    read = pq.read_table(folder / ("embedding.parquet" if round is None else "progress.parquet"))
    places = np.column_stack([read[axis].to_numpy() for axis in "xy"])
    return places if round is None else places[read["round"].to_numpy() == round]


@pytest.fixture(scope="module", params=METHODS)
def method(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"kind": request.param, **METHODS[request.param]}


def test_intermediate_maps_do_not_change_the_run(tmp_path: Path, method: dict[str, Any]) -> None:
    settings = method | {"rounds": 5}
    without = tiny_run(tmp_path / "without", method=settings, compare=["central"])
    along = tiny_run(tmp_path / "with", method=settings, compare=["central"], evaluate_every=2)
    assert files(along) == files(without)
    assert (along / "central.parquet").read_bytes() == (without / "central.parquet").read_bytes()
    assert not (without / "progress.json").exists()
    assert not (without / "progress.parquet").exists()
    assert list(json.loads((along / "progress.json").read_text())) == ["0", "2", "4"]


def test_intermediate_map_equals_that_of_a_shorter_run(tmp_path: Path, method: dict[str, Any]) -> None:
    whole = tiny_run(tmp_path / "whole", method=method | {"rounds": 4}, evaluate_every=2)
    scores = json.loads((whole / "progress.json").read_text())
    for rounds in (0, 2, 4):
        if rounds < 4 and method["kind"] == "fedne":  # its step size depends on the total number of rounds
            continue
        ended = tiny_run(tmp_path / str(rounds), method=method | {"rounds": rounds})
        np.testing.assert_array_equal(map_of(whole, rounds), map_of(ended))
        assert scores[str(rounds)] == json.loads((ended / "metrics.json").read_text())["federated"]
    assert not np.array_equal(map_of(whole, 0), map_of(whole, 4)), "the rounds change something"


@pytest.mark.usefixtures("no_report")
def test_resumed_run_has_all_intermediate_maps(tmp_path: Path) -> None:
    scenario = content(table(tmp_path)) | {"evaluate_every": 1}
    scenario["method"]["landmarks"] = 3
    whole = run(read(scenario), out=tmp_path / "whole")

    def listen(event: Event) -> None:
        if isinstance(event, RoundEnded) and event.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(read(scenario), out=tmp_path / "out", listener=listen)
    (kept,) = tmp_path.glob("out.incomplete-*")
    resumed = raydr.resume(kept).folder
    assert list(json.loads((resumed / "progress.json").read_text())) == [str(number) for number in range(7)]
    for name in (*FILES, "progress.json", "progress.parquet"):
        assert (resumed / name).read_bytes() == (whole / name).read_bytes(), name


def test_ray_matches_inline_and_reports_progress(cluster: None, tmp_path: Path) -> None:
    method = {"kind": "fed-umap", "landmarks": 12, "rounds": 3, "epochs": 20}
    settings, events = {"method": method, "evaluate_every": 1}, list[Event]()
    inline = tiny_run(tmp_path / "inline", **settings)
    on_ray = tiny_scenario(**settings, runtime={"federation": "ray", "actors": 1})
    ray = run(on_ray, out=tmp_path / "ray", listener=events.append, report=False)
    reported = {event.stage for event in events if isinstance(event, Progress) and event.done}
    assert {"landmarks", "neighbours", "embedding", "metrics"} <= reported
    for name in ("embedding.parquet", "progress.json", "progress.parquet"):
        assert (ray / name).read_bytes() == (inline / name).read_bytes(), name


@pytest.mark.parametrize(
    "method",
    [{"kind": "sense", "anchors": 6, "embedder": "tsne"}, {"kind": "local-ne", "hidden": [8], "rounds": 2}],
)
def test_methods_without_intermediate_maps_refuse_evaluate_every(method: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match="has no map before its end"):
        tiny_scenario(method=method, evaluate_every=1)


# --- on the page ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of five rounds with maps before round 1 and after rounds 2 and 4."""
    return tiny_run(
        tmp_path_factory.mktemp("page") / "run", method__rounds=5, evaluate_every=2, compare=["central"]
    )


def test_page_shows_every_intermediate_map(finished: Path) -> None:
    page = write_report(finished).read_text()
    assert "The map during training" in page
    pictures = re.findall(r'<img src="data:image/png;base64,[\w+/=]+" alt="([^"]+)">', page)
    pictures = [
        text for text in pictures if text.startswith(("Before the", "After round"))
    ]  # not the map's own
    assert pictures == ["Before the first round", "After round 2", "After round 4", "After round 5"]
    (second,) = [along for along in read_run(finished).along if along.round == 2]
    assert f"Neighbour preservation, k = 10 {second.measures['npa_10']:.6g} in round 2" in page
    assert 'class="level"' in page
    assert "The map during training" not in write_report(tiny_run(finished.parent / "without")).read_text()


def test_many_maps_are_thinned_to_first_last_and_some(finished: Path) -> None:
    run = read_run(finished)
    many = tuple(RoundMap(round, {"npa_10": 0.5}, run.federated) for round in range(40))
    titles = [small.title for small in small_maps(replace(run, along=many, rounds=()))]
    assert len(titles) == MOST_MAPS
    assert (titles[0], titles[-1]) == ("Before the first round", "After round 39")


def test_curve_omits_missing_values(finished: Path) -> None:
    run = read_run(finished)
    stages = [
        RoundMap(round, {"npa_10": value}, run.federated)
        for round, value in ((0, 0.1), (2, None), (4, 0.3), (5, 0.4))
    ]
    (curve,) = curves(replace(run, along=tuple(stages)))
    assert len(curve.chart.points) == 3
    assert (curve.title, curve.arrow) == ("Neighbour preservation, k = 10", "↑")
    assert curve.chart.level is not None


@pytest.mark.usefixtures("edits_accepted")
@pytest.mark.parametrize("damage", ["rows", "rounds", "missing", "scores"])
def test_damaged_intermediate_maps_are_refused(finished: Path, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    path = folder / "progress.parquet"
    read = pq.read_table(path)
    match damage:
        case "rows":
            pq.write_table(read.take(list(range(read.num_rows))[::-1]), path)
        case "rounds":
            pq.write_table(read.slice(150), path)
        case "missing":
            path.unlink()
        case _:
            (folder / "progress.json").write_text('{"-1": {"npa_10": 0.5}}')
    with pytest.raises(OutputError, match=r"not a complete run folder: progress\.(parquet|json)"):
        read_run(folder)
