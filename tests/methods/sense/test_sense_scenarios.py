"""SENSE from a scenario: data, anchors, embedders, noise, the run folder, and errors."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raydr
from raydr.data import load
from raydr.errors import RaydrError, ScenarioError
from raydr.front.cli import status
from raydr.metrics.recovery import F_SCORE_NEIGHBORS
from raydr.report.run.server_knowledge import knowledge
from raydr.runfolder.reading import read_run
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read, shipped
from raydr.scenarios.schema.scenario import Scenario

TSNE = {"kind": "tsne", "perplexity": 5, "early_iterations": 2, "iterations": 2}
EMBEDDERS: dict[str, dict[str, Any]] = {
    "tsne": TSNE,
    "umap": {"kind": "umap", "neighbors": 5, "epochs": 2},
    "cne": {"kind": "cne", "neighbors": 5, "epochs": 2},
    "cosne": {"kind": "cosne", "perplexity": 5, "early_iterations": 2, "iterations": 2},
}
SENSE = [name for name in shipped() if read(name).method.kind == "sense"]


def scenario(**sections: Any) -> dict[str, Any]:
    """150 irises at 3 clients, 8 anchors, in this process; a section's keys are added to it, ``kind`` replaces it."""
    content: dict[str, Any] = {
        "name": "small",
        "data": {"source": "iris"},
        "clients": {"count": 3},
        "method": {"kind": "sense", "anchors": 8, "embedder": TSNE},
        "runtime": {"federation": "inline"},
        "metrics": ["f_score", "distance_error"],
    }
    for name, keys in sections.items():
        whole = not isinstance(keys, Mapping) or name == "data"
        content[name] = keys if whole else {**content.get(name, {}), **keys}
    return content


def result_of(checked: Scenario, folder: Path, *, report: bool = False) -> raydr.Result:
    return raydr.Result(run(checked, out=folder, report=report))


def ran(folder: Path, *, report: bool = False, **sections: Any) -> raydr.Result:
    return result_of(read(scenario(**sections)), folder / "run", report=report)


def scores(folder: Path, **sections: Any) -> dict[str, float]:
    return ran(folder, **sections).metrics["federated"]


def notes(result: raydr.Result) -> str:
    return " ".join(note["text"] for note in json.loads((result.folder / "notes.json").read_text()))


def refusal(folder: Path, **sections: Any) -> str:
    """Return the one-paragraph error of a refused scenario; check that it left no run folder."""
    with pytest.raises(RaydrError) as caught:
        ran(folder, **sections)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert not (folder / "run").exists()
    return str(caught.value)


def table(path: Path, rows: np.ndarray[Any, Any], names: str = "a,b,c,d") -> str:
    np.savetxt(path, rows, delimiter=",", header=names, comments="", fmt="%.17g")
    return str(path)


