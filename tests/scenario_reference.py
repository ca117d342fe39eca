"""Every key of a scenario as Markdown, from the models that check it.

``python tests/scenario_reference.py`` puts what all methods share into docs/scenarios.md, a page for each method into
docs/methods/, and the keys of a policy into docs/policies.md; tests keep them equal.
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import raydr
from raydr.front.estimators import estimator_names
from raydr.privacy.policy import Policy
from raydr.scenarios.schema.problems import ROOT, Section, kind_of

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "scenarios.md"
POLICIES = DOCS / "policies.md"
MARK = "<!-- Below this line: made by tests/scenario_reference.py -->\n"
METHOD = "method"

_NAMES = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def reference() -> str:
    """A heading and a table for each section that methods share, and a list of the methods."""
    return "\n".join(_tables(ROOT))


def policy_reference() -> str:
    """The table of the keys of a site's policy."""
    return "\n".join(_tables(Section((), (Policy,)))[1:])


def method_pages() -> dict[Path, str]:
    """The page of each method by its place: its keys, and those of the sections below them."""
    section = ROOT.inner(METHOD)
    assert section is not None
    chosen = {str(kind_of(model)): section.chosen({"kind": kind_of(model)}) for model in section.models}
    return {DOCS / "methods" / f"{kind}.md": _method_page(kind, keys) for kind, keys in chosen.items()}


def _method_page(kind: str, section: Section) -> str:
    (model,) = section.models
    estimators = [name for name in estimator_names() if getattr(raydr, name)._kind == kind]
    lines = [
        "<!-- Made by tests/scenario_reference.py -->",
        f"# `{kind}`\n",
        f"{_summary(model)}.\n",
        f"In Python: {', '.join(f'`raydr.{name}`' for name in estimators)}, with these keys as parameters",
        "([estimators](../estimators.md)). [Scenarios](../scenarios.md) has the sections that all methods share.",
    ]
    return "\n".join([*lines, *_tables(section)]) + "\n"


def _tables(section: Section) -> list[str]:
    lines = [f"\n## {'`' + '.'.join(section.path) + '`' if section.path else 'The whole'}\n"]
    several = len(section.models) > 1 and section.kinds
    if several:
        lines += ["| kind | what it is |", "| --- | --- |"]
        lines += [f"| {_kind(section, model)} | {_summary(model)} |" for model in section.models]
        lines += [""]
        if section.path == (METHOD,):
            return [*lines[:-1], "\nEach has a page with its keys."]
    lines += ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    keys = [key for key in section.keys if not (key == "kind" and section.kinds)]
    lines += [line for key in keys for line in _rows(section, key)]
    if not keys:
        lines = lines[:-2]
    for key in section.keys:
        inner = section.inner(key)
        if inner is not None:
            lines += _tables(inner)
    return lines


def _rows(section: Section, key: str) -> list[str]:
    """A line for the key, or one for each group of kinds among which it means the same."""
    owners: dict[tuple[str, str, str], list[str]] = {}
    for model in section.models:
        if key in model.model_fields:
            field = model.model_fields[key]
            meaning = (field.description or "").replace("|", "\\|")
            owners.setdefault((_values(field), _default(field), meaning), []).append(str(kind_of(model)))
    return [
        f"| `{key}` | {values} | {default} | {meaning}"
        + (f" ({', '.join(kinds)}) |" if len(kinds) < len(section.models) else " |")
        for (values, default, meaning), kinds in owners.items()
    ]


def _kind(section: Section, model: type[BaseModel]) -> str:
    name = f"`{kind_of(model)}`"
    return f"[{name}](methods/{kind_of(model)}.md)" if section.path == (METHOD,) else name


def _summary(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0].rstrip(".")


def _values(field: FieldInfo) -> str:
    return _spelt(field.annotation, field.metadata)


def _spelt(annotation: Any, metadata: Any = ()) -> str:
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        limits = [
            limit for found in more for limit in (found.metadata if isinstance(found, FieldInfo) else [found])
        ]
        return _spelt(inner, limits)
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [_spelt(part, metadata) for part in get_args(annotation) if part is not type(None)]
        return " or ".join(dict.fromkeys(parts))
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) is tuple:
        item = get_args(annotation)[0]
        return (
            "list of sections"
            if isinstance(item, type) and issubclass(item, BaseModel)
            else f"list of {_spelt(item)}"
        )
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return _NAMES[annotation] + "".join(_limit(limit) for limit in metadata)


def _limit(limit: Any) -> str:
    match limit:
        case Ge(ge):
            return f" >= {ge}"
        case Gt(gt):
            return f" > {gt}"
        case Le(le):
            return f" <= {le}"
        case Lt(lt):
            return f" < {lt}"
    return ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    default = field.get_default(call_default_factory=True)
    if default is None or default == ():
        return ""
    if isinstance(default, BaseModel):
        kind = kind_of(type(default))
        return f"`{{kind: {kind}}}`" if kind else ""
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    return f"`{shown.replace('e-0', 'e-')}`"


if __name__ == "__main__":
    by_hand, _, _ = PAGE.read_text().partition(MARK)
    PAGE.write_text(by_hand + MARK + reference() + "\n")
    by_hand, _, _ = POLICIES.read_text().partition(MARK)
    POLICIES.write_text(by_hand + MARK + "\n" + policy_reference() + "\n")
    for place, content in method_pages().items():
        place.parent.mkdir(exist_ok=True)
        place.write_text(content)
