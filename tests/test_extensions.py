"""What one file of another package adds: one thing of each sort, through the command, from its list to the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from extensions import GROUPS, PLAIN, command, installed
from places import TESTS

ADDED = {
    "methods": ("power-pca", "Federated principal components by power iteration."),
    "embedders": ("still", "The first layout, as it is but for its size."),
    "partitions": ("blocks", "Rows dealt in blocks, in their order."),
    "adversaries": ("silence", "Nothing but zeros."),
    "attacks": ("same-place", "says that a record is the public row nearest to it on the axes"),
    "mechanisms": ("rounding", "Values rounded to multiples of a step."),
    "metrics": ("reach", "the largest coordinate of the map"),
}
STEP = 0.125

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example is installed."""
    source = (TESTS / "example_extension.py").read_text()
    return installed(tmp_path_factory.mktemp("installed"), "raydr_example", source)


def run_folder(packages: Path, place: Path, name: str, **sections: Any) -> Path:
    """The run folder of a scenario with these sections, run by the command."""
    file = place / f"{name}.yaml"
    file.write_text(yaml.safe_dump(PLAIN | sections))
    done = command(packages, "run", file, "--out", place / name, "--quiet")
    assert done.returncode == 0, done.stderr
    return place / name


def columns(folder: Path, file: str = "embedding.parquet") -> dict[str, Any]:
    """Columns of a table of a run folder."""
    return {name: np.array(values) for name, values in pq.read_table(folder / file).to_pydict().items()}


def positions(folder: Path, file: str = "embedding.parquet") -> Any:
    """Map of a run folder, (rows, 2)."""
    table = columns(folder, file)
    return np.column_stack([table["x"], table["y"]])


def content(folder: Path, file: str) -> Any:
    """A JSON file of a run folder."""
    return json.loads((folder / file).read_text())


def test_raydr_list_has_each(example: Path) -> None:
    program = "from raydr.front.cli import status\nfor what in {}: print(what + ':'); status(['list', what])"
    listed = subprocess.run(
        [sys.executable, "-c", program.format(GROUPS)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(example)},
    ).stdout
    for what, (name, line) in ADDED.items():
        section = listed.partition(f"{what}:\n")[2].partition(":\n")[0]
        assert line in next(found for found in section.splitlines() if found.split()[0] == name)