@pytest.fixture
def blobs() -> np.ndarray[Any, Any]:
    """60 rows of 4 features."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 4)) * [1.0, 2.0, 3.0, 40.0] + [0.0, 0.0, 5.0, 100.0]


# --- reproducibility -----------------------------------------------------------------------------------------------


MEASURED = ["f_score", "distance_error", "anchored_cosine", "anchored_frobenius"]


def repeated(result: raydr.Result) -> raydr.Result:
    return result_of(read(result.folder / "scenario.yaml"), result.folder.parent / "again")


def bits(result: raydr.Result) -> dict[str, bytes]:
    names = ("embedding.parquet", "ledger.json", "metrics.json", "notes.json", "stress.json")
    return {name: file.read_bytes() for name in names if (file := result.folder / name).exists()}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("method", "actors"),
    [
        (
            {
                "visibility": "partial",
                "anchors": 4,
                "solver": "smacof",
                "start": "closed-form",
                "iterations": 5,
            },
            2,
        ),
        pytest.param(
            {"visibility": "partial", "anchors": 4, "solver": "smacof-dense", "iterations": 5},
            1,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"geometry": "hyperbolic", "anchors": 4, "embedder": EMBEDDERS["cosne"]},
            1,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["partial-smacof", "partial-dense", "hyperbolic"],
)
def test_ray_matches_inline_federation(tmp_path: Path, method: dict[str, Any], actors: int) -> None:
    runtimes = [{"federation": "inline"}, {"federation": "ray", "actors": actors}]
    found = [
        bits(ran(tmp_path / str(number), method=method, runtime=runtime, metrics=MEASURED))
        for number, runtime in enumerate(runtimes)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "sections",
    [
        pytest.param({"method": {"embedder": "cne"}}, marks=pytest.mark.slow),
        {"method": {"geometry": "hyperbolic", "curvature": 0.5}, "data": {"source": "iris", "rows": 40}},
        {"privacy": {"noise": {"on": "distances", "level": 0.1, "clients": 0.5}}},
    ],
    ids=["shorthand", "hyperbolic", "noise"],
)
def test_scenario_in_run_folder_repeats_the_run(tmp_path: Path, sections: dict[str, Any]) -> None:
    (tmp_path / "secret").write_bytes(bytes(32))
    (tmp_path / "secret").chmod(0o600)
    sections.setdefault("privacy", {})["secret"] = str(tmp_path / "secret")
    sections.setdefault("method", {}).setdefault("embedder", EMBEDDERS["cne"])
    first = ran(tmp_path, **sections)
    assert bits(repeated(first)) == bits(first)


# --- anchors --------------------------------------------------------------------------------------------------------


def test_anchors_from_a_file_are_scaled_like_the_data(tmp_path: Path, blobs: np.ndarray[Any, Any]) -> None:
    """Anchors are scaled like the rows: all 60 are mapped, and 7 anchors recover 4 features."""
    data = {"path": table(tmp_path / "data.csv", blobs), "scale": "standard"}
    anchors = table(tmp_path / "anchors.csv", blobs[:7] * 1.5 + 3.0)
    method = {"anchors": None, "anchor_source": "file", "anchor_path": anchors}
    result = ran(tmp_path, data=data, method=method)
    assert len(result.embedding) == 60
    assert result.metrics["federated"]["distance_error"] < 1e-6
    assert "to 7 anchors, from a file, in a space of 4 dimensions" in notes(result)


def test_columns_of_the_anchors_file_are_matched_by_name(tmp_path: Path, blobs: np.ndarray[Any, Any]) -> None:
    data = {"path": table(tmp_path / "data.csv", blobs)}
    method = {"anchors": 7, "anchor_source": "file"}
    runs = [("straight", blobs[:7], "a,b,c,d"), ("turned", blobs[:7, ::-1], "d,c,b,a")]
    straight, turned = (
        ran(
            tmp_path / name,
            data=data,
            method=method | {"anchor_path": table(tmp_path / f"{name}.csv", *anchors)},
        )
        for name, *anchors in ((name, rows, names) for name, rows, names in runs)
        if (tmp_path / name).mkdir() is None
    )
    assert straight.embedding.tobytes() == turned.embedding.tobytes()


@pytest.mark.parametrize(
    ("rows", "names", "words"),
    [
        (7, "a,b,c,e", r"'d'"),
        (3, "a,b,c,d", "needs 7 anchors, but there are only 3"),
        (0, None, "anchors.csv"),
    ],
)
def test_unsuitable_anchors_file_is_refused(
    tmp_path: Path, blobs: np.ndarray[Any, Any], rows: int, names: str | None, words: str
) -> None:
    data = {"path": table(tmp_path / "data.csv", blobs)}
    path = tmp_path / "anchors.csv"
    if names is not None:
        table(path, blobs[:rows], names)
    method = {"anchors": 7, "anchor_source": "file", "anchor_path": str(path)}
    assert words in refusal(tmp_path, data=data, method=method)


@pytest.mark.parametrize("same", ["points", "line"])
def test_dependent_anchors_are_reported_or_refused(
    tmp_path: Path, blobs: np.ndarray[Any, Any], same: str
) -> None:
    data = {"path": table(tmp_path / "data.csv", blobs)}
    along = np.linspace(0.0, 1.0, 6)[:, None] * (0.0 if same == "points" else 1.0)
    anchors = table(tmp_path / "anchors.csv", blobs[0] + along * (blobs[1] - blobs[0]))
    method = {"anchors": 6, "anchor_source": "file", "anchor_path": anchors}
    if same == "points":
        assert "All 6 anchors are the same point" in refusal(tmp_path, data=data, method=method)
    else:
        text = notes(ran(tmp_path, data=data, method=method))
        assert "span 1 of them" in text
        assert "3 dimensions stay open" in text


def sites(folder: Path, rows: np.ndarray[Any, Any]) -> dict[str, Any]:
    cut = {"north": rows[:25], "east": rows[25:27], "south": rows[27:]}
    paths = [table(folder / f"{name}.csv", part) for name, part in cut.items()]
    return {"data": {"scale": "standard"}, "clients": {"count": None, "sites": [{"path": p} for p in paths]}}


def at_sites(folder: Path, rows: np.ndarray[Any, Any], **method: Any) -> dict[str, Any]:
    content = sites(folder, rows)
    del content["clients"]["count"]
    whole = scenario(data=content["data"], method=method)
    return whole | {"clients": content["clients"]}


@pytest.mark.parametrize("source", ["random", "learnt", "file"])
def test_sites_with_their_own_files_use_anchors_that_are_not_rows(
    tmp_path: Path, blobs: np.ndarray[Any, Any], source: str
) -> None:
    method: dict[str, Any] = {"anchor_source": source, "learning": {"rounds": 2}}
    if source == "file":
        method["anchor_path"] = table(tmp_path / "anchors.csv", blobs[:8] + 0.5)
    result = result_of(read(at_sites(tmp_path, blobs, **method)), tmp_path / "run")
    assert result.metrics["federated"]["distance_error"] < 1e-5
    assert len(result.embedding) == 60


SAMPLE = {"anchor_source": "sample"}


def test_rows_of_sites_cannot_be_anchors(tmp_path: Path, blobs: np.ndarray[Any, Any]) -> None:
    with pytest.raises(ScenarioError, match="sites that keep their own files: choose random, learnt or file"):
        read(at_sites(tmp_path, blobs, anchor_source="sample"))


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"anchors": 1}, "method.anchors is 1: it must be at least 2"),
        (SAMPLE | {"anchors": 5000}, "sets 5000 rows apart (5000 for all), but only 147 of 150 rows"),
        (SAMPLE | {"anchors": 149}, "Lower method.anchors, method.local_anchors or data.rows"),
        (
            SAMPLE | {"anchors": 100, "visibility": "partial", "local_anchors": 50},
            "200 rows apart (50 for all and 50 for each of 3 clients)",
        ),
        ({"anchors": 8, "anchor_rank": 5}, "anchor_rank is 5, but the 8 anchors span 4"),
        ({"regime": "pointwise"}, "Set clients.partition.kind: pointwise"),
    ],
)
def test_impossible_anchors_are_refused_with_the_numbers(
    tmp_path: Path, method: dict[str, Any], words: str
) -> None:
    assert words in refusal(tmp_path, method=method)


# --- geometry and embedders -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["closed-form", "smacof"])
def test_points_of_the_ball_are_used_unchanged(
    tmp_path: Path, blobs: np.ndarray[Any, Any], solver: str
) -> None:
    ball = blobs / (1.2 * np.linalg.norm(blobs, axis=1).max())
    method = {
        "geometry": "hyperbolic",
        "points": "ball",
        "anchors": 6,
        "solver": solver,
        "start": "closed-form",
        "iterations": 3,
    }
    data = {"path": table(tmp_path / "ball.csv", ball)}
    found = scores(tmp_path, data=data, method=method)
    assert found["f_score"] > 0.999
    assert found["distance_error"] < 1e-6


def test_row_outside_the_ball_is_named(tmp_path: Path, blobs: np.ndarray[Any, Any]) -> None:
    ball = blobs / (1.2 * np.linalg.norm(blobs, axis=1).max())
    ball[17] *= 1.5 / np.linalg.norm(ball[17])
    method = {"geometry": "hyperbolic", "points": "ball", "anchors": 6}
    data = {"path": table(tmp_path / "ball.csv", ball)}
    with pytest.raises(RaydrError) as caught:
        ran(tmp_path, data=data, method=method | {"anchor_source": "random"})
    assert not (tmp_path / "run").exists()
    text = str(caught.value)
    assert "\n" not in text
    assert re.search(r"Client \d .* have norms below 1, but row \d+ has norm 1\.5", text)
    assert "method.points: features" in text


@pytest.mark.parametrize("kind", EMBEDDERS)
@pytest.mark.parametrize("geometry", ["euclidean", "hyperbolic"])
def test_every_embedder_maps_its_geometries(tmp_path: Path, kind: str, geometry: str) -> None:
    method = {"geometry": geometry, "embedder": EMBEDDERS[kind]}
    if (kind, geometry) == ("cosne", "euclidean"):
        assert "set geometry: hyperbolic" in refusal(tmp_path, method=method)
        return
    result = ran(tmp_path, data={"source": "iris", "rows": 40}, method=method)
    assert result.embedding.shape == (40, 2)
    assert np.isfinite(result.embedding).all()
    if kind == "cosne":
        assert (np.linalg.norm(result.embedding, axis=1) < 1.0).all()


def test_three_dimensional_map_has_three_axes(tmp_path: Path) -> None:
    result = ran(tmp_path, method={"dimensions": 3}, compare=["central"], report=True)
    assert result.embedding.shape == (142, 3)
    assert read_run(result.folder).federated.shape == (142, 3)
    assert (result.folder / "report.html").read_text().count("<html") == 1


def test_edge_list_is_mapped_into_the_disk(tmp_path: Path) -> None:
    edges = "\n".join(f"n{(node - 1) // 2},n{node}" for node in range(1, 60))
    (tmp_path / "tree.csv").write_text(f"parent,child\n{edges}\n")
    method = {"geometry": "hyperbolic", "anchors": 6, "embedder": EMBEDDERS["cosne"]}
    result = ran(tmp_path, data={"graph": str(tmp_path / "tree.csv"), "dimensions": 3}, method=method)
    assert result.embedding.shape == (54, 2)
    assert (np.linalg.norm(result.embedding, axis=1) < 1.0).all()
    assert result.metrics["federated"]["f_score"] > 0.999
    assert all(name.startswith("n") for name in read_run(result.folder).rows)  # type: ignore[union-attr]


def test_embedder_name_means_its_defaults() -> None:
    short, long = (read(scenario(method={"embedder": value})) for value in ("umap", {"kind": "umap"}))
    assert short == long


@pytest.mark.parametrize(
    ("embedder", "words"),
    [
        (
            "tsnee",
            "method.embedder.kind is 'tsnee' (did you mean tsne?): it must be one of tsne, umap, phate",
        ),
        ({"kind": "umpa"}, "method.embedder.kind is 'umpa' (did you mean umap?)"),
        (
            {"kind": "tsne", "perplexty": 5},
            "method.embedder.perplexty is not a key (did you mean perplexity?)",
        ),
        (
            {"kind": "umap", "perplexity": 5},
            "method.embedder.perplexity is not a key of kind umap, only of kind tsne",
        ),
        ({"kind": "cne", "epochs": 0}, "method.embedder.epochs is 0: it must be at least 1"),
        ({"epochs": 5}, "method.embedder.epochs is not a key of kind tsne"),
        (5, "method.embedder is 5: it must be a section of keys, such as {kind: tsne}"),
    ],
)
def test_unknown_embedder_is_refused_in_one_paragraph(embedder: Any, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(scenario(method={"embedder": embedder}))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_large_perplexity_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    assert "perplexity" in refusal(tmp_path, method={"embedder": TSNE | {"perplexity": 500}})


# --- noise ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", ["data", "distances"])
def test_noise_appears_in_ledger_notes_report_and_scores(tmp_path: Path, on: str) -> None:
    exact = scores(tmp_path / "exact")
    noise = {"on": on, "level": 0.1, "clients": 0.67}
    result = ran(tmp_path / "noisy", privacy={"noise": noise}, report=True)
    text = f"Gaussian noise of level 0.1 on {on}"
    counts = {
        entry["protection"] and entry["protection"]["level"]: entry["count"]
        for entry in result.ledger
        if entry["kind"] == "AnchorDistances"
    }
    assert counts == {0.1: 2, None: 1}
    assert f"{text} was added by 2 of 3 clients" in notes(result)
    assert result.metrics["federated"]["distance_error"] > 100 * exact["distance_error"]
    page = (result.folder / "report.html").read_text()
    assert text in page
    known = knowledge(read_run(result.folder)).text
    assert known in html.unescape(page)
    records = {
        bool(entry["protection"]): entry["fixed"]["records"]
        for entry in result.ledger
        if entry["kind"] == "AnchorDistances"
    }
    assert f"reconstruct {records[False]:,} of {sum(records.values()):,} records" in known, (
        "one client adds none"
    )
    assert f"for {records[True]:,} others it has distances with {text}" in known


def test_notes_do_not_count_records_with_noisy_distances(tmp_path: Path) -> None:
    """Noise sets a third of the residuals to zero, but the server cannot reconstruct those records."""
    some = notes(
        ran(tmp_path / "some", privacy={"noise": {"on": "distances", "level": 0.1, "clients": 0.34}})
    )
    assert "95 of 95 records (100%) of clients without noise" in some
    every = notes(ran(tmp_path / "all", privacy={"noise": {"on": "distances", "level": 0.1}}))
    assert "can reconstruct them" not in every
    data = notes(ran(tmp_path / "data", privacy={"noise": {"on": "data", "level": 0.1}}))
    assert "can reconstruct them, feature by feature, including their noise" in data


def test_error_grows_with_noise_and_noisy_clients(tmp_path: Path) -> None:
    pointwise = {"count": None, "partition": {"kind": "pointwise"}}
    found = [
        scores(
            tmp_path / str(number),
            clients=pointwise,
            method={"regime": "pointwise"},
            privacy={"noise": {"on": "distances", "level": level, "clients": part}},
        )["distance_error"]
        for number, (level, part) in enumerate([(0.02, 0.1), (0.02, 1.0), (0.2, 1.0)])
    ]
    assert found[0] < 0.5 * found[1] < 0.25 * found[2]


def test_noise_on_a_method_without_noise_is_refused() -> None:
    content = scenario(privacy={"noise": {"on": "data", "level": 0.1}})
    content["method"] = {"kind": "local-ne"}
    with pytest.raises(ScenarioError, match=r"can add noise nowhere: leave privacy\.noise out"):
        read(content)


# --- notes ---------------------------------------------------------------------------------------------------------


def test_notes_are_written_and_shown(tmp_path: Path) -> None:
    result = ran(tmp_path, method={"anchors": 3}, report=True)
    (note,) = json.loads((result.folder / "notes.json").read_text())
    assert "span 2 of them" in note["text"]
    assert "2 dimensions stay open" in note["text"]
    assert "One rotation stays unknown for these clients together" in note["text"]
    page = (result.folder / "report.html").read_text()
    assert note["title"] in page
    assert "another record that differs there could have the same distances" in page


def test_notes_report_that_no_dimension_is_open(tmp_path: Path) -> None:
    text = notes(ran(tmp_path))
    assert "They leave no dimension open, so distances hide nothing" in text
    assert "142 of 142 records (100%)" in text


def test_notes_report_that_local_anchors_reveal_open_dimensions(tmp_path: Path) -> None:
    """With one dimension open, the server's points are the records."""
    from raydr.scenarios.running.client_data import dealt_out

    content = scenario(method={"visibility": "partial", "anchors": 4})
    text = notes(result_of(read(content), tmp_path / "run"))
    assert "1 dimension stays open" in text
    assert "cover what those of another leave open" in text

    from inline_federations import federate

    from raydr.methods.sense.server import completed

    checked = read(content)
    client_data = dealt_out(checked, None)
    federation = federate(client_data.parts, seed=checked.seed, public=client_data.public)
    known = completed(federation, checked.method)
    off = np.linalg.norm(known.space.rows(known.points) - np.concatenate(client_data.parts), axis=1)
    assert np.median(off) < 1e-9


