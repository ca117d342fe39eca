"""Checked readers of run folders; an error names the file that is missing or broken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array, Int64Array
from raydr.attacks.verdicts import Audit
from raydr.data.provenance import Fingerprint, Provenance, sha256_of_file
from raydr.documents import DocumentError, parse_yaml, read_limited
from raydr.errors import OutputError
from raydr.journal import Count, RoundEnded
from raydr.methods.outcome import Note
from raydr.privacy.ledger import Entry
from raydr.privacy.statement import Statement
from raydr.runfolder import records
from raydr.runfolder.manifest import require_unchanged
from raydr.runfolder.maps import (
    LARGEST,
    Faithfulness,
    coordinates,
    identities,
    read_central,
    read_columns,
    read_embedding,
    read_shown,
)
from raydr.runfolder.records import Environment, Measures
from raydr.runfolder.refusals import not_whole
from raydr.runfolder.stability import Stability, StabilityRecord, read_places

T = TypeVar("T")
Stress: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]

ELSEWHERE = (
    "free disk space there, or copy the run folder to a writable place and run `raydr report` on the copy"
)
"""Remedy for a run folder that cannot be written."""


@dataclass(frozen=True)
class RoundMap:
    """The map (rows, 2 or 3) that the run would produce if it ended after a round, and its metrics by name."""

    round: int
    measures: Mapping[str, float | None]
    points: Float64Array


@dataclass(kw_only=True, frozen=True)
class RunFolder:
    """Content of a run folder, with rows in the order of ``embedding.parquet``.

    Attributes
    ----------
    rows : Int64Array or tuple of str, (rows,)
        Name of each row in the source table.
    clients, labels : tuple of str, (rows,)
        Client and label of each row; ``labels`` is None if the data have none.
    periods : tuple of str, (rows,), or None
        Period of each row; None without ``data.time``.
    clusters, islands : tuple of str, (rows,), or None
        Cluster of each row in the federated run, None if the method makes none; and its island on the federated map,
        None if islands were not looked for.
    federated, central : Float64Array, (rows, 2) or (rows, 3)
        The maps; ``central`` is None if the run was not compared with the pooled data.
    data : Provenance
        The data that were read, and what was mapped.
    privacy : Statement
        Privacy cost of the run.
    notes : tuple of Note
        Notes of the method on the run.
    along : tuple of RoundMap
        Maps during training, by round; empty if the scenario asks for none.
    audit : Audit or None
        What attacks recovered; None if the run was not audited.
    faithfulness, central_faithfulness : Faithfulness or None
        Faithfulness of each row on either map; None if no metric of the run counted neighbours.
    verdicts, central_verdicts : Int64Array, (rows,), or None
        Verdict on each row's place on either map, as a place in `records.VERDICTS`; None if the run has no metric
        ``reliable``.
    singularities : Float64Array, (rows,), or None
        Singularity of each row on the federated map, in units of their median; None without the metric ``fracture``.
    perturbations : Float64Array, (rows,), or None
        Perturbation score of each row on the federated map, in radii of the map; None without that metric.
    shown : mapping of str to Float64Array, (rows,)
        Mapped columns as they were read, by name, with NaN for missing values; empty if the scenario asks for none.
    stability : Stability or None
        Which places stay on other maps; None if the run was not repeated for that.
    edited : tuple of str
        Differences from the manifest in words; empty outside of :func:`raydr.runfolder.manifest.edits_accepted`.
    stress : tuple of float
        Stress at the start and after each iteration of the server; empty if it made none.
    """

    path: Path
    scenario: Mapping[str, Any]
    scenario_text: str
    rows: Int64Array | tuple[str, ...]
    clients: tuple[str, ...]
    labels: tuple[str, ...] | None
    federated: Float64Array
    central: Float64Array | None
    measures: Measures
    ledger: tuple[Entry, ...]
    rounds: tuple[RoundEnded, ...]
    environment: Environment
    data: Provenance
    privacy: Statement
    notes: tuple[Note, ...] = ()
    clusters: tuple[str, ...] | None = None
    islands: tuple[str, ...] | None = None
    periods: tuple[str, ...] | None = None
    along: tuple[RoundMap, ...] = ()
    audit: Audit | None = None
    stress: tuple[float, ...] = ()
    faithfulness: Faithfulness | None = None
    central_faithfulness: Faithfulness | None = None
    verdicts: Int64Array | None = None
    central_verdicts: Int64Array | None = None
    singularities: Float64Array | None = None
    perturbations: Float64Array | None = None
    shown: Mapping[str, Float64Array] = field(default_factory=dict)
    stability: Stability | None = None
    edited: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The scenario's name, or the folder's if the scenario has none."""
        return str(self.scenario.get("name") or self.path.name)

    def section(self, key: str) -> Mapping[str, Any]:
        """Return a section of the scenario, empty if there is none."""
        section = self.scenario.get(key)
        return section if isinstance(section, Mapping) else {}

    def called(self, by: str) -> str:
        """Return the name of the table's column for "label", "period" or "client", or ``by`` if it has none."""
        partition = self.section("clients").get("partition")
        column = partition.get("column") if isinstance(partition, Mapping) else None
        data = self.section("data")
        return str({"label": data.get("label"), "period": data.get("time"), "client": column}.get(by) or by)

    @property
    def client_count(self) -> int:
        """Number of clients that hold at least one row of the map."""
        return len(set(self.clients))

    @property
    def exposed(self) -> tuple[Entry, ...]:
        """Messages that show each record's own values without a privacy guarantee."""
        return tuple(entry for entry in self.ledger if entry.exposes_records)

    @property
    def dimensions(self) -> int:
        """Dimensions of the maps, 2 or 3."""
        return int(self.federated.shape[1])

    @property
    def in_disk(self) -> bool:
        """Whether the maps lie in the Poincaré disk (in 3-D: ball), as CO-SNE's do."""
        embedder = self.section("method").get("embedder")
        return embedder == "cosne" or (isinstance(embedder, Mapping) and embedder.get("kind") == "cosne")


