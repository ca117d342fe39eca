"""What is defined is what can be chosen: registries, the schema, lists and the reference name the same things."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pytest
from scenario_reference import PAGE

from raydr.embedding import EMBEDDERS
from raydr.errors import ScenarioError
from raydr.front.cli import CATALOGUES
from raydr.methods import METHODS
from raydr.metrics import DEFAULT_METRICS, METRICS
from raydr.partition import PARTITIONS
from raydr.registry import ExtensionError, Kinds, Registry
from raydr.report import wording
from raydr.scenarios.problems import ROOT
from raydr.scenarios.reading import read
from raydr.settings import Settings
from tests.tiny import tiny, tiny_scenario

CHOICES: dict[str, Registry[Any]] = {
    "method": METHODS,
    "clients.partition": PARTITIONS,
    "method.embedder": EMBEDDERS,
}
"""Sections of a scenario that choose from a registry by ``kind``."""
LISTED: dict[str, Registry[Any]] = {
    "methods": METHODS,
    "partitions": PARTITIONS,
    "embedders": EMBEDDERS,
    "metrics": METRICS,
}


def kinds_of(path: str) -> list[str]:
    section = ROOT
    for key in path.split("."):
        inner = section.inner(key)
        assert inner is not None
        section = inner
    return section.kinds


@pytest.mark.parametrize("path", CHOICES)
def test_the_schema_takes_what_the_registry_has(path: str) -> None:
    assert kinds_of(path) == list(CHOICES[path])


@pytest.mark.parametrize("path", CHOICES)
def test_the_reference_names_what_the_registry_has(path: str) -> None:
    section = PAGE.read_text().partition(f"\n## `{path}`\n")[2].partition("\n## ")[0]
    kinds = section.partition("| kind | what it is |")[2].partition("| key |")[0]
    assert re.findall(r"^\| `(.*?)` \|", kinds, re.MULTILINE) == list(CHOICES[path])


@pytest.mark.parametrize("what", LISTED)
def test_raydr_list_names_what_the_registry_has(what: str) -> None:
    assert list(CATALOGUES[what]()) == list(LISTED[what])


def test_a_scenario_may_ask_for_every_metric_and_no_other() -> None:
    assert list(DEFAULT_METRICS) == list(METRICS)
    assert tiny_scenario(metrics=list(METRICS)).metrics == tuple(METRICS)
    with pytest.raises(ScenarioError, match="no metric 'npa_100'; did you mean 'npa_10'"):
        tiny_scenario(metrics=["npa_100"])


def test_the_report_writes_methods_as_their_papers_do_and_others_as_they_are() -> None:
    assert {kind: wording.method_name({"method": {"kind": kind}}) for kind in [*METHODS, "of-old"]} == {
        **{kind: method.title for kind, method in METHODS.items()},
        "of-old": "of-old",
    }


def names(kinds: Iterable[str]) -> str:
    return ", ".join(kinds)


@pytest.mark.parametrize("path", ["clients.partition", "method.embedder"])
def test_an_unknown_kind_is_told_all_that_there_are(path: str) -> None:
    content = tiny() | {"method": {"kind": "sense", "anchors": 5}}
    with pytest.raises(ScenarioError, match=f"must be one of {names(CHOICES[path])}"):
        read(content, {path: {"kind": "?"}})


def test_two_things_by_one_name_and_latecomers_are_refused() -> None:
    class One(Settings):
        kind: Literal["one"] = "one"

    class Other(Settings):
        kind: Literal["one"] = "one"

    class Late(Settings):
        kind: Literal["late"] = "late"

    class Nameless(Settings):
        kind: str

    room = Kinds("rules", "raydr.robust")  # any room whose modules add nothing to this registry
    assert room(One) is One
    assert room(One) is One  # as when a module is imported twice
    with pytest.raises(ExtensionError, match="two rules by the name of 'one'"):
        room(Other)
    with pytest.raises(TypeError, match="Nameless has no name"):
        room(Nameless)
    assert room.choice is One
    with pytest.raises(
        ExtensionError, match=r"'late' comes too late.*entry point of the group 'raydr\.rules'"
    ):
        room(Late)


EXTENSION = '''
"""A package of somebody else's: one definition of each sort."""

from typing import Literal

import numpy as np

from raydr.embedding import embedder
from raydr.metrics import metric
from raydr.partition import Dealing, Partition, partition
from raydr.settings import Settings


@embedder
class Still(Settings):
    """The first layout, as it is."""

    kind: Literal["still"] = "still"
    factor: float = 1.0

    def neighbors_needed(self, rows):
        return 1

    def embed(self, graph, initialization, *, seed, threads=1, progress=None):
        return self.factor * initialization


@partition
class Halves(Dealing):
    """The first half of the rows, and the second."""

    kind: Literal["halves"] = "halves"
    needs_count = False

    def deal(self, table, clients, seed):
        rows = len(table.rows)
        return Partition(np.repeat([0, 1], [rows // 2, rows - rows // 2]), ("first", "second"))

    def clients_in(self, table, count):
        return 2


@metric("reach", "Reach", "largest coordinate of the map", needs={"rows"})
def reach(examination):
    return float(np.abs(examination.embedding).max())
'''

RUN = """
import json, sys
from pathlib import Path
from raydr.front.cli import CATALOGUES
from raydr.scenarios.reading import read
from raydr.scenarios.runner import run

made = []
for factor in (1.0, 3.0):
    content = {
        "name": "extended",
        "data": {"source": "iris"},
        "clients": {"partition": {"kind": "halves"}},
        "method": {"kind": "sense", "anchors": 4, "embedder": {"kind": "still", "factor": factor}},
        "runtime": {"federation": "inline", "checkpoint_every": 0},
        "metrics": ["reach"],
    }
    folder = run(read(content), out=Path(sys.argv[1]) / str(factor))
    made.append(json.loads((folder / "metrics.json").read_text())["federated"]["reach"])
listed = {what: list(CATALOGUES[what]())[-1] for what in ("embedders", "partitions", "metrics")}
print(json.dumps({"reach": made, "listed": listed}))
"""


def test_one_file_of_another_package_adds_an_embedder_a_partition_and_a_metric(tmp_path: Path) -> None:
    package = tmp_path / "installed"
    about = package / "elsewhere-1.0.dist-info"
    about.mkdir(parents=True)
    (package / "elsewhere.py").write_text(EXTENSION)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    rooms = ("raydr.embedding", "raydr.partition", "raydr.metrics")
    (about / "entry_points.txt").write_text("".join(f"[{room}]\nmine = elsewhere\n" for room in rooms))
    finished = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(package)},
    )
    assert finished.returncode == 0, finished.stderr
    made = json.loads(finished.stdout.splitlines()[-1])
    assert made["listed"] == {"embedders": "still", "partitions": "halves", "metrics": "reach"}
    assert made["reach"][1] == pytest.approx(3.0 * made["reach"][0])
