"""A run under a claim tells nothing of a record but what it is charged for: neighbouring data, equal releases."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from neighbours import Record, Tape, recorded

from raydr.errors import RaydrError, ScenarioError
from raydr.methods import METHODS
from raydr.privacy.mechanism import MECHANISMS
from raydr.scenarios.runner import run
from raydr.scenarios.schema.data import DataSettings
from raydr.scenarios.schema.reading import read

# --- neighbouring tables ----------------------------------------------------------------------------------------------

SITES = ("east", "north", "west")
ROW, OTHER = 17, 14
"""The record that differs, and another one of the same site."""


def table() -> list[list[str]]:
    """A table of three sites and two classes, its names first; ``note`` is a number until somebody writes a word."""
    random = np.random.default_rng(3)
    lines = [["site", "a", "b", "c", "word", "note", "label"]]
    for row, values in enumerate(random.normal(size=(36, 3)) + np.repeat(np.eye(3), 12, axis=0)):
        numbers = [f"{value:.4f}" for value in values]
        lines.append(
            [
                SITES[row // 12],
                *numbers,
                ("red", "green")[row % 2],
                str(row % 4),
                ("well", "ill")[row % 5 == 0],
            ]
        )
    return lines


def with_row(*values: str) -> list[list[str]]:
    """The table with other values of one record, at the same site."""
    lines = table()
    lines[1 + ROW][1:] = values
    return lines


def without(row: int) -> list[list[str]]:
    """The table without a record: of two such of one site rows are counted alike, as the claim has it."""
    lines = table()
    del lines[1 + row]
    return lines


def lacking(row: int) -> list[list[str]]:
    """The table with a record that lacks a value."""
    lines = table()
    lines[1 + row][1] = ""
    return lines


FAR = with_row("1e12", "-3e-9", "4e5", "blue", "none", "dead")
NEIGHBOURS = {
    "replaced": (table(), with_row("0.5", "-0.25", "0.125", "green", "3", "ill")),
    "far": (table(), FAR),
    "removed": (without(ROW), without(OTHER)),
}
DROPPED = lacking(ROW), lacking(OTHER)

# --- scenarios with a claim, from the registry and the schema ---------------------------------------------------------

BASE: dict[str, Any] = {
    "name": "mode",
    "data": {"features": ["a", "b", "c"], "label": "label", "path": "table.csv"},
    "clients": {"partition": {"kind": "by-column", "column": "site"}},
    "runtime": {"federation": "inline", "checkpoint_every": 1},
    "metrics": [],
}
SMALL: dict[str, Any] = {
    "rounds": 2,
    "landmarks": 4,
    "iterations": 3,
    "early_iterations": 3,
    "epochs": 3,
    "clusters": 2,
    "hidden": [4],
    "epsilon": 500.0,
    "bounds": [-64.0, 64.0],
    "gamma": 0.1,
    "random_features": 64,
}
"""Settings by which any method that has them is quick, and needs nothing that no noise covers."""
METHOD_CHOICES = ("publish", "share", "landmarks_from", "per", "frequencies_in")
NOISE_CHOICES = ("per", "stage", "unit")
"""What changes what is told: every value of each is tried."""
STRICT = (True, "sums")


def choices(model: Any, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Every combination of values of the fields of these names."""
    there = [name for name in names if name in model.model_fields]
    for combination in itertools.product(*(words(model.model_fields[name].annotation) for name in there)):
        yield dict(zip(there, combination, strict=True))


def words(annotation: Any) -> list[str]:
    """All words that a field may have."""
    return [
        word for part in get_args(annotation) for word in ([part] if isinstance(part, str) else words(part))
    ]


def noises(on: str) -> Iterator[dict[str, Any] | None]:
    """Every sort of noise on this that claims something; None for a method that has noise of its own."""
    if on == OWN:
        yield None
        return
    for mechanism, bound in itertools.product(MECHANISMS.values(), ({"clip": 6.0}, {})):
        for chosen in choices(mechanism, NOISE_CHOICES):
            noise = {"on": on, **chosen, "multiplier": 0.1, **bound}
            with suppress(ValueError):
                mechanism(**noise)
                yield noise


def fitting(content: dict[str, Any], left_out: int = 3) -> dict[str, Any] | None:
    """The scenario without up to three settings of the method that errors name; None where it cannot be had."""
    try:
        read(content)
        return content
    except RaydrError as error:
        named = [key for key in content["method"] if key in SMALL | CHOSEN and key in str(error)]
    tried = (
        fitting(
            content | {"method": {key: value for key, value in content["method"].items() if key != name}},
            left_out - 1,
        )
        for name in (named if left_out else ())
    )
    return next((found for found in tried if found is not None), None)


CHOSEN = dict.fromkeys(METHOD_CHOICES)
OWN = "its own"
PLACES = [
    (kind, on)
    for kind, method in METHODS.items()
    for on in [*sorted(method.settings.noise_on), *[OWN] * method.settings.noise_of_its_own]
]
"""Where clients of each method can add noise."""


