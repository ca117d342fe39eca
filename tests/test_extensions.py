"""A package adds one thing of each kind: each works from `raydr list` to the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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

ROUNDING = {"kind": "rounding", "step": STEP}


def still(factor: float) -> dict[str, Any]:
    """Return sections of a method of raydr with the embedder and the mechanism of the example."""
    return {
        "method": {"kind": "sense", "anchors": 4, "embedder": {"kind": "still", "factor": factor}},
        "privacy": {"noise": ROUNDING | {"on": "distances"}},
    }


SCENARIOS: dict[str, dict[str, Any]] = {
    "plain": {},
    "factor-1": still(1.0),
    "factor-4": still(4.0),
    "attacked": {
        "faults": {"adversary": {"kind": "silence", "fraction": 0.34}},
        "privacy": {"noise": ROUNDING | {"on": "coordinates", "clients": 0.67}},
    },
    "audited": {
        "audit": {"attacks": ["same-place"]},
        "data": {"source": "iris", "rows": 60, "scale": "minmax"},
    },
    "planned": {"runtime": {"federation": "ray"}, "compare": []},
}
_PROGRAM = f"""
import sys
from pathlib import Path
from raydr.front.cli import status
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read

def succeed(*arguments):
    assert status(arguments) == 0, arguments

for things in {GROUPS}:
    print(f"{{things}}:", flush=True)
    succeed("list", things)
for name in ("plain", "factor-1", "factor-4"):
    run(read(Path(f"{{name}}.yaml")), out=Path(name), report=False)
for name in ("attacked", "audited"):
    succeed("run", f"{{name}}.yaml", "--out", name, "--quiet")
for rows in ("150", "1500"):
    succeed("plan", "planned.yaml", "--rows", rows, "--json", f"plan-{{rows}}.json")
sys.path.insert(0, {str(TESTS)!r})
from scenario_reference import method_pages, reference
Path("reference.md").write_text("\\n".join([reference(), *method_pages().values()]))
"""
_RUN = """
import sys
from pathlib import Path
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read
run(read(Path(sys.argv[1])), out=Path(sys.argv[2]), report=False)
"""


def succeeded(packages: Path, folder: Path, program: str, *arguments: str | Path) -> str:
    """Run a program with the packages of a folder; return its standard output."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(packages)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def scenario_file(folder: Path, name: str, **sections: Any) -> Path:
    """Write the plain scenario with these sections."""
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(PLAIN | sections))
    return file


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the example into a folder."""
    source = (TESTS / "example_extension.py").read_text()
    return installed(tmp_path_factory.mktemp("installed"), "raydr_example", source)


@pytest.fixture(scope="module")
def folder(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run all scenarios, lists and plans in one process; return the folder of the results."""
    folder = tmp_path_factory.mktemp("results")
    for name, sections in SCENARIOS.items():
        scenario_file(folder, name, **sections)
    (folder / "output.txt").write_text(succeeded(example, folder, _PROGRAM))
    return folder


@pytest.fixture(scope="module")
def plain(folder: Path) -> Path:
    """Return the run folder of the method, the partition and the metric."""
    return folder / "plain"


def columns(folder: Path, file: str = "embedding.parquet") -> dict[str, Any]:
    """Return the columns of a table of a run folder."""
    return {name: np.array(values) for name, values in pq.read_table(folder / file).to_pydict().items()}


def positions(folder: Path, file: str = "embedding.parquet") -> Any:
    """Return the map of a run folder, (rows, 2)."""
    table = columns(folder, file)
    return np.column_stack([table["x"], table["y"]])


def content(folder: Path, file: str) -> Any:
    """Return the content of a JSON file."""
    return json.loads((folder / file).read_text())


def test_raydr_list_names_each_addition(folder: Path) -> None:
    listed = (folder / "output.txt").read_text()
    for what, (name, line) in ADDED.items():
        section = listed.partition(f"{what}:\n")[2].partition(":\n")[0]
        assert line in next(found for found in section.splitlines() if found.split()[0] == name)


def test_the_reference_of_scenarios_has_each_addition(folder: Path) -> None:
    made = (folder / "reference.md").read_text()
    for line in (
        "# `power-pca`\n\nFederated principal components by power iteration.",
        "| `blocks` | Rows dealt in blocks, in their order |",
        "| `silence` | Nothing but zeros |",
        "| `rounding` | Values rounded to multiples of a step |",
        "| `still` | The first layout, as it is but for its size |",
        "| `step` | number > 0 | needed | distance between two values that can be told apart (rounding) |",
    ):
        assert line in made


def test_the_method_matches_its_pooled_map(plain: Path) -> None:
    federated, central = positions(plain), positions(plain, "central.parquet")
    signs = np.sign((federated * central).sum(axis=0))
    np.testing.assert_allclose(federated * signs, central, atol=1e-6)


