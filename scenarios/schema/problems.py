"""Messages for an invalid scenario: the key, its value, what is expected, and the nearest valid name."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from raydr.errors import did_you_mean
from raydr.scenarios.schema.scenario import Scenario
from raydr.scenarios.schema.sections import LONGEST_NAME, NAME_PATTERN

LONGEST = 60
"""Maximum length of a quoted value, in characters."""


@dataclass(frozen=True)
class Section:
    """A section of a scenario.

    Attributes
    ----------
    path : tuple of str
        Keys that lead to it.
    models : tuple of type
        Pydantic models that may validate it; more than one if it has kinds.
    noun : str
        Name of the whole document, such as "a scenario".
    free : bool
        Whether users choose the keys. Each key then has a section of these models, or a list of them.
    """

    path: tuple[str, ...]
    models: tuple[type[BaseModel], ...]
    noun: str = "a scenario"
    free: bool = False

    def chosen(self, content: Any) -> Section:
        """Return the section with only the model that the content's ``kind`` names, if it names one."""
        kind = content.get("kind") if isinstance(content, Mapping) else None
        named = tuple(model for model in self.models if kind_of(model) == kind)
        return replace(self, models=named or self.models)

    @property
    def keys(self) -> list[str]:
        """Valid keys of all kinds of the section."""
        return list(dict.fromkeys(key for model in self.models for key in model.model_fields))

    @property
    def kinds(self) -> list[str]:
        """Values of ``kind``; empty if the section has no kinds."""
        return [kind for model in self.models if (kind := kind_of(model)) is not None]

    def inner(self, key: str) -> Section | None:
        """Return the section under a key; None for a plain value."""
        if self.free:
            return Section((*self.path, key), self.models)
        annotations = [
            model.model_fields[key].annotation for model in self.models if key in model.model_fields
        ]
        models = tuple(dict.fromkeys(inner for annotation in annotations for inner in _models(annotation)))
        free = any(_is_mapping(annotation) for annotation in annotations)
        return Section((*self.path, key), models, free=free) if models else None

    def describe(self, key: str) -> str | None:
        """Return the description of a key; None if it has none."""
        return next(
            (model.model_fields[key].description for model in self.models if key in model.model_fields), None
        )


ROOT = Section((), (Scenario,))
_MEANT = {
    "supervised": "data.target_weight",
    "target_metric": "data.target_weight",
    "random_state": "seed",
    "site": "clients.partition of kind by-column",
}
"""Names that other packages, and options of raydr's commands, have for keys of a scenario."""


def problems(error: ValidationError, content: Mapping[str, Any], root: Section = ROOT) -> list[str]:
    """Return one clause for each key where pydantic found an error.

    Parameters
    ----------
    error : pydantic.ValidationError
        What validating ``content`` raised.
    content : mapping
        The document before validation.
    root : Section
        The model that validated it: a scenario, or another document with one model.
    """
    places: dict[tuple[str, ...], list[Any]] = {}
    for details in error.errors(include_url=False):
        places.setdefault(key_path(details["loc"], root), []).append(details)
    return [_problem(path, found, content, root) for path, found in places.items()]


def truth_values(content: Mapping[str, Any], checked: BaseModel, path: tuple[str, ...] = ()) -> list[str]:
    """Return one clause for each true, false, yes or no in place of a number: pydantic takes them as 1 and 0."""
    found = []
    for key, given in content.items():
        taken = getattr(checked, key)
        if isinstance(given, Mapping) and isinstance(taken, BaseModel):
            found += truth_values(given, taken, (*path, key))
        elif isinstance(given, bool) and isinstance(taken, int | float) and not isinstance(taken, bool):
            found.append(f"{'.'.join((*path, key))} is {in_yaml(given)}: it must be a number")
    return found


def unwritable_text(content: Any, path: tuple[str, ...] = ()) -> list[str]:
    """Return one clause for each text with a character that files or file names cannot hold: surrogates, NUL."""
    if isinstance(content, str):
        odd = next((letter for letter in content if letter == "\0" or "\ud800" <= letter <= "\udfff"), None)
        return [] if odd is None else [f"{'.'.join(path)} contains {odd!a}, which is not a valid character"]
    if isinstance(content, Mapping):
        items: Iterable[tuple[Any, Any]] = content.items()
    else:
        items = enumerate(content) if isinstance(content, list | tuple) else ()
    return [clause for key, value in items for clause in unwritable_text(value, (*path, str(key)))]


def fitting_name(name: str) -> str:
    """Return `` (did you mean NAME?)`` with invalid characters of the name replaced, or an empty string.

    >>> fitting_name("Größe / 2")
    ' (did you mean Groe-2?)'
    """
    plain = unicodedata.normalize("NFKD", name[:LONGEST_NAME]).encode("ascii", "ignore").decode()
    fitting = re.sub(r"[^A-Za-z0-9.]+", "-", plain).strip("-.")
    return f" (did you mean {fitting}?)" if re.match(NAME_PATTERN, fitting) else ""


def in_yaml(value: Any) -> str:
    """Return a value as YAML; long values are cut."""
    try:
        text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else repr(value)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def key_path(location: Sequence[int | str], root: Section = ROOT) -> tuple[str, ...]:
    """Return the keys of pydantic's location, without the union tags between them."""
    keys: list[str] = []
    section: Section | None = root
    tags: list[str] = []
    for part in location:
        if isinstance(part, int):
            keys.append(str(part))  # an item of a list; all items have the same model
        elif part in tags:
            tags = []
        elif section is not None and part != "[key]":
            keys.append(part)
            section = section.inner(part)
            tags = section.kinds if section and not section.free else []
    return tuple(keys)