def read_run(folder: Path) -> RunFolder:
    """Read a run folder that ``raydr run`` wrote.

    Raises
    ------
    OutputError
        If the folder is not a complete run folder. The message names the file that is missing or broken.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise OutputError(
            f"{folder} is not a folder. Pass the run folder that `raydr run` printed at its end, for example "
            "runs/digits-fed-tsne-20260203-102231."
        )
    if records.is_incomplete(folder):
        raise OutputError(
            f"{folder} is from an interrupted run, as 'incomplete' in its name says, so its files cannot be trusted. "
            f"Finish the run with `raydr run {folder} --resume`, or start it again."
        )
    edited = require_unchanged(folder)
    scenario_text = _bytes(folder, records.SCENARIO).decode("utf-8", errors="replace")
    found = read_embedding(folder)
    rows, dimensions = found.rows, found.places.shape[1]
    central, central_faithfulness, central_verdicts = read_central(folder, rows, dimensions)
    return RunFolder(
        path=folder,
        edited=edited,
        scenario=_parse_scenario(folder, scenario_text),
        scenario_text=scenario_text,
        rows=rows,
        clients=found.clients,
        labels=found.labels,
        federated=found.places,
        central=central,
        measures=parsed(folder, records.METRICS, Measures),
        ledger=read_ledger(folder),
        rounds=read_rounds(folder),
        environment=parsed(folder, records.ENVIRONMENT, Environment),
        data=read_data(folder, len(rows)),
        privacy=parsed(folder, records.PRIVACY, Statement),
        notes=parsed(folder, records.NOTES, tuple[Note, ...]) if (folder / records.NOTES).exists() else (),
        clusters=found.clusters,
        islands=found.islands,
        periods=found.periods,
        along=_read_along(folder, rows, dimensions),
        audit=read_audit(folder),
        stress=parsed(folder, records.STRESS, tuple[Stress, ...])
        if (folder / records.STRESS).exists()
        else (),
        faithfulness=found.faithfulness,
        central_faithfulness=central_faithfulness,
        verdicts=found.verdicts,
        central_verdicts=central_verdicts,
        singularities=found.singularities,
        perturbations=found.perturbations,
        shown=read_shown(folder, rows),
        stability=read_stability(folder, rows),
    )


def read_unplaced(folder: Path) -> RunFolder | None:
    """Return a deployed run whose places stay at the sites, without rows; None for any other folder.

    Raises as :func:`read_run`.
    """
    folder = Path(folder)
    if (folder / records.EMBEDDING).exists() or not (folder / records.SCENARIO).is_file():
        return None
    text = _bytes(folder, records.SCENARIO).decode("utf-8", errors="replace")
    scenario = _parse_scenario(folder, text)
    clients = scenario.get("clients")
    if records.is_incomplete(folder) or not (isinstance(clients, Mapping) and clients.get("deployed")):
        return None
    edited = require_unchanged(folder)
    data = parsed(folder, records.DATA, Provenance)
    return RunFolder(
        path=folder,
        edited=edited,
        scenario=scenario,
        scenario_text=text,
        rows=(),
        clients=(),
        labels=None,
        federated=np.zeros((0, 2)),
        central=None,
        measures=parsed(folder, records.METRICS, Measures),
        ledger=read_ledger(folder),
        rounds=read_rounds(folder),
        environment=parsed(folder, records.ENVIRONMENT, Environment),
        data=data,
        privacy=parsed(folder, records.PRIVACY, Statement),
        notes=parsed(folder, records.NOTES, tuple[Note, ...]) if (folder / records.NOTES).exists() else (),
    )


def read_audit(folder: Path) -> Audit | None:
    """Return a run's audit, or None if it was not audited; raises as :func:`read_run`."""
    if not (folder / records.AUDIT).exists():
        return None
    require_unchanged(folder, records.AUDIT, records.SCENARIO)
    audit = parsed(folder, records.AUDIT, Audit)
    if audit.scenario != sha256_of_file(folder / records.SCENARIO):
        raise OutputError(
            f"{folder / records.AUDIT} belongs to another run: its {records.SCENARIO} differs. Delete it and run `raydr"
            f" audit {folder}`."
        )
    return audit


