"""A written scenario is read back unchanged: every key of every model, null included.

The cases are made from the models themselves, so that a key that is added tomorrow is tested tomorrow.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
import yaml
from fast import fast_only
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from tiny import tiny, tiny_file, tiny_scenario

import raydr
from raydr.errors import ScenarioError
from raydr.front.cli import status
from raydr.methods.fedne.fedne import FedNE
from raydr.scenarios.schema.problems import kind_of
from raydr.scenarios.schema.reading import dump, dump_json, read
from raydr.scenarios.schema.scenario import Scenario
from raydr.settings import path_mark

BASE: dict[str, Any] = {
    "name": "base",
    "data": {"source": "iris"},
    "clients": {"count": 40},
    "method": {"kind": "fed-tsne", "rounds": 50},
}

WORDS = ["x", "on", "null", "yes", "~", "1e3", "12", "1_0", "-.5", "0x1", "=", "a=b", " padded ", "a: b", "#", "- a",
         "2024-01-31", "Größe", "名前", "\u200f\u062b\u0645\u0646", "🙂", "a\nb", "tab\t", "\x07", "\x85\u2028", "",
         "'\"", "!!str x", "*a", "&a", "/data/rows.csv"]  # fmt: skip
FLOATS = [1e-5, 1e16, 0.1 + 0.2, 1 / 3, 5e-324, 1.7976931348623157e308, 1.0, 2.0, 3.0, -0.0, 0.25, 1.5]
INTEGERS = [2, 1, 0, 3, 7, 128, 2**31, 2**32 - 1, 2**63]

COMPANIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("method", {"method.clip": 3.0}),
    ("method.clip", {"method.bounds": [0.0, 1.0]}),
    ("data.source", {"data.path": "/a.csv"}),
    ("data.path", {"data.source": None}),
    ("data.graph", {"data.source": None}),
    ("data.codebook", {"data.source": None, "data.path": "/a.csv"}),
    ("data.codebook", {"data.source": None, "data.path": "/a.csv", "data.codebook.kind": "number"}),
    ("data.codebook", {"data.source": None, "data.path": "/a.csv", "data.codebook.kind": "circular"}),
    ("data.dimensions", {"data.source": None, "data.graph": "/tree.csv"}),
    ("data.harmonize", {"clients.partition": {"kind": "by-column", "column": "site"}, "clients.count": None}),
    ("data.words", {"data.categories": "one-hot"}),
    ("data.holdout.column", {"data.holdout.value": 1}),
    ("data.holdout.value", {"data.holdout.column": "split"}),
    ("data.holdout", {"data.holdout.part": 0.5}),
    ("data.holdout.part", {"data.holdout.rows": 3}),
    ("clients.count", {"clients.partition": {"kind": "pointwise"}}),
    ("clients.sites", {"data": {}, "clients.count": None}),
    ("clients.deployed", {"data": {}, "clients.count": None}),
    (
        "clients.join_spellings",
        {"clients.partition": {"kind": "by-column", "column": "site"}, "clients.count": None},
    ),
    ("faults.dropout", {"runtime.quorum": 0.5}),
    ("faults.corrupt", {"runtime.quorum": 0.5}),
    ("faults.adversary.kind", {"faults.adversary.fraction": 0.25}),
    ("faults.adversary.strength", {"faults.adversary.fraction": 0.25}),
    ("method.anchor_source", {"method.anchor_path": "/anchors.csv"}),
    ("method.anchor_path", {"method.anchor_source": "file"}),
    ("method.local_anchors", {"method.visibility": "partial"}),
    ("method.curvature", {"method.geometry": "hyperbolic"}),
    ("method.points", {"method.geometry": "hyperbolic"}),
    ("method.embedder", {"method.geometry": "hyperbolic"}),
    ("privacy.noise", {"privacy.noise.level": 0.5, "method.rounds": 5}),
    (
        "privacy.noise.on",
        {"privacy.noise.epsilon": 0.5, "method.share": "embedding", "privacy.noise.clip": 3.0},
    ),
    (
        "privacy.noise.on",
        {"privacy.noise.epsilon": 0.5, "privacy.noise.clip": 3.0, "method": {"kind": "fed-tsne"}},
    ),
    ("method.surrogates_left_out", {"method.surrogate": "mlp"}),
    ("method.standardise", {"method.start": "random"}),
    ("privacy.noise.on", {"privacy.noise.level": 0.5, "method": {"kind": "fedne"}}),
    (
        "privacy.noise",
        {
            "privacy.noise.on": "update",
            "privacy.noise.epsilon": 0.5,
            "privacy.noise.clip": 1.0,
            "method": {"kind": "fedne", "bounds": [0, 8]},
        },
    ),
    ("method.rank", {"method.estimator": "nystrom", "method.rounds": 3}),
    ("method.rank_tolerance", {"method.estimator": "nystrom", "method.rounds": 3}),
    ("method.ridge", {"method.estimator": "nystrom", "method.rounds": 3}),
    ("privacy.noise", {"privacy.noise.level": 0.5, "method": {"kind": "sense"}}),
    ("privacy.noise", {"privacy.noise.on": "gradient", "method.rounds": 5}),
    ("privacy.noise", {"privacy.noise.on": "gradient", "privacy.noise.epsilon": 0.5, "method.rounds": 5}),
    ("privacy.noise.on", {"privacy.noise.level": 0.5, "method.share": "landmarks", "method.rounds": 5}),
    ("privacy.noise", {"privacy.noise.on": "data", "privacy.noise.clip": 2.0, "privacy.noise.epsilon": 0.5}),
    (
        "privacy",
        {"privacy.noise": {"on": "gradient", "epsilon": 0.25}, "privacy.strict": "sums", "method.rounds": 5},
    ),
    ("privacy.strict", {"privacy.noise": {"on": "data", "clip": 2.0, "epsilon": 0.25, "stage": "all"}}),
    ("method.local_steps", {"method.rounds": 3}),
    ("method.share", {"method.rounds": 3}),
    ("method.weights", {"method.rounds": 3}),
    ("method.gamma", {"method.rounds": 3}),
    ("method.step", {"method.rounds": 3}),
    ("method.server_step", {"method.rounds": 3}),
    ("method.momentum", {"method.rounds": 3}),
    ("method.initial_spread", {"method.rounds": 3}),
    ("method.aggregation", {"method.rounds": 3}),
    ("method.estimator", {"method.rounds": 3}),
    ("method.random_features", {"method.share": "embedding"}),
    ("method.frequencies_in", {"method.share": "embedding"}),
    ("method.frequency_axes", {"method.share": "embedding"}),
    ("method.learning.random_features", {"method.learning.share": "embedding"}),
    ("method.learning.frequencies_in", {"method.learning.share": "embedding"}),
    ("method.learning.frequency_axes", {"method.learning.share": "embedding"}),
)
"""Keys that another key needs."""

REFUSED = {("method.learning.landmarks", "value"), ("clients.joined.node", "value")}
"""Values that no scenario can have."""


@dataclass(frozen=True)
class Key:
    """A key of the scenario, the models that define it, and the scenario sections that set it."""

    path: str
    kind: str | None
    definition: tuple[type[BaseModel], str]
    annotation: Any
    default: Any
    content: Callable[[Any], dict[str, Any]]

    def __str__(self) -> str:
        return self.path if self.kind is None else f"{self.path}[{self.kind}]"


def keys(
    model: type[BaseModel], path: str, kinds: str, place: Callable[[Any], dict[str, Any]]
) -> Iterator[Key]:
    """Yield every key of a model and its nested models; ``place`` wraps a section of the model."""
    kind = kind_of(model)
    here = f"{kinds}/{kind}".strip("/") if kind else kinds
    needed = {
        name: next(iter(candidates(field.annotation)))
        for name, field in model.model_fields.items()
        if field.is_required() and path
    } | ({"kind": kind} if kind else {})
    for name, field in model.model_fields.items():
        below = f"{path}.{name}".strip(".")

        def put(value: Any, name: str = name, needed: Any = needed) -> dict[str, Any]:
            return place(needed | {name: value})

        default = None if field.is_required() else field.get_default(call_default_factory=True)
        inner = models(field.annotation)
        if name != "kind" and not (
            inner and not is_list(field.annotation) and not nullable(field.annotation)
        ):
            first = next(
                base for base in reversed(model.__mro__) if name in getattr(base, "model_fields", {})
            )
            yield Key(below, here or None, (first, name), field.annotation, default, put)
        for one in inner:

            def within(
                section: Any, put: Any = put, many: bool = is_list(field.annotation)
            ) -> dict[str, Any]:
                content: dict[str, Any] = put([section] if many else section)
                return content

            yield from keys(one, below, here, within)


def at_root(content: dict[str, Any]) -> dict[str, Any]:
    """Return the base with the sections of ``content`` replaced or merged."""
    merged = dict(BASE)
    for key, value in content.items():
        own = merged.get(key)
        kept = own if isinstance(own, dict) and isinstance(value, dict) and "kind" not in value else {}
        merged[key] = kept | value if isinstance(value, dict) else value
    return merged


def flat(annotation: Any) -> Iterator[Any]:
    """Yield the members of a union without annotations."""
    if get_origin(annotation) is Annotated:
        yield from flat(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from flat(member)
    else:
        yield annotation


def nullable(annotation: Any) -> bool:
    return type(None) in flat(annotation)


def is_list(annotation: Any) -> bool:
    return any(get_origin(member) is tuple for member in flat(annotation))


def models(annotation: Any) -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = []
    for member in flat(annotation):
        inside = get_args(member)[:1] if get_origin(member) is tuple else [member]
        for each in inside:
            found += [one for one in flat(each) if isinstance(one, type) and issubclass(one, BaseModel)]
    return found


def candidates(annotation: Any) -> Iterator[Any]:
    """Yield values of a type, including difficult ones; the schema decides which a key accepts."""
    for member in flat(annotation):
        if get_origin(member) is Literal:
            yield from get_args(member)
        elif get_origin(member) is tuple:
            yield []
            inner = list(candidates(get_args(member)[0]))
            yield inner
            yield inner[:2]
            yield from ([value] for value in inner)
        elif member is type(None):
            yield None
        elif isinstance(member, type) and not issubclass(member, BaseModel):
            plain: dict[type, list[Any]] = {str: WORDS, float: FLOATS, int: INTEGERS, bool: [False, True]}
            yield from plain[member]


KEYS = [key for key in keys(Scenario, "", "", at_root) if key.kind != "fed-spectral/cosne"]
"""Values except those of a refused embedder."""

FIRST = {str(key) for key in {key.definition: key for key in reversed(KEYS)}.values()}
"""The first key of each definition: the others inherit it, or have the same model in another section."""


def put(content: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    inner = content
    for parent in parents:
        below = inner.get(parent) or {}
        inner[parent] = [dict(below[0])] if isinstance(below, list) else dict(below)
        inner = inner[parent][0] if isinstance(below, list) else inner[parent]
    inner[last] = value


def attempts(key: Key, value: Any) -> Iterator[dict[str, Any]]:
    """Yield scenarios with the value, alone and with the keys that it needs."""
    yield key.content(value)
    for path, companions in COMPANIONS:
        if key.path == path or key.path.startswith(f"{path}."):
            content = key.content(value)
            for name, needed in companions.items():
                if name == "data":
                    content["data"] = needed
                elif not f"{key.path}.".startswith(f"{name}."):
                    put(content, name, needed)
            yield content


def taken(key: Key, value: Any) -> Scenario | None:
    """Return a scenario in which the key has the value, or None if the schema refuses it."""
    for content in attempts(key, value):
        try:
            return read(content)
        except ScenarioError:
            continue
    return None


def written(scenario: Scenario, folder: Path) -> Scenario:
    """Return the scenario read from its written file."""
    file = folder / "scenario.yaml"
    file.write_text(dump(scenario), encoding="utf-8")
    return read(file)


@pytest.mark.parametrize("key", fast_only(lambda key: str(key) in FIRST, KEYS), ids=str)
def test_every_key_and_value_is_read_back(key: Key) -> None:
    """The plain content is read back. YAML of the same content: the next tests."""
    found = []
    for value in candidates(key.annotation):
        scenario = taken(key, value)
        if scenario is None:
            continue
        found.append(value)
        resolved = scenario.resolved()
        assert read(json.loads(dump_json(scenario))) == resolved, value
        assert resolved.resolved() == resolved
    alone = [member for member in flat(key.annotation) if get_origin(member) is Literal]
    for choice in [choice for member in alone for choice in get_args(member)]:
        assert choice in found
    if nullable(key.annotation):
        assert None in found
    others = [value for value in found if value is not None and value != key.default]
    if (key.path, "value") not in REFUSED and (key.path, "True") not in REFUSED:
        assert others or models(key.annotation), f"no value other than {key.default} was tried"


@pytest.mark.parametrize(
    "key", fast_only(lambda key: str(key) in ("data.label", "method.gamma[fed-tsne]", "seed"), KEYS), ids=str
)
def test_every_value_is_read_back_from_its_file(key: Key, tmp_path: Path) -> None:
    """The file depends on the plain values alone: three keys have all texts, floats and integers."""
    for value in candidates(key.annotation):
        scenario = taken(key, value)
        if scenario is not None:
            assert written(scenario, tmp_path) == scenario.resolved(), value


def test_every_section_is_read_back_from_one_file(tmp_path: Path) -> None:
    """Each kind of each section, with its defaults, null included."""
    kinds = {key.kind: key for key in KEYS}
    for key in kinds.values():
        scenario = next(filter(None, (taken(key, value) for value in candidates(key.annotation))))
        assert written(scenario, tmp_path) == scenario.resolved(), str(key)


def test_every_key_of_a_scenario_is_in_the_cases() -> None:
    """The cases have as many keys as the models."""
    paths = {key.path for key in KEYS}
    assert {"name", "method.mixing", "method.embedder.s", "method.learning.aggregation.trim"} <= paths
    assert {"clients.sites.path", "faults.crashes.round", "privacy.noise.level", "data.features"} <= paths
    assert len({str(key) for key in KEYS}) == len(KEYS) > 200


def test_null_is_written_if_it_is_not_the_default(tmp_path: Path) -> None:
    method = {"kind": "fedne", "mixing": None, "local_steps": None}
    scenario = tiny_scenario(method=method)
    again = written(scenario, tmp_path)
    assert isinstance(again.method, FedNE)
    assert (again.method.mixing, again.method.local_steps) == (None, None)


@pytest.mark.slow  # the test before, and test_run_folder.py::test_scenario_of_a_run_folder_repeats_the_run
def test_folder_of_a_run_without_mixing_repeats_it(tmp_path: Path) -> None:
    method = {
        "kind": "fedne",
        "rounds": 2,
        "hidden": [8],
        "local_steps": None,
        "local_epochs": 1,
        "mixing": None,
    }
    file = tiny_file(tmp_path, method=method)
    first, again, mixed = (tmp_path / name for name in ("first", "again", "mixed"))
    assert status(["run", str(file), "--out", str(first), "-q"]) == 0
    assert status(["run", str(first / "scenario.yaml"), "--out", str(again), "-q"]) == 0
    assert status(["run", str(file), "--set", "method.mixing=0.2", "--out", str(mixed), "-q"]) == 0
    first_map, again_map, mixed_map = (
        raydr.Result(folder).embedding.tobytes() for folder in (first, again, mixed)
    )
    assert first_map == again_map != mixed_map


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@settings(max_examples=40)
@given(
    st.lists(words, min_size=1, max_size=4, unique=True),
    st.none() | words,
    st.floats(1e-300, 1e300),
    st.none() | st.floats(5e-324, 1e308),
)
def test_any_names_and_numbers_are_read_back(
    features: list[str], label: str | None, gamma: float, step: float | None
) -> None:
    content = tiny()
    content["data"] |= {"features": features, "label": label}
    content["method"] |= {"gamma": gamma, "step": step}
    scenario = read(content)
    assert read(yaml.load(dump(scenario), yaml.CSafeLoader)) == scenario


# --- paths ----------------------------------------------------------------------------------------------------------


def test_every_path_key_is_marked_as_a_path() -> None:
    """A path key is one whose description says that it is a file and not a built-in name."""

    def strings(model: type[BaseModel]) -> Iterator[tuple[str, bool]]:
        for name, field in model.model_fields.items():
            if str in flat(field.annotation):
                yield name, path_mark(field) is not None
            for inner in models(field.annotation):
                yield from strings(inner)

    marked = {name for name, is_path in strings(Scenario) if is_path}
    assert marked == {"path", "graph", "anchor_path", "reference_path", "prior", "secret", "policy"}
    plain = {name for name, is_path in strings(Scenario) if not is_path}
    assert plain == {"name", "source", "matrix", "label", "time", "id", "column", "value", "node", "unit"}


def test_relative_paths_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sites = [{"path": "a.csv"}, {"path": "b.csv", "node": "left"}]
    scenario = read(tiny() | {"data": {}, "clients": {"sites": sites}})
    dumped = yaml.safe_load(dump(scenario))
    # On another node, the path belongs to that node.
    assert [site["path"] for site in dumped["clients"]["sites"]] == [
        str(tmp_path.resolve() / "a.csv"),
        "b.csv",
    ]
    assert "partition" not in dumped["clients"]
    for section in ({"path": "rows.csv"}, {"graph": "rows.csv"}):
        (key,) = section
        assert yaml.safe_load(dump(tiny_scenario(data=section)))["data"][key] == str(
            tmp_path.resolve() / "rows.csv"
        )


def test_path_of_an_unknown_home_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    paths = {"~/rows.csv": "home/rows.csv", "~nobody-of-this-name/rows.csv": "~nobody-of-this-name/rows.csv"}
    for given_path, meant in paths.items():
        scenario = tiny_scenario(data={"path": given_path}).resolved()
        assert scenario.data.path == str(tmp_path.resolve() / meant)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"data.label": "\ud800"}, r"data.label contains '\ud800', which is not a valid character"),
        ({"data.features": ["a", "\udcff"]}, r"data.features.1 contains '\udcff'"),
        ({"data": {"path": "rows\0.csv"}}, r"data.path contains '\x00'"),
    ],
)
def test_unencodable_text_is_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(tiny(), overrides)
    assert message in str(caught.value)
