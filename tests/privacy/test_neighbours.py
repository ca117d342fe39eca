"""A run with a claim reveals about a record only what is charged: neighbouring data give equal other messages."""

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
    """Return a table of three sites and two classes with a header; ``note`` is numeric unless a word is added."""
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
    """Return the table with other values of one record, at the same site."""
    lines = table()
    lines[1 + ROW][1:] = values
    return lines


def without(row: int) -> list[list[str]]:
    """Return the table without a record; both neighbours remove one of the same site, so row counts are equal."""
    lines = table()
    del lines[1 + row]
    return lines


def lacking(row: int) -> list[list[str]]:
    """Return the table with a missing value in one record."""
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


def only_value(row: int) -> list[list[str]]:
    """Return the table with a column that is empty but for one record."""
    lines = table()
    for place, line in enumerate(lines[1:]):
        line[5] = "7" if place == row else ""
    return lines


SURVEYED = {
    **NEIGHBOURS,
    "missing": (table(), lacking(ROW)),
    "only value": (only_value(ROW), only_value(len(table()))),
    "outlier": (table(), with_row("1e9", "1e9", "1e9", "red", "1", "well")),
    "rare word": (table(), with_row("0.5", "0.5", "0.5", "rare", "1", "well")),
    "text in numbers": (table(), with_row("low", "1.5 mg", "2020-01-31", "12", "-", "well")),
    "nothing": (table(), with_row("", "", "", "", "", "")),
}
"""Pairs for a run whose noisy survey reads raw columns."""
KNOWN = [
    {"column": "a", "kind": "number", "low": -1, "high": 1, "missing": ["-99"]},
    {"column": "word", "kind": "words", "words": ["red", "green"]},
    {"column": "note", "kind": "ordinal", "words": ["0", "1", "2", "3"]},
]

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
"""Settings that make a method quick and need no uncovered message."""
METHOD_CHOICES = ("publish", "share", "landmarks_from", "per", "frequencies_in")
NOISE_CHOICES = ("per", "stage", "unit")
"""Settings that change messages; every value is tried."""
STRICT = (True, "sums")