def test_the_reference_of_scenarios_has_every_key_of_it(example: Path) -> None:
    made = subprocess.run(
        [
            sys.executable,
            "-c",
            "from scenario_reference import method_pages, reference; print(reference(), *method_pages().values())",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=TESTS,
        env=os.environ | {"PYTHONPATH": str(example)},
    ).stdout
    for line in (
        "# `power-pca`\n\nFederated principal components by power iteration.",
        "| `blocks` | Rows dealt in blocks, in their order |",
        "| `silence` | Nothing but zeros |",
        "| `rounding` | Values rounded to multiples of a step |",
        "| `still` | The first layout, as it is but for its size |",
        "| `step` | number > 0 | needed | distance between two values that can be told apart (rounding) |",
    ):
        assert line in made


@pytest.fixture(scope="module")
def plain(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folder of the method, the partition and the metric."""
    return run_folder(example, tmp_path_factory.mktemp("plain"), "plain")


def test_the_method_gives_the_pooled_map(plain: Path) -> None:
    federated, central = positions(plain), positions(plain, "central.parquet")
    signs = np.sign((federated * central).sum(axis=0))
    np.testing.assert_allclose(federated * signs, central, atol=1e-6)


def test_the_partition_dealt_the_rows_and_the_metric_measured_the_map(plain: Path) -> None:
    assert columns(plain)["client"].tolist() == [f"block-{row * 3 // 150}" for row in range(150)]
    assert content(plain, "metrics.json")["federated"] == {"reach": float(np.abs(positions(plain)).max())}


@pytest.mark.ray
def test_workers_of_ray_find_it_and_give_the_bits_of_one_process(
    example: Path, plain: Path, tmp_path: Path
) -> None:
    on_ray = run_folder(example, tmp_path, "ray", runtime={"actors": 2})
    for file in ("embedding.parquet", "central.parquet", "ledger.json"):
        assert (on_ray / file).read_bytes() == (plain / file).read_bytes()


def test_the_adversary_strikes_and_the_mechanism_is_in_the_ledger_of_those_alone_who_apply_it(
    example: Path, plain: Path, tmp_path: Path
) -> None:
    folder = run_folder(
        example,
        tmp_path,
        "struck",
        faults={"adversary": {"kind": "silence", "fraction": 0.34}},
        privacy={"noise": {"kind": "rounding", "on": "coordinates", "step": STEP, "clients": 0.67}},
    )
    assert not np.allclose(np.abs(positions(folder)), np.abs(positions(plain)), atol=STEP)
    sent = [entry for entry in content(folder, "ledger.json") if entry["kind"] == "Coordinates"]
    rounding = {"on": "coordinates", "step": STEP, "kind": "rounding", "relation": "zero-out"}
    assert [(entry["protection"], entry["count"]) for entry in sent] in (
        [(None, 1), (rounding, 2)],
        [(rounding, 2), (None, 1)],
    )
    clients = columns(folder)["client"]
    exact = {
        name
        for name in np.unique(clients)
        if not np.array_equal(places := positions(folder)[clients == name], STEP * np.rint(places / STEP))
    }
    assert len(exact) == 1
    page = (folder / "report.html").read_text()
    for words in ("Power PCA", "rounding of coordinates to multiples of 0.125", "Reach"):
        assert words in page


def test_embedder_and_mechanism_serve_a_method_of_raydr(example: Path, tmp_path: Path) -> None:
    rounding = {"kind": "rounding", "on": "distances", "step": STEP}
    folders = [
        run_folder(
            example,
            tmp_path,
            f"factor-{factor}",
            method={"kind": "sense", "anchors": 4, "embedder": {"kind": "still", "factor": factor}},
            privacy={"noise": rounding},
        )
        for factor in (1.0, 4.0)
    ]
    np.testing.assert_allclose(positions(folders[1]), 4.0 * positions(folders[0]))
    sent = next(entry for entry in content(folders[0], "ledger.json") if entry["kind"] == "AnchorDistances")
    assert sent["protection"] == {**rounding, "relation": "zero-out"}


def test_the_attack_recovers_what_the_method_posts_and_is_in_the_report(
    example: Path, tmp_path: Path
) -> None:
    folder = run_folder(
        example,
        tmp_path,
        "audited",
        audit={"attacks": ["same-place"]},
        data={"source": "iris", "rows": 60, "scale": "minmax"},
    )
    (verdict,) = content(folder, "audit.json")["verdicts"]
    assert verdict["attack"] == "same-place"
    assert verdict["messages"] == {"Coordinates": 3}
    errors = verdict["errors"]
    assert errors["centred"]["median"] < 0.5 * errors["centred_guess"]["median"]
    assert "same-place" in (folder / "report.html").read_text()


def test_a_plan_counts_what_the_method_says_that_the_server_holds(example: Path, tmp_path: Path) -> None:
    """A copy of two coordinates of each row in double precision, which the method says by `server_bytes`."""
    file, arrays = tmp_path / "planned.yaml", {}
    file.write_text(yaml.safe_dump(PLAIN | {"runtime": {"federation": "ray"}, "compare": []}))
    for rows in (150, 1500):
        done = command(example, "plan", file, "--rows", str(rows), "--json", tmp_path / "plan.json")
        assert done.returncode == 0, done.stderr
        processes = {each["process"]: each["arrays"] for each in content(tmp_path, "plan.json")["memory"]}
        arrays[rows] = processes["coordinator"]
    assert arrays[1500] - arrays[150] == 8 * 2 * (1500 - 150)


def test_a_run_belongs_to_the_packages_that_it_was_made_with(plain: Path) -> None:
    assert content(plain, "environment.json")["packages"]["raydr_example"] == "1.0"


def test_without_the_package_its_names_are_refused(plain: Path) -> None:
    again = command(None, "run", plain / "scenario.yaml", "--out", plain.parent / "again")
    assert again.returncode == 2
    assert "method.kind is 'power-pca'" in again.stderr.replace("\n", " ")
    assert not (plain.parent / "again").exists()


CROWDED = """
from raydr.privacy import Mechanism, mechanism

@mechanism
class Crowded(Mechanism):
    kind: str = "crowded"
    on: str = "data"
    clients: int = 3
    words = property(lambda self: 'nothing')
    deviation = property(lambda self: 0.0)

    def cover(self, quantity, stream):
        return quantity.values
"""
TWICE = """
from typing import Literal
from raydr.embedding import embedder
from raydr.settings import Settings

@embedder
class Mine(Settings):
    kind: Literal["umap"] = "umap"
"""


@pytest.mark.parametrize(
    ("source", "arguments", "said"),
    [
        (
            "import nothing_of_this_name",
            ["list", "embedders"],
            "The extension 'broken' of the package broken 1.0 cannot be imported (ModuleNotFoundError: No module",
        ),
        (TWICE, ["list", "embedders"], "Two embedders have the name 'umap'"),
        (CROWDED, ["run", "digits-fed-tsne"], "The mechanism 'crowded' has a key `clients`"),
    ],
    ids=["not-there", "twice", "crowded"],
)
def test_what_cannot_be_used_is_refused_by_name(
    tmp_path: Path, source: str, arguments: list[str], said: str
) -> None:
    done = command(installed(tmp_path, "broken", source, ("embedders",)), *arguments)
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_the_method_in_60_lines_runs_as_a_package_of_its_own(tmp_path: Path) -> None:
    source = (TESTS / "example_method.py").read_text()
    packages = installed(tmp_path / "installed", "power_pca", source, ("methods",))
    folder = run_folder(packages, tmp_path, "short", clients={"count": 3}, compare=[], metrics=["npa_10"])
    found = pq.read_table(folder / "embedding.parquet")
    from sklearn.datasets import load_iris

    rows = load_iris().data
    rows = (rows - rows.min(axis=0)) / np.ptp(rows, axis=0)
    axes = np.linalg.svd(rows, full_matrices=False)[2][:2]
    places = np.column_stack([found["x"], found["y"]])
    assert np.abs(_gram(places) - _gram(rows @ axes.T)).max() < 1e-4 * np.abs(_gram(places)).max()


def _gram(places: np.ndarray) -> np.ndarray:
    """Inner products of all pairs of rows, which no turn and no reflection changes."""
    return np.asarray(places @ places.T)
