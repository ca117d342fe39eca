"""An exported app names the sites and nothing of their files, and its instructions can be followed."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hospitals import NAMES, Hospitals, described, hospitals

from raydr.deployment.site_settings import read_site
from raydr.errors import OutputError, ScenarioError
from raydr.front import flower_app
from raydr.front.cli import status
from raydr.front.flower_export import deployed_scenario, export_flower
from raydr.privacy.node_keys import read_nodes
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


def blocks(page: Path) -> list[str]:
    """The shell commands of a page of instructions, block by block."""
    return re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def in_shell(commands: str, folder: Path) -> None:
    subprocess.run(["bash", "-e"], input=commands, cwd=folder, text=True, check=True, capture_output=True)


def test_the_commands_for_keys_bind_each_site_to_its_key(tmp_path: Path) -> None:
    names = ["north", 'Zürich: "Süd" $(touch x)', "it's/here"]
    content = {
        "name": "odd",
        "data": {"scale": "none"},
        "clients": {"deployed": names},
        "method": {"kind": "fed-pca"},
    }
    app = export_flower(deployed_scenario(content), tmp_path / "app").folder  # type: ignore[arg-type]
    files = re.findall(
        r"keys/[^`]*", next(line for line in (app / "README.md").read_text().splitlines() if "`keys/" in line)
    )
    keys = {}
    for page in (app, app / "site"):
        (page / "keys").mkdir()
        for name, file in zip(names, files, strict=True):
            key = keys.setdefault(name, ec.generate_private_key(ec.SECP384R1()).public_key())
            (page / file).write_bytes(
                key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b" a comment\n"
            )
        (commands,) = [block for block in blocks(page / "README.md") if "nodes.yaml" in block]
        in_shell("flwr() { :; }\n" + commands.replace(". .venv/bin/activate\n", ""), page)
        found = read_nodes(page / "nodes.yaml")
        assert found == {
            name: key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            for name, key in keys.items()
        }
    assert not [*app.rglob("x")]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the instructions use openssl")
def test_the_commands_for_certificates_make_one_for_the_server_and_its_own_processes(
    at: Hospitals, tmp_path: Path
) -> None:
    app = exported(tmp_path, at)
    (commands,) = [block for block in blocks(app / "README.md") if "openssl" in block]
    in_shell(commands.replace("HOST", "hub.example.org"), app)
    authority, server = (
        x509.load_pem_x509_certificate((app / name).read_bytes()) for name in ("ca.crt", "server.pem")
    )
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["hub.example.org"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert (app / "site" / "ca.crt").read_bytes() == (app / "ca.crt").read_bytes()


def test_extras_are_those_of_the_method_and_for_the_server_those_of_the_embedder_too(tmp_path: Path) -> None:
    def installed(method: dict[str, Any], name: str) -> list[str]:
        content = {
            "name": "some",
            "data": {"scale": "none"},
            "clients": {"deployed": NAMES},
            "method": method,
        }
        app = export_flower(deployed_scenario(content), tmp_path / name).folder  # type: ignore[arg-type]
        return [
            re.findall(r"whl\[(.*)\]", (page / "README.md").read_text())[0] for page in (app, app / "site")
        ]

    assert installed({"kind": "fedne"}, "fedne") == ["flower,torch", "flower,torch"]
    assert installed({"kind": "sense", "embedder": {"kind": "phate"}}, "sense") == ["flower,phate", "flower"]


def test_no_file_of_an_earlier_run_goes_to_the_nodes(at: Hospitals, tmp_path: Path) -> None:
    app = exported(tmp_path, at)
    build = pytest.importorskip("flwr.cli.build", reason="runs over Flower need the extra flower")
    (app / "run").mkdir()
    (app / "run" / "ledger.json").write_text("[]")
    found = build.build_fab_from_disk(app)
    with zipfile.ZipFile(io.BytesIO(found)) as fab:
        names = {name for name in fab.namelist() if not name.startswith(".info")}
    assert names == {"pyproject.toml", "raydr_app/__init__.py", "raydr_app/client.py", "raydr_app/server.py"}


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
