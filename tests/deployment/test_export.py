"""An exported app names the sites and nothing of their files, and its instructions can be followed."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hospitals import NAMES, Hospitals, described, hospitals

from raydr.deployment.site_settings import read_site
from raydr.errors import OutputError, ScenarioError
from raydr.front import flower_app
from raydr.front.cli import status
from raydr.front.flower_export import deployed_scenario, export_flower
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read


@pytest.fixture
def at(tmp_path: Path) -> Hospitals:
    return hospitals(tmp_path / "sites")


def written(tmp_path: Path, at: Hospitals, **keys: Any) -> Path:
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump(described(deployed=False, at=at, **keys)))
    return file


def exported(tmp_path: Path, at: Hospitals, *arguments: str, **keys: Any) -> Path:
    app = tmp_path / "app"
    file = written(tmp_path, at, **keys)
    assert status(["export", str(file), "--runtime", "flower", "--out", str(app), *arguments]) == 0
    return app


def test_an_app_has_the_names_of_the_sites_and_no_path_of_theirs(at: Hospitals, tmp_path: Path) -> None:
    app = exported(tmp_path, at)
    files = {path.relative_to(app).as_posix(): path.read_text() for path in app.rglob("*") if path.is_file()}
    assert not any(str(at.folder) in text for text in files.values())
    assert not re.search(r"@[A-Z]+@", "".join(files.values()))
    scenario = read(app / "scenario.yaml")
    assert scenario.clients.deployed == NAMES
    assert files["site/scenario.yaml"] == files["scenario.yaml"]
    project = tomllib.loads(files["pyproject.toml"])
    flower = project["tool"]["flwr"]["app"]
    for component in flower["components"].values():
        module, _, name = component.partition(":")
        source = files[module.replace(".", "/") + ".py"]
        assert f"{name} = " in source
        (maker,) = re.findall(r"^from raydr\.front\.flower_app import (\w+)$", source, re.MULTILINE)
        assert callable(getattr(flower_app, maker))
    assert Path(flower["config"]["scenario"]) == app / "scenario.yaml"
    assert yaml.safe_load(files["nodes.yaml"]).keys() == set(NAMES)


def test_the_exported_run_has_the_map_of_the_simulation(at: Hospitals, tmp_path: Path) -> None:
    app = exported(tmp_path, at)
    for name in NAMES:
        (at.folder / name / "scenario.yaml").write_text((app / "site" / "scenario.yaml").read_text())
        at.change(name, scenario="scenario.yaml")
    deployed = run(read(app / "scenario.yaml"), out=tmp_path / "deployed", report=False, port=at.port())
    simulated = run(read(tmp_path / "scenario.yaml"), out=tmp_path / "simulated", report=False)
    arrays = [(folder / "model" / "arrays.npz").read_bytes() for folder in (deployed, simulated)]
    assert arrays[0] == arrays[1]


def test_a_data_owner_who_follows_the_instructions_sees_what_would_leave(
    at: Hospitals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = exported(tmp_path, at) / "site"
    (site / "patients.csv").write_text((at.folder / "north" / "patients.csv").read_text())
    monkeypatch.chdir(site)
    readme = (site / "README.md").read_text()
    (command,) = re.findall(r"^raydr (site dry-run .*)$", readme, re.MULTILINE)
    assert read_site("site.yaml").name == "north"
    assert status(shlex.split(command)) == 3  # datashield allows no distances of records
    assert "Refused by per_record: never" in capsys.readouterr().out
    (site / "site.yaml").write_text((site / "site.yaml").read_text().replace("datashield", "open"))
    assert status(shlex.split(command)) == 0


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"compare": ["central"]}, "leave compare out"),
        ({"metrics": ["trustworthiness"]}, "metrics names trustworthiness"),
        ({"clients": {"count": 3}, "data": {"source": "iris"}}, "name them in clients.deployed"),
    ],
)
def test_a_scenario_that_cannot_be_deployed_is_refused(
    keys: dict[str, Any], expected: str, at: Hospitals
) -> None:
    content = described(deployed=False, at=at) | keys
    with pytest.raises(ScenarioError, match=expected):
        deployed_scenario(content)  # type: ignore[arg-type]


def test_set_takes_out_what_a_deployed_run_refuses(at: Hospitals, tmp_path: Path) -> None:
    app = exported(tmp_path, at, "--set", "compare=[]", compare=["central"])
    assert read(app / "scenario.yaml").compare == ()


def test_a_folder_that_flower_does_not_allow_is_refused(at: Hospitals, tmp_path: Path) -> None:
    scenario = deployed_scenario(str(written(tmp_path, at)))
    with pytest.raises(OutputError, match="such as my-app"):
        export_flower(scenario, tmp_path / "my_app")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(OutputError, match="not empty"):
        export_flower(scenario, tmp_path / "full")
