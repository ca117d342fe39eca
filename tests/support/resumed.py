"""Runs that are interrupted, edited and resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tiny import tiny

import raydr
from raydr.errors import RaydrError
from raydr.journal import Event, RoundEnded
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read

ROUNDS = 6


def table(folder: Path) -> Path:
    """A file of 60 rows in two classes at three hospitals."""
    rng = np.random.default_rng(5)
    lines = ["a,b,c,hospital,diagnosis"]
    for row in range(60):
        numbers = ",".join(f"{value:.6f}" for value in rng.normal(size=3) + row % 2)
        lines.append(f"{numbers},{('north', 'east', 'west')[row % 3]},{('no', 'yes')[row % 2]}")
    path = folder / "patients.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def content(path: Path) -> dict[str, Any]:
    return tiny() | {
        "data": {"path": str(path), "label": "diagnosis", "scale": "standard"},
        "clients": {"partition": {"kind": "by-column", "column": "hospital"}},
        "method": tiny()["method"] | {"rounds": ROUNDS, "perplexity": 5},
        "runtime": {"federation": "inline", "checkpoint_every": 2},
    }


def interrupted(folder: Path, changes: Callable[[dict[str, Any]], Any] = lambda _: None) -> Path:
    """An incomplete run folder with checkpoints after rounds 2 and 4, interrupted in round 5."""
    scenario = content(table(folder))
    changes(scenario)

    def listen(event: Event) -> None:
        if isinstance(event, RoundEnded) and event.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(read(scenario), out=folder / "out", listener=listen)
    (kept,) = folder.glob("out.incomplete-*")
    assert [path.name for path in sorted((kept / "checkpoints").glob("*.npz"))] == [
        "00000002.npz",
        "00000004.npz",
    ]
    return kept


def edit(kept: Path, section: str, **changes: Any) -> None:
    path = kept / "scenario.yaml"
    scenario = yaml.safe_load(path.read_text())
    scenario[section] |= changes
    path.write_text(yaml.safe_dump(scenario))


def refusal(kept: Path, kind: type[RaydrError]) -> str:
    """What is said when the run cannot go on; nothing of it is lost."""
    before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file() and path.name != "lock"}
    with pytest.raises(kind) as caught:
        raydr.resume(kept)
    assert {path: path.read_bytes() for path in before} == before
    assert "\n" not in str(caught.value)
    return str(caught.value)