def kind_of(model: type[BaseModel]) -> str | None:
    """Return the model's value of ``kind``; None if it has no such key or allows several."""
    field = model.model_fields.get("kind")
    return field.default if field is not None and isinstance(field.default, str) else None


def _problem(
    path: tuple[str, ...], found: Sequence[Mapping[str, Any]], content: Mapping[str, Any], root: Section
) -> str:
    key, given, kind = ".".join(path), found[0]["input"], found[0]["type"]
    match kind:
        case "extra_forbidden":
            return f"{key} is not a key{_where_then(path, content, root)}"
        case "missing":
            section = _section_at(path[:-1], content, root)
            what = section.describe(path[-1]) if section else None
            return f"{key} is missing" + (f" ({what})" if what else "")
        case "union_tag_invalid" | "union_tag_not_found":
            section = _section_at(path, {}, root)
            kinds = section.kinds if section else []
            if kind == "union_tag_not_found":
                return f"{key}.kind is missing: it must be one of {', '.join(kinds)}"
            named = given["kind"] if isinstance(given, Mapping) else getattr(given, "kind", None)
            guess = did_you_mean(str(named), kinds)
            return f"{key}.kind is {in_yaml(named)}{guess}: it must be one of {', '.join(kinds)}"
        case "value_error":
            return (f"{key}: " if key else "") + str(found[0]["msg"]).removeprefix("Value error, ")
    wanted = " or ".join(dict.fromkeys(_wanted(details) for details in found))
    section = _section_at(path, {}, root)
    if section is not None and section.kinds:
        wanted += f", such as {{kind: {given if given in section.kinds else section.kinds[0]}}}"
    literals = [
        name
        for details in found
        for name in re.findall("'(.*?)'", details.get("ctx", {}).get("expected", ""))
    ]
    guess = fitting_name(given) if kind == "string_pattern_mismatch" else did_you_mean(str(given), literals)
    return f"{key} is {in_yaml(given)}{guess}: it must be {wanted}"


def _wanted(details: Mapping[str, Any]) -> str:
    """Return what is expected, from pydantic's error."""
    context = details.get("ctx", {})
    match details["type"]:
        case "literal_error":
            return str(context["expected"])
        case "int_type" | "int_parsing" | "int_from_float" | "int_parsing_size":
            return "a whole number"
        case "float_type" | "float_parsing":
            return "a number"
        case "finite_number":
            return "a finite number"
        case "bool_type" | "bool_parsing":
            return "true or false"
        case "string_type":
            return "text (put it in quotes)"
        case "tuple_type" | "list_type":
            return "a list, such as [a, b]"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "a section of keys"
        case "greater_than_equal":
            return f"at least {context['ge']}"
        case "greater_than":
            return f"greater than {context['gt']}"
        case "less_than_equal":
            return f"at most {context['le']}"
        case "less_than":
            return f"less than {context['lt']}"
        case "string_pattern_mismatch":  # the name, the only text with a pattern
            return (
                f"up to {LONGEST_NAME} letters (a-z, A-Z), digits and the characters . _ -, starting with a letter or"
                " digit, because it names a folder"
            )
        case "string_too_long":
            return f"text of at most {context['max_length']} characters"
        case "invalid_key":
            return "text, like all keys"
    return str(details["msg"][0].lower() + details["msg"][1:])


def _where_then(path: tuple[str, ...], content: Mapping[str, Any], root: Section) -> str:
    """Return where an unknown key may belong: a similar name, another kind, or another section."""
    *parents, name = path
    section = _section_at(parents, content, root)
    if section is None:
        return ""
    every = _section_at(parents, {}, root)
    if every is not None and name in every.keys:
        kinds = [str(kind_of(model)) for model in every.models if name in model.model_fields]
        return f" of kind {section.kinds[0]}, only of kind {', '.join(kinds)}"
    guess = f" (did you mean {_MEANT[name]}?)" if name in _MEANT else did_you_mean(name, section.keys)
    if not guess:
        places = [".".join((*other.path, name)) for other in _sections(root) if name in other.keys]
        guess = f" (did you mean {places[0]}?)" if places else ""
    return f"{guess}; {'.'.join(parents) or root.noun} has {', '.join(section.keys)}"


def _section_at(path: Sequence[str], content: Any, root: Section) -> Section | None:
    """Return the section at a path, with the kind that the content names."""
    section: Section | None = root
    for part in path:
        if (
            part.isdigit()
        ):  # an item of a list; all items have the same model, and a single item needs no list
            content = content[int(part)] if isinstance(content, list) else content
        else:
            content = content.get(part) if isinstance(content, Mapping) else None
            section = section.inner(part) if section else None
        section = section.chosen(content) if section else None
    return section


def _sections(section: Section) -> Iterator[Section]:
    """Yield a section and all sections below it."""
    yield section
    for key in section.keys:
        inner = section.inner(key)
        if inner is not None:
            yield from _sections(inner)


def _is_mapping(annotation: Any) -> bool:
    return get_origin(annotation) is dict or any(map(_is_mapping, get_args(annotation)))


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]
