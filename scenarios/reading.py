"""From a scenario's text to a scenario, or to one paragraph on what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from raydr.documents import MEGABYTE, DocumentError, parse_yaml, read_limited
from raydr.errors import ScenarioError
from raydr.metrics import metric_named
from raydr.records import SCENARIO, is_incomplete
from raydr.scenarios.problems import in_yaml, nearest, problems, truth_values, unwritable_text
from raydr.scenarios.schema import Scenario

LARGEST = 4 * MEGABYTE
"""Of a scenario: forty thousand sites."""
_SHIPPED = resources.files("raydr.scenarios") / "shipped"


def shipped() -> dict[str, str]:
    """Names of the scenarios that come with raydr, each with the comment on its first line."""
    files = sorted(
        (entry for entry in _SHIPPED.iterdir() if entry.name.endswith(".yaml")), key=lambda entry: entry.name
    )
    return {
        entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        for entry in files
    }


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
    if isinstance(scenario, Mapping):
        where, content = "the scenario", _copy(scenario)
    else:
        where, content = _parse(scenario)
    for key, value in (overrides or {}).items():
        _override(content, key, value)
    try:
        checked = Scenario.model_validate(content)
        found = truth_values(content, checked) + unwritable_text(content)
    except ValidationError as error:
        found = problems(error, content)
    if found:
        raise ScenarioError(f"{where} cannot be run: {'; '.join(found)}.")
    if checked.metrics != "default":
        for metric in checked.metrics:
            metric_named(metric)
    return checked


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
    content = scenario.resolved().model_dump(mode="json")
    return yaml.dump(content, Dumper=_Quoting, sort_keys=False, allow_unicode=True)


class _Quoting(yaml.SafeDumper):
    """A safe dumper that writes text with line breaks or invisible letters between double quotes, as escapes.

    Between single quotes, which PyYAML would choose, some line breaks of Unicode are read back as spaces.
    """

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Double quotes where a letter does not print, the dumper's own choice elsewhere."""
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if data.isprintable() else '"')


_Quoting.add_representer(str, _Quoting.represent_str)


def _parse(scenario: str | Path) -> tuple[str, dict[str, Any]]:
    text = _text(scenario)
    try:
        content = parse_yaml(text)
    except DocumentError as error:
        raise ScenarioError(f"{scenario} is not valid YAML: {error}.") from None
    if not isinstance(content, dict):
        raise ScenarioError(
            f"{scenario} holds {_form(content)}, not a scenario: it must give keys such as name, data and method."
        )
    return str(scenario), content


def _text(scenario: str | Path) -> str:
    path = Path(scenario).expanduser()
    names = list(shipped())
    if str(scenario) in names and not path.is_file():
        return (_SHIPPED / f"{scenario}.yaml").read_text(encoding="utf-8")
    try:
        return read_limited(path, LARGEST).decode("utf-8")
    except FileNotFoundError:
        beside = [entry.name for entry in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
        raise ScenarioError(
            f"There is no scenario {str(scenario)!r}{nearest(path.name, [*names, *beside])}: give a YAML file,"
            f" or one of the scenarios that come with raydr, {', '.join(names)}."
        ) from None
    except IsADirectoryError:
        raise ScenarioError(_of_folder(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ScenarioError(
            f"The scenario {scenario} cannot be read ({reason}): give a YAML file, or one of the scenarios that"
            f" come with raydr, {', '.join(names)}."
        ) from None


def _of_folder(path: Path) -> str:
    """What to run instead of a folder."""
    if not (path / SCENARIO).is_file():
        return f"{path} is a folder, and none that a run wrote: give a YAML file, or the name of a scenario."
    if is_incomplete(path):
        return f"{path} is the folder of an interrupted run: `raydr run {path} --resume` goes on with it."
    return f"{path} is the folder of a run that is whole: `raydr run {path / SCENARIO}` repeats that run."


def _override(content: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    inner: Any = content
    for depth, parent in enumerate(parents):
        inner = inner.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ScenarioError(
                f"{key} cannot be set: {'.'.join(parents[: depth + 1])} is {in_yaml(inner)}, not a section of keys."
            )
    inner[last] = _copy(value) if isinstance(value, Mapping) else value


def _copy(content: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in content.items()}


def _form(content: Any) -> str:
    return "nothing" if content is None else "a list" if isinstance(content, list) else "a single value"