def read_stability(folder: Path, rows: Int64Array | tuple[str, ...]) -> Stability | None:
    """Return which places of a run's ``rows`` stay on other maps, or None if the run was not repeated for that.

    Raises as :func:`read_run`.
    """
    if not (folder / records.STABILITY).exists():
        return None
    require_unchanged(folder, records.STABILITY, records.RELIABILITY)
    record = parsed(folder, records.STABILITY, StabilityRecord)
    if record.map != sha256_of_file(folder / records.EMBEDDING):
        raise OutputError(
            f"{folder / records.STABILITY} belongs to another map: {records.EMBEDDING} differs. Delete it and run"
            f" `raydr stability {folder}`."
        )
    return Stability(record, *read_places(folder, rows))


def read_rounds(folder: Path) -> tuple[RoundEnded, ...]:
    """Return the rounds of a run folder; raises as :func:`read_run`."""
    require_unchanged(folder, records.ROUNDS)
    return parsed(folder, records.ROUNDS, tuple[RoundEnded, ...])


def read_scores(folder: Path) -> dict[int, dict[str, float | None]]:
    """Return metrics of the maps during training, by round and name; raises as :func:`read_run`."""
    require_unchanged(folder, records.PROGRESS)
    if not (folder / records.PROGRESS).exists():
        return {}
    return parsed(folder, records.PROGRESS, dict[Count, dict[str, float | None]])


def _bytes(folder: Path, file: str) -> bytes:
    try:
        return read_limited(folder / file, LARGEST[Path(file).suffix])
    except FileNotFoundError:
        raise not_whole(folder, file, "is missing") from None
    except OSError as error:
        raise not_whole(folder, file, f"cannot be read ({error.strerror or error})") from error


