"""Reading, checking, overriding and writing of scenarios."""

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
from raydr.scenarios.schema.document_store import DocumentStore
from raydr.scenarios.schema.problems import in_yaml, problems, truth_values, unwritable_text
from raydr.scenarios.schema.scenario import Scenario

SCENARIOS = DocumentStore(
    resources.files("raydr.scenarios") / "shipped", "scenario", "raydr run", SCENARIO, "name, data and method"
)


def shipped() -> dict[str, str]:
    """Return the names of shipped scenarios, each with the comment on its first line."""
    return SCENARIOS.names()


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
        If it is invalid; the message has the key, the reason and the nearest valid name of every problem.
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
    new = [name for name in checked.named_metrics if "new" in metric_named(name).needs]
    if new and checked.data.holdout is None:
        raise ScenarioError(
            f"{where} cannot be run: metrics names {new[0]}, which scores held-out rows, and there are none: set"
            " data.holdout, for example to 0.2, or leave the metric out."
        )
    return checked


def content_of(
    scenario: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the content of a scenario with overrides, unchecked; arguments as for :func:`read`.

    Raises
    ------
    ScenarioError
        If the scenario does not exist, is not YAML, or a key cannot be set.
    """
    content = copied(scenario) if isinstance(scenario, Mapping) else SCENARIOS.parse(scenario)
    for key, value in (overrides or {}).items():
        override(content, key, value)
    return content


def parse_override(assignment: str) -> tuple[str, Any]:
    """Return the key and value of ``--set KEY=VALUE``; the value is read as YAML.

    >>> parse_override("method.landmarks=200")
    ('method.landmarks', 200)
    """
    key, equals, value = assignment.partition("=")
    if not equals or not key.strip():
        raise ScenarioError(
            f"--set {assignment!r} does not have the form KEY=VALUE, such as method.landmarks=200."
        )
    try:
        return key.strip(), parse_yaml(value)
    except DocumentError as error:
        raise ScenarioError(f"--set {assignment!r}: the value is not YAML ({error}).") from None


def dump(scenario: Scenario) -> str:
    """Return the scenario as YAML; :func:`read` turns it into the same scenario, in any folder.

    The YAML has every key, also null: null can differ from the default, and defaults can change.
    """
    return dump_yaml(scenario.resolved().model_dump(mode="json"))


def dump_json(scenario: Scenario) -> str:
    """Return the scenario as JSON, which is faster to read."""
    return json.dumps(scenario.resolved().model_dump(mode="json"))


def dump_yaml(content: Any) -> str:
    """Return plain values as YAML that reads back unchanged, with any characters."""
    return yaml.dump(content, Dumper=_Quoting, sort_keys=False, allow_unicode=True)


class _Quoting(yaml.SafeDumper):
    """A safe dumper that writes text with line breaks or invisible characters in double quotes, as escapes.

    In single quotes, which PyYAML would choose, some Unicode line breaks read back as spaces.
    """

    def ignore_aliases(self, data: Any) -> bool:
        """Never write an alias, because raydr's readers refuse aliases: write repeated values twice."""
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Use double quotes if a character is not printable, and the dumper's choice otherwise."""
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if data.isprintable() else '"')


_Quoting.add_representer(str, _Quoting.represent_str)


def override(content: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a dotted key; create sections that do not exist yet.

    Raises
    ------
    ScenarioError
        If the key needs a section where the content has a value.
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
    """Return a copy of the content whose sections can be changed."""
    return {key: copied(value) if isinstance(value, Mapping) else value for key, value in content.items()}
