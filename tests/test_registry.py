"""Registries, the schema, lists and the reference have the same names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import pytest
from scenario_reference import PAGE
from tiny import tiny, tiny_scenario

from raydr.attacks import ATTACKS
from raydr.embedding import EMBEDDERS
from raydr.errors import ScenarioError
from raydr.federation.simulated import ADVERSARIES
from raydr.front.commands.lists import CATALOGUES
from raydr.methods import METHODS
from raydr.metrics import DEFAULT_METRICS, METRICS
from raydr.partition import PARTITIONS
from raydr.privacy import MECHANISMS
from raydr.registry import ExtensionError, Kinds, Registry
from raydr.report import wording
from raydr.scenarios.schema.problems import ROOT
from raydr.scenarios.schema.reading import read
from raydr.settings import Settings

CHOICES: dict[str, Registry[Any]] = {
    "method": METHODS,
    "clients.partition": PARTITIONS,
    "method.embedder": EMBEDDERS,
    "faults.adversary": ADVERSARIES,
    "privacy.noise": MECHANISMS,
}
"""Sections of a scenario that choose from a registry by ``kind``."""
LISTED: dict[str, Registry[Any]] = {
    "methods": METHODS,
    "partitions": PARTITIONS,
    "embedders": EMBEDDERS,
    "adversaries": ADVERSARIES,
    "attacks": ATTACKS,
    "mechanisms": MECHANISMS,
    "metrics": METRICS,
}


def kinds_of(path: str) -> list[str]:
    section = ROOT
    for key in path.split("."):
        inner = section.inner(key)
        assert inner is not None
        section = inner
    return section.kinds


def test_definitions_are_in_the_order_of_modules_even_if_one_was_imported_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = tmp_path / "some_room"
    (room / "b").mkdir(parents=True)
    (room / "__init__.py").write_text(
        "from raydr.registry import Registry\nTHINGS = Registry('things', 'some_room', first=('c',))\n"
    )
    for place, name in (("a.py", "a"), ("b/__init__.py", "b"), ("bc.py", "bc"), ("c.py", "c")):
        (room / place).write_text(
            "from some_room import THINGS\nclass One: pass\n"
            f"THINGS.add('{name}1', One, __name__)\nTHINGS.add('{name}0', One, __name__)\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    things = import_module("some_room").THINGS
    for early in ("bc", "b"):
        import_module(f"some_room.{early}")
    assert list(things) == ["c1", "c0", "a1", "a0", "b1", "b0", "bc1", "bc0"]


@pytest.mark.parametrize("path", CHOICES)
def test_the_schema_has_the_kinds_of_the_registry(path: str) -> None:
    assert kinds_of(path) == list(CHOICES[path])


@pytest.mark.parametrize("path", CHOICES)
def test_the_reference_has_the_kinds_of_the_registry(path: str) -> None:
    page = PAGE.parent / "methods" / "sense.md" if path.startswith("method.") else PAGE
    section = page.read_text().partition(f"\n## `{path}`\n")[2].partition("\n## ")[0]
    kinds = section.partition("| kind | what it is |")[2].partition("| key |")[0]
    named = re.findall(r"^\| \[?`(.*?)`", kinds, re.MULTILINE)
    assert named == (list(CHOICES[path]) if len(CHOICES[path]) > 1 else [])


@pytest.mark.parametrize("what", LISTED)
def test_raydr_list_has_the_names_of_the_registry(what: str) -> None:
    assert list(CATALOGUES[what]()) == list(LISTED[what])


def test_a_scenario_accepts_exactly_the_known_metrics() -> None:
    assert list(DEFAULT_METRICS) == list(METRICS)
    assert tiny_scenario(metrics=list(METRICS), data__holdout=0.2).metrics == tuple(METRICS)
    with pytest.raises(ScenarioError, match=r"no metric 'nap_10' \(did you mean npa_10\?\)"):
        tiny_scenario(metrics=["nap_10"])


def test_the_report_writes_methods_as_their_papers_do() -> None:
    assert {kind: wording.method_name({"method": {"kind": kind}}) for kind in [*METHODS, "of-old"]} == {
        **{kind: method.title for kind, method in METHODS.items()},
        "of-old": "of-old",
    }


def names(kinds: Iterable[str]) -> str:
    return ", ".join(kinds)


@pytest.mark.parametrize("path", ["clients.partition", "method.embedder"])
def test_the_error_for_an_unknown_kind_lists_all_kinds(path: str) -> None:
    content = tiny() | {"method": {"kind": "sense", "anchors": 5}}
    with pytest.raises(ScenarioError, match=f"must be one of {names(CHOICES[path])}"):
        read(content, {path: {"kind": "?"}})


def test_duplicate_and_late_registrations_are_refused() -> None:
    class One(Settings):
        kind: Literal["one"] = "one"

    class Other(Settings):
        kind: Literal["one"] = "one"

    class Late(Settings):
        kind: Literal["late"] = "late"

    class Nameless(Settings):
        kind: str

    room = Kinds("rules", "raydr.robust")  # any room whose modules add nothing to this registry
    assert room(One) is One
    assert room(One) is One  # as when a module is imported twice
    with pytest.raises(ExtensionError, match="Two rules have the name 'one'"):
        room(Other)
    with pytest.raises(TypeError, match="Nameless has no kind"):
        room(Nameless)
    assert room.choice is One
    with pytest.raises(
        ExtensionError, match=r"'late' comes too late.*entry point of the group 'raydr\.rules'"
    ):
        room(Late)
