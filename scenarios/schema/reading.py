"""From a scenario's text to a scenario, or to one paragraph on what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from raydr.documents import DocumentError, parse_yaml
from raydr.errors import ScenarioError
from raydr.metrics import metric_named
from raydr.runfolder.records import SCENARIO
from raydr.scenarios.schema.document_store import Shelf
from raydr.scenarios.schema.problems import in_yaml, problems, truth_values, unwritable_text
from raydr.scenarios.schema.scenario import Scenario

SHELF = Shelf(
    resources.files("raydr.scenarios") / "shipped", "scenario", "raydr run", SCENARIO, "name, data and method"
)


def shipped() -> dict[str, str]:
    """Names of the scenarios that come with raydr, each with the comment on its first line."""
    return SHELF.names()


def read(scenario: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Scenario:
    """Read and check a scenario.

    Parameters
    ----------
    scenario : str, Path or mapping
        A YAML file, the name of a shipped scenario, or the content itself.
    overrides : mapping, optional
        Values by dotted key, such as ``{"method.landmarks": 200}``.

    Raises
    ------
    ScenarioError
        With every problem's key path, reason and nearest valid name.
    """
    where = "the scenario" if isinstance(scenario, Mapping) else str(scenario)
    content = content_of(scenario, overrides)
    try:
        checked = Scenario.model_validate(content)
        found = truth_values(content, checked) + unwritable_text(content)
    except ValidationError as error:
        found = problems(error, content)
    if found:
        raise ScenarioError(f"{where} cannot be run: {'; '.join(found)}.")
    if checked.metrics != "default":
        new = [name for name in checked.metrics if "new" in metric_named(name).needs]
        if new and checked.data.holdout is None:
            raise ScenarioError(
                f"{where} cannot be run: metrics names {new[0]}, which judges rows that were held out, and there are"
                " none: set data.holdout, say to 0.2, or leave it out."
            )
    return checked


def content_of(
    scenario: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what a scenario says, unchecked, with overrides; arguments are as for :func:`read`.

    Raises
    ------
    ScenarioError
        If there is no such scenario, it is not YAML, or a key cannot be set.
    """
    content = copied(scenario) if isinstance(scenario, Mapping) else SHELF.parse(scenario)
    for key, value in (overrides or {}).items():
        override(content, key, value)
    return content


def parse_override(assignment: str) -> tuple[str, Any]:
    """Key and value of ``--set KEY=VALUE``; the value is read as YAML.

    >>> parse_override("method.landmarks=200")
    ('method.landmarks', 200)
    """
    key, equals, value = assignment.partition("=")
    if not equals or not key.strip():
        raise ScenarioError(
            f"--set {assignment!r} is not of the form KEY=VALUE, such as method.landmarks=200."
        )
    try:
        return key.strip(), parse_yaml(value)
    except DocumentError as error:
        raise ScenarioError(f"--set {assignment!r}: the value is not YAML ({error}).") from None


def dump(scenario: Scenario) -> str:
    """Return the scenario as YAML that :func:`read` makes the same scenario of, in whatever folder.

    Every key is written, null too: where null is not the default it says something, and what is the default today
    may be none tomorrow.
    """
    return dump_yaml(scenario.resolved().model_dump(mode="json"))


def dump_json(scenario: Scenario) -> str:
    """Return the same as JSON, which is quicker to read."""
    return json.dumps(scenario.resolved().model_dump(mode="json"))


def dump_yaml(content: Any) -> str:
    """Return plain values as YAML that is read back as they are, whatever letters they hold."""
    return yaml.dump(content, Dumper=_Quoting, sort_keys=False, allow_unicode=True)


class _Quoting(yaml.SafeDumper):
    """A safe dumper that writes text with line breaks or invisible letters between double quotes, as escapes.

    Between single quotes, which PyYAML would choose, some line breaks of Unicode are read back as spaces.
    """

    def ignore_aliases(self, data: Any) -> bool:
        """Never write an alias, which no reader here takes: what stands twice is written twice."""
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Double quotes where a letter does not print, the dumper's own choice elsewhere."""
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if data.isprintable() else '"')


_Quoting.add_representer(str, _Quoting.represent_str)


def override(content: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a dotted key, sections that are not there yet included.

    Raises
    ------
    ScenarioError
        If a value stands where the key has a section.
    """
    *parents, last = key.split(".")
    inner: Any = content
    for depth, parent in enumerate(parents):
        inner = inner.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ScenarioError(
                f"{key} cannot be set: {'.'.join(parents[: depth + 1])} is {in_yaml(inner)}, not a section of keys."
            )
    inner[last] = copied(value) if isinstance(value, Mapping) else value


def copied(content: Mapping[str, Any]) -> dict[str, Any]:
    """Sections one can change, with the values of these."""
    return {key: copied(value) if isinstance(value, Mapping) else value for key, value in content.items()}
