"""From a scenario's text to a scenario, or to one paragraph on what is wrong with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from raydr.errors import ScenarioError
from raydr.metrics import metric_named
from scenarios.schema import Scenario

_SHIPPED = resources.files("scenarios") / "shipped"


def shipped() -> dict[str, str]:
    """Names of the scenarios that come with raydr, each with the comment on its first line."""
    files = sorted(
        (entry for entry in _SHIPPED.iterdir() if entry.name.endswith(".yaml")), key=lambda entry: entry.name
    )
    return {
        entry.name.removesuffix(".yaml"): entry.read_text().splitlines()[0].lstrip("# ") for entry in files
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
    except ValidationError as error:
        problems = "; ".join(_problem(details) for details in _distinct(error))
        raise ScenarioError(f"{where} cannot be run: {problems}.") from None
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
        return key.strip(), yaml.load(value, _UniqueKeys)
    except yaml.YAMLError as error:
        raise ScenarioError(f"--set {assignment!r}: the value is not YAML ({_first_line(error)}).") from None


def dump(scenario: Scenario) -> str:
    """Return the scenario as YAML that :func:`read` accepts and that repeats the run."""
    content = scenario.model_dump(mode="json", exclude_none=True)
    if scenario.data.path is not None:
        content["data"]["path"] = str(Path(scenario.data.path).expanduser().resolve())
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


class _UniqueKeys(yaml.SafeLoader):
    """A safe loader that refuses a key given twice, of which YAML's reader would drop the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse repeats, then construct."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands there twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _parse(scenario: str | Path) -> tuple[str, dict[str, Any]]:
    path = Path(scenario).expanduser()
    names = list(shipped())
    if str(scenario) in names and not path.is_file():
        text = (_SHIPPED / f"{scenario}.yaml").read_text()
    else:
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            beside = [entry.name for entry in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ScenarioError(
                f"There is no scenario {str(scenario)!r}: it is neither a file that can be read ({reason})"
                f" nor one of the shipped scenarios{_nearest(str(scenario), [*names, *beside])}."
                f" Shipped: {', '.join(names)}."
            ) from None
    try:
        content = yaml.load(text, _UniqueKeys)
    except yaml.YAMLError as error:
        raise ScenarioError(f"{scenario} is not valid YAML: {_first_line(error)}.") from None
    if not isinstance(content, dict):
        raise ScenarioError(
            f"{scenario} holds {_kind(content)}, not a scenario: it must give keys such as name, data and method."
        )
    return str(scenario), content


def _override(content: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    inner: Any = content
    for depth, parent in enumerate(parents):
        inner = inner.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ScenarioError(
                f"{key!r} cannot be set: {'.'.join(parents[: depth + 1])} is {_kind(inner)}, not a section."
            )
    inner[last] = value


def _copy(content: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in content.items()}


def _distinct(error: ValidationError) -> Iterable[Any]:
    """Problems by place: a value that fits no member of a union is one problem, not one per member."""
    problems: dict[tuple[str, ...], Any] = {}
    for details in error.errors(include_url=False):
        problems.setdefault(_path(details["loc"]), details)
    return problems.values()


def _problem(details: Mapping[str, Any]) -> str:
    path = _path(details["loc"])
    key = ".".join(path)
    given = details["input"]
    match details["type"]:
        case "extra_forbidden":
            valid = _keys_at(path[:-1])
            return f"{key} is not a key{_nearest(path[-1], valid)} (there are {', '.join(valid)})"
        case "missing":
            return f"{key} is missing"
        case "union_tag_invalid" | "union_tag_not_found":
            kinds = [kind.strip("' ") for kind in details.get("ctx", {}).get("expected_tags", "").split(",")]
            kinds = [kind for kind in kinds if kind] or _kinds_at(path)
            kind = given.get("kind") if isinstance(given, Mapping) else given
            if kind is None:
                return f"{key}.kind is missing (one of {', '.join(kinds)})"
            return f"{key}.kind is {kind!r}{_nearest(str(kind), kinds)} (one of {', '.join(kinds)})"
        case "value_error":
            prefix = f"{key}: " if key else ""
            return prefix + str(details["msg"]).removeprefix("Value error, ")
    reason = details["msg"][0].lower() + details["msg"][1:]
    return f"{key} is {given!r}, but {reason}"


def _path(location: Sequence[int | str]) -> tuple[str, ...]:
    """Keys of a location, without the union tags that pydantic puts between them."""
    keys: list[str] = []
    model: type[BaseModel] | None = Scenario
    choices: list[type[BaseModel]] = []
    for part in location:
        tagged = [choice for choice in choices if _kind_of(choice) == part]
        if tagged:
            model, choices = tagged[0], []
            continue
        if isinstance(part, str) and model is None and not choices:
            continue  # a member of a union of plain types: its name is pydantic's, not the user's
        keys.append(str(part))
        field = model.model_fields.get(str(part)) if model else None
        choices = _models(field.annotation) if field else []
        model = choices[0] if len(choices) == 1 else None
    return tuple(keys)


def _keys_at(path: Sequence[str]) -> list[str]:
    """Keys that the section at ``path`` may have, of whatever kind the section is."""
    models: list[type[BaseModel]] = [Scenario]
    for part in path:
        models = [
            choice
            for model in models
            if part in model.model_fields
            for choice in _models(model.model_fields[part].annotation)
        ]
    return list(dict.fromkeys(name for model in models for name in model.model_fields))


def _kinds_at(path: Sequence[str]) -> list[str]:
    *parents, last = path
    model: type[BaseModel] = Scenario
    for part in parents:
        model = _models(model.model_fields[part].annotation)[0]
    return [str(_kind_of(choice)) for choice in _models(model.model_fields[last].annotation)]


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]


def _kind_of(model: type[BaseModel]) -> str | None:
    field = model.model_fields.get("kind")
    return str(field.default) if field else None


def _nearest(name: str, valid: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def _first_line(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem}, line {error.problem_mark.line + 1}"
    return str(error).splitlines()[0]


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
