"""Comparison of a run with the run that it repeats with one site more or less."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from raydr.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from raydr.data.provenance import sha256_of_file
from raydr.errors import RunError
from raydr.geometry.points import Geometry, Points
from raydr.methods.novelty import groups_of
from raydr.metrics.displacement import displacement
from raydr.privacy.ledger import Entry, Granularity
from raydr.privacy.statement import Statement
from raydr.runfolder import RunFolder, read_run, records
from raydr.runfolder.earlier import Change, EarlierModel, EarlierRun, HeldMessage, read_earlier
from raydr.runfolder.maps import read_embedding
from raydr.runfolder.model import Model, read_model
from raydr.runfolder.reading import parsed
from raydr.runfolder.writing import write_json
from raydr.scenarios.running.checkpoints import Checkpoints
from raydr.scenarios.schema.reading import read

_PENDING = "earlier.json"
_FILES = {
    records.EMBEDDING: "names, labels and places of its rows",
    records.CENTRAL: "places of its rows on the pooled-data map",
    records.SHOWN: "values of its rows",
    records.HELD_OUT: "places of its rows that were held out",
    records.PROGRESS_MAPS: "places of its rows during training",
    records.METRICS: "scores of its rows",
    records.DATA: "its name, and how many of its rows lack values",
    records.FINGERPRINTS: "hashes of all rows",
    records.AUDIT: "what attacks recovered of its rows",
    records.ARRAYS: "the model",
    records.ENCODER: "the model",
    records.SITES: "the adjustment of each site",
    records.REPORT: "made from the other files",
    records.PICTURE: "places of its rows",
}
"""Files of a run folder with something of each site, and what."""


@dataclass(frozen=True)
class Pending:
    """The comparison that a run owes: with which run folder, and which site left or joined."""

    folder: Path
    site: str
    change: Change
    prior: bool = False

    def keep(self, folder: Path) -> None:
        """Write this next to the checkpoints of a run that starts, so that it outlasts an interruption."""
        content = asdict(self) | {"folder": str(self.folder)}
        (Checkpoints(folder).place / _PENDING).write_text(json.dumps(content), encoding="utf-8")


def compare_with_earlier(folder: Path) -> None:
    """Write the comparison that a run whose results are complete owes, if it owes one.

    Raises
    ------
    OutputError
        If the earlier run folder is gone or changed.
    RunError
        If the two runs have other rows in common than all rows of the sites that stay.
    """
    file = Checkpoints(folder).place / _PENDING
    if not file.is_file():
        return
    content = json.loads(file.read_text(encoding="utf-8"))
    pending = Pending(**content | {"folder": Path(content["folder"])})
    earlier = _compared(folder, read_run(pending.folder), pending)
    write_json(folder / records.EARLIER, asdict(earlier))


def _compared(folder: Path, run: RunFolder, pending: Pending) -> EarlierRun:
    site, left = pending.site, pending.change == "left"
    new = read_embedding(folder)
    own = np.array([client == site for client in (run if left else new).clients])
    before_keys, now_keys = (_keys(*of) for of in ((run.rows, run.clients), (new.rows, new.clients)))
    staying = [key for key in (before_keys if left else now_keys) if key[0] != site]
    if sorted(staying) != sorted(now_keys if left else before_keys):
        raise RunError(
            f"The sites that stay have other rows than in {run.path}, so the maps cannot be compared: the data changed"
            " since that run. Restore them, or run the scenario again with the new data."
        )
    then = {key: place for place, key in enumerate(before_keys)}
    here = np.array([place for place, key in enumerate(now_keys) if key[0] != site], np.int64)
    there = np.array([then[now_keys[place]] for place in here.tolist()], np.int64)
    before = read_earlier(run.path)
    costs = (run.privacy.cost,) if before is None else tuple(before.costs)
    own_files = _FILES if left else {}
    return EarlierRun(
        change=pending.change,
        site=site,
        rows=int(own.sum()),
        folder=run.path.name,
        run=run.environment.run,
        map=sha256_of_file(run.path / records.EMBEDDING),
        costs=(*costs, parsed(folder, records.PRIVACY, Statement).cost),
        messages=_held(run.ledger) if left else (),
        files={file: what for file, what in own_files.items() if (run.path / file).exists()},
        model=_model(run, read_model(folder), own) if left else None,
        displacement=displacement(
            new.places[here],
            run.federated[there],
            in_disk=run.in_disk,
            geometry=partial(_distances, run.path),
        ),
        prior=pending.prior,
    )


def _keys(rows: Int64Array | tuple[str, ...], clients: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(client, str(row)) for client, row in zip(clients, rows, strict=True)]


def _held(ledger: tuple[Entry, ...]) -> tuple[HeldMessage, ...]:
    """Return the messages of a ledger that depend on the rows of each site."""
    held = (
        HeldMessage(
            kind=entry.kind,
            what=entry.what,
            holding="record"
            if entry.granularity == Granularity.PER_RECORD
            else "sum"
            if entry.secure
            else "site",
            epsilon=entry.epsilon,
        )
        for entry in ledger
        if entry.direction == "up" and entry.public is None
    )
    return tuple(dict.fromkeys(held))


def _model(run: RunFolder, now: Model, own: BoolArray) -> EarlierModel:
    """Compare a run's model with that of the run without the site, whose rows are ``own`` (rows,) bool."""
    before = read_model(run.path)
    changed = [name for name, values in before.arrays.items() if not _same(values, now.arrays.get(name))]
    groups = _groups(run, before.arrays)
    return EarlierModel(
        changed=changed,
        unchanged=[name for name in before.arrays if name not in changed],
        references=len(groups),
        of_site=sum(bool(own[group].any()) for group in groups),
    )


def _same(one: FloatArray, other: FloatArray | None) -> bool:
    return other is not None and one.shape == other.shape and bool((one == other).all())


def _groups(run: RunFolder, model: Mapping[str, FloatArray]) -> list[Int64Array]:
    """Return the rows of each reference of a run's model; empty if it has none that are groups on the map."""
    if "reference_counts" not in model:
        return []
    groups = groups_of(run.federated)
    sizes, kept = sorted(len(group) for group in groups), np.sort(np.ravel(model["reference_counts"]))
    return groups if np.array_equal(sizes, kept) else []


def _distances(folder: Path, places: Float64Array) -> Geometry:
    """Return the distances on a map of a run."""
    return read(folder / records.SCENARIO).method.mapped(places) or Points(places)
