"""What is wrong with a scenario, in the words of a scenario: key, value, what may stand there, nearest valid name."""

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
"""Characters of a value that are quoted."""


@dataclass(frozen=True)
class Section:
    """A section of a scenario: where it stands, and the models that may check it, more than one if it has kinds.

    ``noun`` is what the whole document is called; ``free`` is a section whose keys are the user's own, each with a
    section of these models or a list of such.
    """

    path: tuple[str, ...]
    models: tuple[type[BaseModel], ...]
    noun: str = "a scenario"
    free: bool = False

    def chosen(self, content: Any) -> Section:
        """The same with the one model that the content's ``kind`` names, if it names one."""
        kind = content.get("kind") if isinstance(content, Mapping) else None
        named = tuple(model for model in self.models if kind_of(model) == kind)
        return replace(self, models=named or self.models)

    @property
    def keys(self) -> list[str]:
        """Keys that may stand here, of whatever kind the section is."""
        return list(dict.fromkeys(key for model in self.models for key in model.model_fields))

    @property
    def kinds(self) -> list[str]:
        """Values of ``kind``, none if the section has no kinds."""
        return [kind for model in self.models if (kind := kind_of(model)) is not None]

    def inner(self, key: str) -> Section | None:
        """The section that stands under a key, None for a plain value."""
        if self.free:
            return Section((*self.path, key), self.models)
        annotations = [
            model.model_fields[key].annotation for model in self.models if key in model.model_fields
        ]
        models = tuple(dict.fromkeys(inner for annotation in annotations for inner in _models(annotation)))
        free = any(_is_mapping(annotation) for annotation in annotations)
        return Section((*self.path, key), models, free=free) if models else None

    def describe(self, key: str) -> str | None:
        """What a key is for, None where nobody says."""
        return next(
            (model.model_fields[key].description for model in self.models if key in model.model_fields), None
        )


ROOT = Section((), (Scenario,))


def problems(error: ValidationError, content: Mapping[str, Any], root: Section = ROOT) -> list[str]:
    """One clause for each place of a document where pydantic found something wrong.

    Parameters
    ----------
    error : pydantic.ValidationError
        What validating ``content`` raised.
    content : mapping
        The document as it was given.
    root : Section
        What it was validated as: a scenario, or another document with one model.
    """
    places: dict[tuple[str, ...], list[Any]] = {}
    for details in error.errors(include_url=False):
        places.setdefault(key_path(details["loc"], root), []).append(details)
    return [_problem(path, found, content, root) for path, found in places.items()]


def truth_values(content: Mapping[str, Any], checked: BaseModel, path: tuple[str, ...] = ()) -> list[str]:
    """One clause for each true, false, yes or no where a number belongs: pydantic takes them for 1 and 0."""
    found = []
    for key, given in content.items():
        taken = getattr(checked, key)
        if isinstance(given, Mapping) and isinstance(taken, BaseModel):
            found += truth_values(given, taken, (*path, key))
        elif isinstance(given, bool) and isinstance(taken, int | float) and not isinstance(taken, bool):
            found.append(f"{'.'.join((*path, key))} is {in_yaml(given)}: it must be a number")
    return found


def unwritable_text(content: Any, path: tuple[str, ...] = ()) -> list[str]:
    """One clause for each text with a letter that no file or no file's name can hold: half a surrogate pair, NUL."""
    if isinstance(content, str):
        odd = next((letter for letter in content if letter == "\0" or "\ud800" <= letter <= "\udfff"), None)
        return [] if odd is None else [f"{'.'.join(path)} holds {odd!a}, which is no letter"]
    if isinstance(content, Mapping):
        items: Iterable[tuple[Any, Any]] = content.items()
    else:
        items = enumerate(content) if isinstance(content, list | tuple) else ()
    return [clause for key, value in items for clause in unwritable_text(value, (*path, str(key)))]


def fitting_name(name: str) -> str:
    """`` (did you mean NAME?)`` with what a name would be without the signs that it may not have, or nothing.

    >>> fitting_name("Größe / 2")
    ' (did you mean Gro-e-2?)'
    """
    plain = unicodedata.normalize("NFKD", name[:LONGEST_NAME]).encode("ascii", "ignore").decode()
    fitting = re.sub(r"[^A-Za-z0-9.]+", "-", plain).strip("-.")
    return f" (did you mean {fitting}?)" if re.match(NAME_PATTERN, fitting) else ""


def in_yaml(value: Any) -> str:
    """A value as a scenario would have it, cut when it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else repr(value)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def key_path(location: Sequence[int | str], root: Section = ROOT) -> tuple[str, ...]:
    """Keys of pydantic's location, without the tags of unions that it puts between them."""
    keys: list[str] = []
    section: Section | None = root
    tags: list[str] = []
    for part in location:
        if isinstance(part, int):
            keys.append(str(part))  # an item of a list, whose sections are all alike
        elif part in tags:
            tags = []
        elif section is not None and part != "[key]":
            keys.append(part)
            section = section.inner(part)
            tags = section.kinds if section and not section.free else []
    return tuple(keys)


def kind_of(model: type[BaseModel]) -> str | None:
    """The model's value of ``kind``, None if it has no such key or leaves a choice."""
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
    """What may stand where something else stands."""
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
                f"up to {LONGEST_NAME} letters (a-z, A-Z), digits and signs (. _ -), a letter or digit first, as it"
                " names a folder"
            )
        case "string_too_long":
            return f"text of at most {context['max_length']} letters"
        case "invalid_key":
            return "text, as all keys are"
    return str(details["msg"][0].lower() + details["msg"][1:])


def _where_then(path: tuple[str, ...], content: Mapping[str, Any], root: Section) -> str:
    """Where a key that is none here may belong: near this name, in another kind, or in another section."""
    *parents, name = path
    section = _section_at(parents, content, root)
    if section is None:
        return ""
    every = _section_at(parents, {}, root)
    if every is not None and name in every.keys:
        kinds = [str(kind_of(model)) for model in every.models if name in model.model_fields]
        return f" of kind {section.kinds[0]}, only of {', '.join(kinds)}"
    guess = did_you_mean(name, section.keys)
    if not guess:
        places = [".".join((*other.path, name)) for other in _sections(root) if name in other.keys]
        guess = f" (did you mean {places[0]}?)" if places else ""
    return f"{guess}; {'.'.join(parents) or root.noun} has {', '.join(section.keys)}"


def _section_at(path: Sequence[str], content: Any, root: Section) -> Section | None:
    """The section at a path, of the kind that the content says."""
    section: Section | None = root
    for part in path:
        if part.isdigit():  # an item of a list, whose sections are all alike; a list of one may be given bare
            content = content[int(part)] if isinstance(content, list) else content
        else:
            content = content.get(part) if isinstance(content, Mapping) else None
            section = section.inner(part) if section else None
        section = section.chosen(content) if section else None
    return section


def _sections(section: Section) -> Iterator[Section]:
    """A section and all that stand in it."""
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
