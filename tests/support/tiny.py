"""A scenario that runs in a second and in this process, and a table of labels alone, for tests of what uses them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from raydr.arrays import Float64Array, Int64Array
from raydr.data import Table
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read
from raydr.scenarios.schema.scenario import Scenario

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
    """Run the scenario into a folder, without page and picture: they take twice as long as the rest."""
    return run(tiny_scenario(**overrides), out=out, report=False)


def tiny_run_with_report(out: Path, **overrides: Any) -> Path:
    """Run the scenario into a folder, with page and picture."""
    return run(tiny_scenario(**overrides), out=out)


@dataclass(frozen=True)
class Wards:
    """Patients of three wards with three diagnoses; neither wards nor diagnoses come in blocks."""

    ids: Int64Array
    wards: NDArray[np.str_]
    labels: NDArray[np.str_]
    rows: Float64Array

    @classmethod
    def drawn(cls, count: int = 96) -> Wards:
        """Draw patients; the last feature is the place of their diagnosis among all, in the order of their names."""
        random = np.random.default_rng(8)
        wards = random.choice(["south", "north", "east"], count)
        labels = random.choice(["ill", "well", "cured"], count)
        codes = np.unique(labels, return_inverse=True)[1]
        rows = 3.0 * random.normal(size=(count, 4))
        rows[wards == "east", 1] += 9.0
        rows[:, 2] += 7.0 * codes
        rows[:, 3] = codes
        return cls(1000 + random.permutation(count), wards, labels, rows)

    @property
    def in_blocks(self) -> Wards:
        """The same patients, ward by ward."""
        order = np.concatenate([self.of(ward) for ward in self.names])
        return Wards(self.ids[order], self.wards[order], self.labels[order], self.rows[order])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the wards, as the clients of a run are numbered."""
        return tuple(sorted(set(self.wards.tolist())))

    def of(self, ward: str) -> Int64Array:
        """Return the places in the table of a ward's patients."""
        return np.flatnonzero(self.wards == ward)

    def written(self, path: Path, **data: Any) -> dict[str, Any]:
        """Write the table to a file; return what a scenario says of its data and its clients."""
        lines = [
            ",".join([str(patient), ward, label, *map(repr, row)])
            for patient, ward, label, row in zip(
                self.ids, self.wards, self.labels, self.rows.tolist(), strict=True
            )
        ]
        path.write_text("\n".join(["patient,ward,diagnosis,a,b,c,d", *lines]) + "\n")
        return {
            "data": {"path": str(path), "id": "patient", "label": "diagnosis", **data},
            "clients": {"partition": {"kind": "by-column", "column": "ward"}},
        }


def labelled(labels: Int64Array, names: Sequence[str] = "0123456789") -> Table:
    """A table of rows of these classes, to deal to clients."""
    rows = np.zeros((len(labels), 1))
    return Table(
        name="labelled",
        rows=rows,
        features=("one",),
        ids=np.arange(len(labels)),
        labels=labels,
        label_names=tuple(names),
    )


def tiny_file(folder: Path, **sections: Any) -> Path:
    """The scenario as a file, with sections replaced or, when None, left out."""
    content = {key: value for key, value in (tiny() | sections).items() if value is not None}
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path