def test_anchor_rows_are_not_on_the_map(tmp_path: Path) -> None:
    result = ran(tmp_path, method={"anchors": 20})
    rows = read_run(result.folder).rows
    assert len(rows) == len(set(map(int, rows))) == 130
    own = load(source="iris").rows
    removed = own[np.setdiff1d(np.arange(150), np.array(rows, dtype=int))]
    with np.load(result.folder / "model" / "arrays.npz") as model:
        np.testing.assert_allclose(np.sort(model["anchors"], axis=0), np.sort(removed, axis=0), atol=1e-6)


def test_command_line_runs_and_refuses_scenarios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    quick = [
        "--set",
        "method.embedder={kind: tsne, early_iterations: 1, iterations: 1}",
        "--set",
        "data.rows=100",
    ]
    inline = ["--set", "runtime.federation=inline", "--set", "compare=[]"]
    assert status(["run", "digits-sense", *quick, *inline, "--out", "out"]) == 0
    text = capsys.readouterr().err
    assert "SENSE with 63 anchors: " in text
    sample = ["--set", "method.anchor_source=sample"]
    assert status(["run", "digits-sense", "--set", "method.anchors=5000", *sample]) == 2
    assert "Lower method.anchors" in capsys.readouterr().err
    assert status(["list", "methods"]) == 0
    assert "sense " in capsys.readouterr().out


