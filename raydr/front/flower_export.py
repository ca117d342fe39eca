"""A Flower app of a scenario whose rows are at the sites: ``raydr export``."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from raydr.errors import OutputError, ScenarioError
from raydr.extras import needed_packages
from raydr.scenarios.schema.reading import content_of, dump, read
from raydr.scenarios.schema.scenario import Scenario

PACKAGE = "raydr_app"
"""Python package of the app, which Flower sends to the nodes."""
_LONGEST = 32
"""Most characters in the name of a Flower app."""

_SERVER = '''"""The server of the run: Flower starts it with the paths in [tool.flwr.app.config]."""

from raydr.front.flower_app import app_of_server

app = app_of_server()
'''
_CLIENT = '''"""A site's node: it reads the site's own site.yaml, which the server does not know."""

from raydr.front.flower_app import app_of_site

app = app_of_site()
'''


@dataclass(frozen=True)
class ExportedApp:
    """A Flower app in a folder.

    Attributes
    ----------
    folder : Path
        The app.
    scenario : Scenario
        The scenario of the run, whose ``clients.deployed`` names the sites.
    """

    folder: Path
    scenario: Scenario

    @property
    def files(self) -> dict[str, str]:
        """The content of each file, by its path in the folder."""
        sites = self.scenario.clients.deployed
        nodes = "# The content of each site's node.key.pub\n" + "".join(
            f"{_quoted(site)}: ecdsa-sha2-nistp384 ...\n" for site in sites
        )
        return {
            "pyproject.toml": self._project(),
            "README.md": self._filled("server.md"),
            "scenario.yaml": dump(self.scenario),
            "nodes.yaml": nodes,
            f"{PACKAGE}/__init__.py": f'"""The run {self.scenario.name} over Flower."""\n',
            f"{PACKAGE}/server.py": _SERVER,
            f"{PACKAGE}/client.py": _CLIENT,
            "site/README.md": self._filled("site.md"),
            "site/site.yaml": self._filled("site.yaml"),
            "site/scenario.yaml": dump(self.scenario),
            "site/nodes.yaml": nodes,
        }

    def _project(self) -> str:
        place = self.folder.absolute()
        return f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = {_quoted(_allowed(self.scenario.name))}
version = "1.0.0"
description = "A map of rows that stay at their sites"
license = {{ text = "Apache-2.0" }}
dependencies = ["raydr[flower]=={version("raydr")}"]

[tool.hatch.build.targets.wheel]
packages = ["{PACKAGE}"]

[tool.flwr.app]
publisher = "raydr"
fab-include = ["{PACKAGE}/*.py"]    # all that goes to the nodes: no file of an earlier run

[tool.flwr.app.components]
serverapp = "{PACKAGE}.server:app"
clientapp = "{PACKAGE}.client:app"

# Paths at the server. Change one with: flwr run . --run-config 'out="/data/runs/second"'
# resume=true goes on from the last checkpoint of an interrupted run with the same out.
[tool.flwr.app.config]
scenario = {_quoted(str(place / "scenario.yaml"))}
nodes = {_quoted(str(place / "nodes.yaml"))}
out = {_quoted(str(place / "run"))}
resume = false
"""

    def _filled(self, template: str) -> str:
        sites = self.scenario.clients.deployed
        files = [f"keys/{number}-{_allowed(site)}.pub" for number, site in enumerate(sites, 1)]
        text = (Path(__file__).parent / "exported" / template).read_text(encoding="utf-8")
        for name, value in {
            "NAME": self.scenario.name,
            "METHOD": self.scenario.method.kind,
            "VERSION": version("raydr"),
            "SITES": ", ".join(sites),
            "FIRST": sites[0],
            "COLUMNS": _columns(self.scenario),
            "SERVER_EXTRAS": ",".join(sorted({"flower", *needed_packages(self.scenario.method)})),
            "SITE_EXTRAS": ",".join(sorted({"flower", *filter(None, [self.scenario.method.package])})),
            "KEY_FILES": ", ".join(f"`{file}`" for file in files),
            "KEYS": "\n".join(
                f"printf '%s: %s\\n' {shlex.quote(_quoted(site))} \"$(cat {file})\" >> nodes.yaml"
                for site, file in zip(sites, files, strict=True)
            ),
            "REGISTER": "\n".join(f"flwr supernode register {file}" for file in files),
        }.items():
            text = text.replace(f"@{name}@", value)
        return text


def _quoted(text: str) -> str:
    """Return text as a string of TOML and YAML."""
    return json.dumps(text)


def _allowed(name: str) -> str:
    """Return a name that Flower allows for an app: letters, digits and hyphens, at most 32.

    >>> _allowed("2024_heart.disease")
    'run-2024-heart-disease'
    """
    letters = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
    return (letters if letters[:1].isalpha() else f"run-{letters}")[:_LONGEST].rstrip("-")


def _columns(scenario: Scenario) -> str:
    """Return a sentence on the columns that the scenario uses."""
    data = scenario.data
    used = [] if data.features is None else [f"to map: {', '.join(data.features)}"]
    used += [f"not mapped: {', '.join(data.exclude)}"] if data.exclude else []
    used += [
        f"{what}: {column}"
        for what, column in (("label", data.label), ("time", data.time), ("identity", data.id))
        if column is not None
    ]
    return "; ".join(used) or "all columns of the file are mapped"


def deployed_scenario(scenario: str, overrides: Mapping[str, Any] | None = None) -> Scenario:
    """Return a scenario with the names of its sites in place of their files.

    Raises
    ------
    ScenarioError
        If it names no sites, or asks for something that only a simulation has; the message has the remedy.
    """
    content = content_of(scenario, overrides)
    clients = content.get("clients")
    sites = clients.get("sites") if isinstance(clients, Mapping) else None
    if isinstance(clients, Mapping) and sites:
        simulated = read(content)  # its own errors first
        names = [site.name or Path(site.path).stem for site in simulated.clients.sites]
        kept = {
            key: value
            for key, value in clients.items()
            if key not in ("sites", "count", "partition", "deployed", "policy")
        }
        content["clients"] = kept | {"deployed": names}
    found = read(content)
    if not found.clients.deployed:
        raise ScenarioError(
            f"{scenario} deals the rows of one table, and a deployed run needs sites with their own files: name them in"
            " clients.deployed, or give their files in clients.sites."
        )
    return found


def export_flower(scenario: Scenario, out: Path) -> ExportedApp:
    """Write a Flower app to a new or empty folder.

    Raises
    ------
    OutputError
        If the folder exists and is not empty, has a name that Flower does not allow, or cannot be written.
    """
    app = ExportedApp(out.expanduser(), scenario)
    name = app.folder.absolute().name
    if _allowed(name) != name:
        raise OutputError(
            f"Flower allows no app in a folder named {name}: pass an --out whose name has letters, digits and hyphens,"
            f" begins with a letter and has at most {_LONGEST}, such as {_allowed(name)}."
        )
    try:
        if app.folder.exists() and any(app.folder.iterdir()):
            raise OutputError(f"{out} exists and is not empty. Pass another --out, or move it away.")
        for name, text in app.files.items():
            file = app.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"{out} cannot be written ({error.strerror or error}): pass another --out."
        ) from error
    return app