def allowed(kind: str, on: str) -> Iterator[dict[str, Any]]:
    """Every strict scenario of a method under noise on this, the strictest first."""
    settings, found = METHODS[kind].settings, []
    small = {key: value for key, value in SMALL.items() if key in settings.model_fields}
    for strict, noise, chosen in itertools.product(
        STRICT, list(noises(on)), list(choices(settings, METHOD_CHOICES))
    ):
        privacy: dict[str, Any] = {"strict": strict, "noise": noise}
        if "sum" in (chosen.get("per"), (noise or {}).get("per")):
            privacy["secure_aggregation"] = True
        content = fitting(BASE | {"method": {"kind": kind, **small, **chosen}, "privacy": privacy})
        alike = [
            other
            for other in found
            if content is not None
            and (other["method"], other["privacy"]["noise"])
            == (content["method"], content["privacy"]["noise"])
        ]
        if content is not None and not alike:
            found.append(content)
            yield content


# --- the comparison ---------------------------------------------------------------------------------------------------


def differences(
    content: dict[str, Any], neighbours: tuple[list[list[str]], list[list[str]]], folder: Path
) -> list[str]:
    """What two runs on neighbouring tables told that no charged release says.

    Raises
    ------
    ScenarioError
        If the first is refused.
    """
    tape = Tape()

    def played(number: int) -> Record:
        path = folder / "table.csv"
        path.write_text("\n".join(map(",".join, neighbours[number])) + "\n")
        read_from = content | {"data": content["data"] | {"path": str(path)}}
        return recorded(read_from, folder / str(number) / "run", tape)

    folder.mkdir()
    one = played(0)
    tape.rewind()
    try:
        other = played(1)
    except RaydrError as error:
        return [f"one of them is refused: {error}"]
    assert tape.released, "a run that released nothing shows nothing"
    assert tape.position == len(tape.released), "as many releases of the one as of the other"
    return one.differences(other)


def epsilon_of_run(content: dict[str, Any], folder: Path) -> float | None:
    """What a run says that it came to."""
    folder.mkdir()
    (folder / "table.csv").write_text("\n".join(map(",".join, table())) + "\n")
    content = content | {"data": content["data"] | {"path": str(folder / "table.csv")}}
    said = json.loads((run(read(content), out=folder / "run", report=False) / "privacy.json").read_text())
    return None if said["epsilon"] is None else float(said["epsilon"])


@pytest.mark.parametrize(("kind", "on"), PLACES)
def test_a_claim_is_all_that_a_record_changes(tmp_path: Path, kind: str, on: str) -> None:
    """The strictest run of each method under each noise that has a claim, and a record that is anything but usual."""
    for number, content in enumerate(allowed(kind, on)):
        with suppress(ScenarioError):  # refused once it is known what would leave bare
            assert differences(content, NEIGHBOURS["far"], tmp_path / f"{number}") == []
            return
    for number, noise in enumerate(noises(on)):
        content = fitting(BASE | {"method": {"kind": kind, **SMALL}, "privacy": {"noise": noise}})
        assert content is None or epsilon_of_run(content, tmp_path / f"without a claim {number}") is None


@pytest.mark.slow
@pytest.mark.parametrize("sort", NEIGHBOURS)
@pytest.mark.parametrize(("kind", "on"), PLACES)
def test_in_every_mode(tmp_path: Path, kind: str, on: str, sort: str) -> None:
    for number, content in enumerate(allowed(kind, on)):
        with suppress(ScenarioError):
            assert differences(content, NEIGHBOURS[sort], tmp_path / f"{number}") == [], content


def readings() -> Iterator[dict[str, Any]]:
    """Settings of a scenario's data, one at a time: each word of each key, and how sites are adjusted."""
    for name in DataSettings.model_fields:
        yield from choices(DataSettings, [name])
    harmonize = words(DataSettings.model_fields["harmonize"].annotation) or ["center", "scale", "combat"]
    for kind, keep in itertools.product(harmonize, ([], ["a"], ["label"])):
        yield {"harmonize": {"kind": kind, "keep": keep}}
    yield {"features": ["a", "word"], "categories": "one-hot"}
    yield {"features": None, "categories": "leave-out"}


ON_RECORDS = {"on": "data", "stage": "all", "clip": 6.0, "multiplier": 0.1}
METHODS_THAT_READ: dict[str, dict[str, Any]] = {
    "private": {
        "method": {
            "kind": "private-map",
            "epsilon": 500.0,
            "bounds": [-64, 64],
            "rounds": 1,
            "iterations": 3,
        },
        "privacy": {"strict": True, "secure_aggregation": True},
    },
    "noisy": {
        "method": {"kind": "fed-pca"},
        "privacy": {"strict": True, "noise": ON_RECORDS},
    },
}


@pytest.mark.parametrize("method", METHODS_THAT_READ)
@pytest.mark.parametrize("reading", list(readings()), ids=str)
def test_nor_is_anything_told_before_the_method_begins(
    tmp_path: Path, method: str, reading: dict[str, Any]
) -> None:
    """Gaps, words, classes, scales and sites: what is learnt of them is paid for, or a strict run refuses it."""
    data = {key: value for key, value in (BASE["data"] | reading).items() if value is not None}
    content = BASE | METHODS_THAT_READ[method] | {"data": data}
    pairs = [NEIGHBOURS["far"], *[NEIGHBOURS["replaced"]] * ("harmonize" in reading)]
    if reading.get("missing") not in (None, "error"):
        pairs = [DROPPED]
    for number, neighbours in enumerate(pairs):
        with suppress(ScenarioError):
            assert differences(content, neighbours, tmp_path / f"{number}") == []