def choices(model: Any, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield every combination of values of these fields."""
    there = [name for name in names if name in model.model_fields]
    for combination in itertools.product(*(words(model.model_fields[name].annotation) for name in there)):
        yield dict(zip(there, combination, strict=True))


def words(annotation: Any) -> list[str]:
    """Return all text values that a field accepts."""
    return [
        word for part in get_args(annotation) for word in ([part] if isinstance(part, str) else words(part))
    ]


def noises(on: str) -> Iterator[dict[str, Any] | None]:
    """Yield every noise with a claim on this target; None for a method with its own noise."""
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
    """Return the scenario without up to three method settings that errors name, or None."""
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
    """Yield the strict scenarios of a method with noise on this target, the strictest first."""
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
    """Return the differences of two runs on neighbouring tables outside charged releases.

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
    """Return the epsilon of a run."""
    folder.mkdir()
    (folder / "table.csv").write_text("\n".join(map(",".join, table())) + "\n")
    content = content | {"data": content["data"] | {"path": str(folder / "table.csv")}}
    message = json.loads((run(read(content), out=folder / "run", report=False) / "privacy.json").read_text())
    return None if message["epsilon"] is None else float(message["epsilon"])


@pytest.mark.parametrize(
    ("kind", "on"),
    [
        pytest.param(kind, on, marks=pytest.mark.slow if kind in ("fed-umap", "fed-spectral") else ())
        for kind, on in PLACES
    ],
)
def test_neighbouring_tables_differ_only_in_charged_releases(tmp_path: Path, kind: str, on: str) -> None:
    """Each method runs as strictly as possible with each claimed noise, and one record is an outlier."""
    for number, content in enumerate(allowed(kind, on)):
        with suppress(ScenarioError):  # refused because a message would be unprotected
            assert differences(content, NEIGHBOURS["far"], tmp_path / f"{number}") == []
            return
    for number, noise in enumerate(noises(on)):
        content = fitting(BASE | {"method": {"kind": kind, **SMALL}, "privacy": {"noise": noise}})
        assert content is None or epsilon_of_run(content, tmp_path / f"without a claim {number}") is None


@pytest.mark.slow
@pytest.mark.parametrize("sort", NEIGHBOURS)
@pytest.mark.parametrize(("kind", "on"), PLACES)
def test_neighbouring_tables_differ_only_in_charged_releases_in_every_mode(
    tmp_path: Path, kind: str, on: str, sort: str
) -> None:
    for number, content in enumerate(allowed(kind, on)):
        with suppress(ScenarioError):
            assert differences(content, NEIGHBOURS[sort], tmp_path / f"{number}") == [], content


def readings() -> Iterator[dict[str, Any]]:
    """Yield data settings one at a time: each text value of each key, and each way to harmonize."""
    for name in DataSettings.model_fields:
        yield from choices(DataSettings, [name])
    harmonize = words(DataSettings.model_fields["harmonize"].annotation) or ["center", "scale", "combat"]
    for kind, keep in itertools.product(harmonize, ([], ["a"], ["label"])):
        yield {"harmonize": {"kind": kind, "keep": keep}}
    yield {"features": ["a", "word"], "categories": "one-hot"}
    yield {"features": None, "categories": "leave-out"}
    known = {"column": "word", "kind": "words", "words": ["red", "green"]}
    limits = {"column": "a", "kind": "number", "low": -1, "high": 1}
    yield {"features": ["a", "word"], "codebook": [limits, known]}
    yield {"features": ["a", "word"], "codebook": [limits, {"column": "word", "kind": "words"}]}


@pytest.mark.parametrize("codebook", [(), KNOWN], ids=["surveyed", "codebook"])
@pytest.mark.parametrize("sort", SURVEYED)
def test_noisy_survey_reveals_only_charged_releases(
    tmp_path: Path, sort: str, codebook: Sequence[dict[str, Any]]
) -> None:
    """Columns, kinds, ranges, words and gaps of raw columns follow from noisy counts alone."""
    method = {"kind": "private-map", "epsilon": 500.0, "rounds": 1, "iterations": 3, "placing_iterations": 2}
    content = BASE | {
        "data": {"label": "label", "codebook": list(codebook)},
        "method": method,
        "privacy": {"strict": True, "secure_aggregation": True},
    }
    assert differences(content, SURVEYED[sort], tmp_path / "runs") == []
    ledger = json.loads((tmp_path / "runs" / "0" / "run" / "privacy.json").read_text())
    assert ledger["epsilon"] == pytest.approx(500.0, rel=1e-6)


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


def is_fast(reading: dict[str, Any]) -> bool:
    """Return whether a reading is always tried: of harmonizing, each kind and each kept column once."""
    ways = reading.get("harmonize")
    return ways is None or (ways["kind"], *ways["keep"]) in {("center",), ("scale", "a"), ("combat", "label")}


@pytest.mark.parametrize("method", METHODS_THAT_READ)
@pytest.mark.parametrize(
    "reading",
    [
        pytest.param(reading, marks=() if is_fast(reading) else pytest.mark.slow, id=str(reading))
        for reading in readings()
    ],
)
def test_reading_data_reveals_only_charged_releases(
    tmp_path: Path, method: str, reading: dict[str, Any]
) -> None:
    """Statistics of missing values, words, classes, scales and sites are charged, or a strict run refuses them."""
    data = {key: value for key, value in (BASE["data"] | reading).items() if value is not None}
    content = BASE | METHODS_THAT_READ[method] | {"data": data}
    pairs = [NEIGHBOURS["far"], *[NEIGHBOURS["replaced"]] * ("harmonize" in reading)]
    if reading.get("missing") not in (None, "error"):
        pairs = [DROPPED]
    for number, neighbours in enumerate(pairs):
        with suppress(ScenarioError):
            assert differences(content, neighbours, tmp_path / f"{number}") == []