def parsed(folder: Path, file: str, kind: type[T]) -> T:
    """Parse and check a JSON file (``.json``) or a file of one JSON value per line (``.jsonl``)."""
    from pydantic import ValidationError

    content = _bytes(folder, file)
    if file.endswith(".jsonl"):
        content = b"[" + b",".join(line for line in content.splitlines() if line.strip()) + b"]"
    try:
        parsed: T = _adapter(kind).validate_json(content)  # type: ignore[arg-type]  # a type is hashable
        return parsed
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        reason = f"is broken at {where}: {first['msg']}" if where else f"is broken: {first['msg']}"
        raise not_whole(folder, file, reason) from error


@cache
def _adapter(kind: Any) -> Any:
    """Return the validator of a type, cached because a sweep's page reads a thousand folders."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _parse_scenario(folder: Path, text: str) -> Mapping[str, Any]:
    try:
        scenario = parse_yaml(text)
    except DocumentError as error:
        raise not_whole(folder, records.SCENARIO, f"is not valid YAML ({error})") from error
    if not isinstance(scenario, dict):
        raise not_whole(folder, records.SCENARIO, "has no keys")
    return scenario


def read_ledger(folder: Path) -> tuple[Entry, ...]:
    """Return the messages of a run or a joined site; raises as :func:`read_run`."""
    ledger = parsed(folder, records.LEDGER, tuple[Entry, ...])
    for message in ledger:
        counted = (message.count, message.bytes)
        promised = [value for value in (message.epsilon, message.delta) if value is not None]
        if any(not 0 <= value < 2**63 for value in counted) or any(
            not 0 <= value < math.inf for value in promised
        ):
            raise not_whole(folder, records.LEDGER, f"has an invalid number in {message.kind!r}")
    return ledger


def read_data(folder: Path, rows: int) -> Provenance:
    """Return the provenance of a folder's ``rows`` rows; raises as :func:`read_run`."""
    data = parsed(folder, records.DATA, Provenance)
    counted = [count for source in data.sources for count in (source.rows, source.dropped)]
    if (
        data.mapped != rows
        or min([data.set_apart, data.held_out, data.withdrawn, data.not_drawn, *counted]) < 0
        or not data.sources
    ):
        raise not_whole(folder, records.DATA, f"does not account for the {rows} rows of {records.EMBEDDING}")
    if (folder / records.FINGERPRINTS).exists():  # the owner may have deleted it
        try:
            return data.known_by(parsed(folder, records.FINGERPRINTS, tuple[Fingerprint, ...]))
        except ValueError:
            raise not_whole(
                folder, records.FINGERPRINTS, f"does not match the sources in {records.DATA}"
            ) from None
    return data


def _read_along(folder: Path, rows: Int64Array | tuple[str, ...], dimensions: int) -> tuple[RoundMap, ...]:
    if not (folder / records.PROGRESS).exists():
        return ()
    scores = read_scores(folder)
    file = records.PROGRESS_MAPS
    columns = read_columns(folder, file, ("round", "row", "x", "y"))
    found, names = (identities(folder, file, columns[name]) for name in ("round", "row"))
    points = coordinates(folder, file, columns)
    expected = np.repeat(np.array(sorted(scores), np.int64), len(rows))
    if not np.array_equal(np.asarray(found), expected) or not np.array_equal(
        np.asarray(names), np.tile(np.asarray(rows), len(scores))
    ):
        reason = f"does not hold the rows of {records.EMBEDDING} for each round of {records.PROGRESS}"
        raise not_whole(folder, file, reason)
    if points.shape[1] != dimensions:
        reason = f"has maps in {points.shape[1]} dimensions, but {records.EMBEDDING} has {dimensions}"
        raise not_whole(folder, file, reason)
    maps = points.reshape(len(scores), len(rows), dimensions)
    return tuple(
        RoundMap(round, scores[round], places) for round, places in zip(sorted(scores), maps, strict=True)
    )