# --- shipped --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        name
        if name in ("disease-sense-hyperbolic", "digits-sense-anchors")
        else pytest.param(name, marks=pytest.mark.slow)
        for name in SENSE
    ],
)
def test_shipped_scenarios_run(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    checked = read(name)
    if checked.data.source not in ("digits", "iris"):
        monkeypatch.setenv("RAYDR_DATA", str(request.getfixturevalue("data_dir")))
    small: dict[str, Any] = {
        "runtime.federation": "inline",
        "data.rows": 60,
        "method.embedder": EMBEDDERS[checked.method.embedder.kind],
    }
    result = result_of(read(name, small), tmp_path / "run")
    assert result.embedding.shape == (60, 2)
    assert notes(result)
    guessing = F_SCORE_NEIGHBORS / (60 - 1)
    assert result.metrics["federated"]["f_score"] > 3 * guessing


# --- solvers as published -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["smacof", "smacof-dense"])
def test_run_folder_has_the_stress_of_every_iteration(tmp_path: Path, solver: str) -> None:
    """It is in a file of its own, since these iterations are no rounds, and a curve in the report."""
    method = {"anchors": 3, "solver": solver, "iterations": 7, "tolerance": 0.0}
    result = ran(tmp_path, method=method, report=True)
    stress = json.loads((result.folder / "stress.json").read_text())
    assert len(stress) == 8
    assert stress == sorted(stress, reverse=True)
    assert read_run(result.folder).stress == tuple(stress)
    assert read_run(result.folder).rounds == ()
    page = (result.folder / "report.html").read_text()
    assert f"stress {stress[7]:.6g} in iteration 7" in page
    assert (repeated(result).folder / "stress.json").read_bytes() == (
        result.folder / "stress.json"
    ).read_bytes()


def test_closed_form_writes_no_stress(tmp_path: Path) -> None:
    folder = ran(tmp_path, report=True).folder
    assert not (folder / "stress.json").exists()
    assert "Stress by iteration" not in (folder / "report.html").read_text()


@pytest.mark.usefixtures("edits_accepted")
def test_invalid_stress_file_is_refused_by_name(tmp_path: Path) -> None:
    folder = ran(tmp_path).folder
    (folder / "stress.json").write_text("[1.0, -1.0]")
    with pytest.raises(RaydrError, match=r"stress\.json is broken at 1"):
        read_run(folder)


def test_dense_solver_is_refused_for_hyperbolic_or_large_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raydr.methods.sense import algorithm_2

    dense = {"solver": "smacof-dense"}
    text = refusal(tmp_path, method=dense | {"geometry": "hyperbolic"})
    assert "choose solver: smacof" in text
    monkeypatch.setattr(algorithm_2, "MOST_POINTS", 149)
    text = refusal(tmp_path, method=dense)
    assert "here 150; the limit is 149. Choose method.solver: smacof, which" in text


def test_anchored_metrics_measure_the_records_themselves(tmp_path: Path) -> None:
    """Enough anchors reveal the records; with fewer the error is that of the server's points, in the data's units.

    Neither is a default metric.
    """
    enough = scores(tmp_path / "enough", metrics=MEASURED, data={"source": "iris", "scale": "standard"})
    assert enough["anchored_cosine"] == pytest.approx(1.0, abs=1e-6)
    assert enough["anchored_frobenius"] < 1e-5
    few = ran(tmp_path / "few", metrics=MEASURED, method={"anchors": 3, "alignment": "none"})
    assert few.metrics["federated"]["anchored_frobenius"] > 1e-3
    assert few.metrics["federated"]["anchored_cosine"] < 1.0
    everything = ran(tmp_path / "everything", metrics="default").metrics["federated"]
    assert "frobenius" in everything
    assert "anchored_frobenius" not in everything


@pytest.mark.parametrize(
    "sections",
    [
        {"method": {"kind": "fed-tsne", "landmarks": 5, "rounds": 1, "early_iterations": 2, "iterations": 2}},
        {"method": {"geometry": "hyperbolic"}},
        {"privacy": {"isometry_key": True}},
    ],
    ids=["fed-tsne", "hyperbolic", "keyed"],
)
def test_anchored_metrics_need_a_place_among_the_features(tmp_path: Path, sections: dict[str, Any]) -> None:
    content = scenario(**{key: value for key, value in sections.items() if key != "method"})
    method = sections.get("method", {})
    content["method"] = method if "kind" in method else content["method"] | method
    content["metrics"] = ["f_score", "anchored_cosine", "anchored_frobenius"]
    result = result_of(read(content), tmp_path / "run")
    reasons = read_run(result.folder).measures.not_computed
    assert set(reasons) == {"anchored_cosine", "anchored_frobenius"}
    assert all(
        "cannot convert the recovered positions into feature values" in reason for reason in reasons.values()
    )
