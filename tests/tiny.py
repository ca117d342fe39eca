"""A scenario that runs in a second and in this process, and a table of labels alone, for tests of what uses them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from raydr.arrays import Int64Array
from raydr.data import Table
from raydr.scenarios.reading import read
from raydr.scenarios.runner import run
from raydr.scenarios.schema import Scenario

_TINY: dict[str, Any] = {
    "name": "tiny",
    "data": {"source": "iris"},
    "clients": {"count": 3},
    "method": {"kind": "fed-tsne", "landmarks": 12, "rounds": 2, "early_iterations": 5, "iterations": 5},
    "runtime": {"federation": "inline", "checkpoint_every": 0},
    "metrics": ["npa_10"],
}


def tiny() -> dict[str, Any]:
    """The content of the scenario, to be changed at will."""
    return copy.deepcopy(_TINY)


def tiny_scenario(**overrides: Any) -> Scenario:
    """The scenario, checked; overrides have ``__`` for the dot."""
    return read(tiny(), {key.replace("__", "."): value for key, value in overrides.items()})


def tiny_run(out: Path, **overrides: Any) -> Path:
    """Run the scenario into a folder."""
    return run(tiny_scenario(**overrides), out=out)


def labelled(labels: Int64Array, names: Sequence[str] = "0123456789") -> Table:
    """A table of rows of these classes, to deal to clients."""
    rows = np.zeros((len(labels), 1))
    return Table("labelled", rows, ("one",), np.arange(len(labels)), labels, tuple(names))


def tiny_file(folder: Path, **sections: Any) -> Path:
    """The scenario as a file, with sections replaced or, when None, left out."""
    content = {key: value for key, value in (tiny() | sections).items() if value is not None}
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path
