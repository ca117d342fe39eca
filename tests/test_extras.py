"""Optional packages: an error names a missing one before anything runs, and other methods do not need it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from places import ROOT, SUPPORT

import raydr
from raydr.errors import DataError, ScenarioError
from raydr.extras import EXTRAS, MissingPackageError, imported, lacking
from raydr.methods import METHODS

ENCODERS = {"fedne", "fedavg-ne", "fedprox-ne", "local-ne", "global-ne", "landmark-ne"}

WITHOUT_TORCH = """
import sys
from importlib.machinery import PathFinder


class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == "torch" else super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""

EVERY_METHOD = """
import numpy as np
import raydr
from raydr.errors import ScenarioError
from raydr.front.estimators import estimator_names
from quick_estimators import QUICK
import raydr.report.picture

raydr.report.picture.png = lambda figure, **options: b""  # pictures take most of the time

X = np.random.default_rng(0).normal(size=(60, 5))
np.save(sys.argv[1], X[:12] + 0.5)
for name, kind in estimator_names().items():
    more = {"reference_path": sys.argv[1]} if name == "DSNE" else {}
    try:
        getattr(raydr, name)(**QUICK[name], metrics=(), **more).fit(X)
    except ScenarioError as error:
        print(kind, "refused:", error)
    else:
        print(kind, "maps")
assert "torch" not in sys.modules
"""


def finished(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + program, *arguments],
        capture_output=True,
        text=True,
        cwd=SUPPORT,
        check=False,
    )


def test_only_encoders_need_torch(tmp_path: Path) -> None:
    done = finished(EVERY_METHOD, str(tmp_path / "references.npy"))
    assert not done.returncode, done.stderr
    outcomes = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert set(outcomes) == set(METHODS)
    assert {kind for kind, outcome in outcomes.items() if outcome != "maps"} == ENCODERS
    for kind in ENCODERS:
        assert outcomes[kind] == (
            f"refused: method.kind '{kind}' needs the package torch, which is not installed:"
            " `pip install 'raydr[torch]'`, or choose another kind."
        )


@pytest.fixture(name="without_torch")
def _without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.util import find_spec

    monkeypatch.setattr("raydr.extras.find_spec", lambda name: None if name == "torch" else find_spec(name))


FEDNE = {
    "name": "encoder",
    "data": {"source": "iris"},
    "clients": {"count": 3},
    "method": {"kind": "fedne", "rounds": 1, "hidden": [4]},
    "runtime": {"federation": "inline"},
    "metrics": [],
}


@pytest.mark.parametrize("way", ["run", "check", "sweep"])
def test_a_command_names_the_missing_package_before_it_runs(
    way: str,
    without_torch: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import yaml

    from raydr.front.cli import status

    monkeypatch.chdir(tmp_path)
    swept = {"name": "swept", "base": FEDNE, "space": {"method.kind": ["fedavg-ne", "fedne"]}}
    Path("asked.yaml").write_text(yaml.safe_dump(swept if way == "sweep" else FEDNE))
    assert status([way, "asked.yaml"]) == 2
    assert "pip install 'raydr[torch]'" in capsys.readouterr().err.replace("\n", " ")
    assert [path.name for path in tmp_path.iterdir()] == ["asked.yaml"]


def test_a_run_folder_can_be_read_without_the_packages_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    np.save(tmp_path / "new.npy", np.zeros((3, 4)))
    run = raydr.run(FEDNE, out=tmp_path / "run")
    _without_torch.__wrapped__(monkeypatch)
    from raydr.report import write_report
    from raydr.scenarios.schema.reading import read

    assert read(run.folder / "scenario.yaml").method.kind == "fedne"
    assert write_report(run.folder).is_file()
    with pytest.raises(ScenarioError, match=r"method\.kind 'fedne' needs the package torch"):
        raydr.transform(run.folder, tmp_path / "new.npy", out=tmp_path / "placed.csv")
    with pytest.raises(ScenarioError, match=r"method\.kind 'fedne' needs the package torch"):
        raydr.audit(run.folder)


def test_the_extras_match_the_package_and_all_includes_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    # Flower allows few versions of fastapi and starlette, which not every environment has.
    for_users = set(extras) - {"all", "dev", "docs", "flower", "mutation"}
    assert {*EXTRAS.values()} == for_users - {"cluster"} | {"flower"}
    for package, extra in EXTRAS.items():
        assert any(wanted.startswith(package) for wanted in extras[extra])
    assert extras["all"] == [f"raydr[{','.join(sorted(for_users))}]"]
    assert "raydr[all,docs,flower]" in extras["dev"]
    assert not any(wanted.startswith(tuple(EXTRAS)) for wanted in project["dependencies"])


def test_a_missing_package_is_named() -> None:
    assert imported("json", "A document") is sys.modules["json"]
    assert lacking("json", "A document") is None
    with pytest.raises(MissingPackageError, match="A document needs the package no_such_thing"):
        imported("no_such_thing", "A document")


def test_a_missing_flower_is_named_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raydr.extras.find_spec", lambda name: None)
    assert lacking("flwr", "A run over Flower") == (
        "A run over Flower needs the package flwr, which is not installed: `pip install 'raydr[flower]'`"
    )


def test_a_file_of_single_cells_names_the_package_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raydr.extras.find_spec", lambda name: None)
    (tmp_path / "cells.h5ad").write_bytes(b"any")
    scenario = FEDNE | {"data": {"path": str(tmp_path / "cells.h5ad")}, "method": {"kind": "fed-pca"}}
    with pytest.raises(
        DataError, match=r"Reading cells\.h5ad needs .* `pip install 'raydr\[anndata\]'`, or save"
    ):
        raydr.run(scenario, out=tmp_path / "run")