def test_the_partition_deals_the_rows_and_the_metric_measures_the_map(plain: Path) -> None:
    assert columns(plain)["client"].tolist() == [f"block-{row * 3 // 150}" for row in range(150)]
    assert content(plain, "metrics.json")["federated"] == {"reach": float(np.abs(positions(plain)).max())}


@pytest.mark.ray
@pytest.mark.slow  # test_joining.py: workers have the search path of the driver
def test_workers_of_ray_import_it_and_match_the_inline_run(
    example: Path, plain: Path, tmp_path: Path, short: Path
) -> None:
    """The folder of Ray is removed at the end."""
    file = scenario_file(tmp_path, "ray", runtime={"actors": 1})
    succeeded(example, tmp_path, _RUN, file, "on-ray")
    for name in ("embedding.parquet", "central.parquet", "ledger.json"):
        assert (tmp_path / "on-ray" / name).read_bytes() == (plain / name).read_bytes()
    assert content(tmp_path / "on-ray", "environment.json")["federation"] == "ray"
    assert not list(short.glob("raydr-*"))


def test_the_adversary_acts_and_the_ledger_names_clients_with_noise(folder: Path, plain: Path) -> None:
    attacked = folder / "attacked"
    assert not np.allclose(np.abs(positions(attacked)), np.abs(positions(plain)), atol=STEP)
    sent = [entry for entry in content(attacked, "ledger.json") if entry["kind"] == "Coordinates"]
    rounding = {"on": "coordinates", "step": STEP, "kind": "rounding", "relation": "zero-out"}
    assert [(entry["protection"], entry["count"]) for entry in sent] in (
        [(None, 1), (rounding, 2)],
        [(rounding, 2), (None, 1)],
    )
    clients = columns(attacked)["client"]
    exact = {
        name
        for name in np.unique(clients)
        if not np.array_equal(places := positions(attacked)[clients == name], STEP * np.rint(places / STEP))
    }
    assert len(exact) == 1
    page = (attacked / "report.html").read_text()
    for words in ("Power PCA", "rounding of coordinates to multiples of 0.125", "Reach"):
        assert words in page


def test_embedder_and_mechanism_serve_a_method_of_raydr(folder: Path) -> None:
    one, four = folder / "factor-1", folder / "factor-4"
    np.testing.assert_allclose(positions(four), 4.0 * positions(one))
    sent = next(entry for entry in content(one, "ledger.json") if entry["kind"] == "AnchorDistances")
    assert sent["protection"] == {**ROUNDING, "on": "distances", "relation": "zero-out"}


def test_the_attack_recovers_coordinates_and_is_in_the_report(folder: Path) -> None:
    audited = folder / "audited"
    (verdict,) = content(audited, "audit.json")["verdicts"]
    assert verdict["attack"] == "same-place"
    assert verdict["messages"] == {"Coordinates": 3}
    errors = verdict["errors"]
    assert errors["centred"]["median"] < 0.5 * errors["centred_guess"]["median"]
    assert "same-place" in (audited / "report.html").read_text()


def test_a_plan_includes_the_server_bytes_of_the_method(folder: Path) -> None:
    """`server_bytes` is a float64 copy of two coordinates of each row."""
    arrays = {}
    for rows in (150, 1500):
        memory = content(folder, f"plan-{rows}.json")["memory"]
        arrays[rows] = {each["process"]: each["arrays"] for each in memory}["coordinator"]
    assert arrays[1500] - arrays[150] == 8 * 2 * (1500 - 150)


def test_a_run_records_the_version_of_the_package(plain: Path) -> None:
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
    ("source", "arguments", "message"),
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
def test_an_unusable_extension_is_refused_by_name(
    tmp_path: Path, source: str, arguments: list[str], message: str
) -> None:
    done = command(installed(tmp_path, "broken", source, ("embedders",)), *arguments)
    assert done.returncode == 2, done.stderr
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_the_method_of_the_docs_runs_as_a_package(tmp_path: Path) -> None:
    source = (TESTS / "example_method.py").read_text()
    packages = installed(tmp_path / "installed", "power_pca", source, ("methods",))
    file = scenario_file(tmp_path, "short", clients={"count": 3}, compare=[], metrics=["npa_10"])
    succeeded(packages, tmp_path, _RUN, file, "out")
    from sklearn.datasets import load_iris

    rows = load_iris().data
    rows = (rows - rows.min(axis=0)) / np.ptp(rows, axis=0)
    axes = np.linalg.svd(rows, full_matrices=False)[2][:2]
    places = positions(tmp_path / "out")
    assert np.abs(_gram(places) - _gram(rows @ axes.T)).max() < 1e-4 * np.abs(_gram(places)).max()


def _gram(places: np.ndarray) -> np.ndarray:
    """Return the inner products of all pairs of rows: rotations and reflections do not change them."""
    return np.asarray(places @ places.T)
