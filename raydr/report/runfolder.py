"""A run folder as values: read, checked, and refused with the file's name when it is not whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.errors import OutputError

T = TypeVar("T")

NO_LABEL = "no label"
"""What a row without a label is called on the maps."""


ELSEWHERE = (
    "make room there, or copy the run folder to where it can be written and make its report in the copy"
)
"""What to do about a run folder that cannot be written."""


@dataclass(frozen=True)
class Message:
    """One kind of message of a run, as the ledger recorded it.

    ``count`` messages of this ``kind`` carried ``bytes`` bytes in all; ``protection`` is ``"none"`` or names what
    guarded them; ``epsilon`` and ``delta`` are None when no differential privacy is claimed.
    """

    kind: str
    what: str
    direction: Literal["up", "down", "simulation-only"]
    granularity: Literal["per-record", "per-client", "aggregate"]
    seen_by: str
    count: int
    bytes: int
    protection: str
    epsilon: float | None
    delta: float | None

    @property
    def exposes_records(self) -> bool:
        """Whether each record's own values left its client with nothing to guard them."""
        return self.direction == "up" and self.granularity == "per-record" and self.protection == "none"


@dataclass(frozen=True)
class Round:
    """One round: the objective if the method has one, seconds, bytes, and clients asked, answered, failed."""

    round: int
    objective: float | None
    seconds: float
    bytes_up: int
    bytes_down: int
    asked: int
    answered: int
    failed: int


@dataclass(frozen=True)
class Measures:
    """Metric values by name for the federated and the pooled-data map, and why any were not computed."""

    federated: dict[str, float | None]
    not_computed: dict[str, str]
    central: dict[str, float | None] | None = None


@dataclass(frozen=True)
class Note:
    """Something that the method has to say about a run: a title, and paragraphs parted by empty lines."""

    title: str
    text: str

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The paragraphs of the text."""
        return tuple(part.strip() for part in re.split(r"\n\s*\n", self.text) if part.strip())


@dataclass(frozen=True)
class Environment:
    """Where a run ran and what it cost: versions, machine, seconds by stage, peak memory by process."""

    raydr: str
    python: str
    platform: str
    cpu: str
    cores: int
    memory_bytes: int
    packages: dict[str, str]
    seconds: dict[str, float]
    peak_memory_bytes: dict[str, int]
    started: str
    federation: str
    actors: int


@dataclass(frozen=True)
class RunFolder:
    """Everything that the report says, in the order of ``embedding.parquet``.

    Attributes
    ----------
    rows : Int64Array or tuple of str, (rows,)
        Identity of each row in the source table.
    clients, labels : tuple of str, (rows,)
        Name of each row's client, and its label; ``labels`` is None when the data have none.
    federated, central : Float64Array, (rows, 2) or (rows, 3)
        The maps; ``central`` is None when the run was not compared with the pooled data.
    notes : tuple of Note
        What the method says of the run; none where it says nothing.
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
    ledger: tuple[Message, ...]
    rounds: tuple[Round, ...]
    environment: Environment
    notes: tuple[Note, ...] = ()

    @property
    def name(self) -> str:
        """The scenario's name, or the folder's when the scenario has none."""
        return str(self.scenario.get("name") or self.path.name)

    @property
    def client_count(self) -> int:
        """Number of clients that hold at least one row of the map."""
        return len(set(self.clients))

    @property
    def dimensions(self) -> int:
        """Dimensions of the maps, 2 or 3."""
        return int(self.federated.shape[1])

    @property
    def in_disk(self) -> bool:
        """Whether the maps lie in the Poincaré disk (in 3-D: ball), as CO-SNE's do."""
        method = self.scenario.get("method")
        embedder = method.get("embedder") if isinstance(method, Mapping) else None
        return embedder == "cosne" or (isinstance(embedder, Mapping) and embedder.get("kind") == "cosne")


def read_run(folder: Path) -> RunFolder:
    """Read a run folder, which ``raydr run`` wrote.

    Raises
    ------
    OutputError
        The folder is not a whole run folder: the message names the file that is missing or broken.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise OutputError(
            f"{folder} is not a folder. Give the run folder that `raydr run` printed when it ended, for example "
            "runs/digits-fed-tsne-20260203-102231."
        )
    if "incomplete" in folder.resolve().name:
        raise OutputError(
            f"{folder} is what an interrupted run left behind: its name says incomplete, so its files cannot be "
            f"trusted. Finish the run with `raydr run {folder} --resume`, or run it again."
        )
    scenario_text = _bytes(folder, "scenario.yaml").decode("utf-8", errors="replace")
    rows, clients, labels, federated = _read_embedding(folder)
    return RunFolder(
        path=folder,
        scenario=_parse_scenario(folder, scenario_text),
        scenario_text=scenario_text,
        rows=rows,
        clients=clients,
        labels=labels,
        federated=federated,
        central=_read_central(folder, rows, federated.shape[1]),
        measures=_parse(folder, "metrics.json", Measures),
        ledger=_parse(folder, "ledger.json", tuple[Message, ...]),
        rounds=_parse(folder, "rounds.jsonl", tuple[Round, ...]),
        environment=_parse(folder, "environment.json", Environment),
        notes=_parse(folder, "notes.json", tuple[Note, ...]) if (folder / "notes.json").exists() else (),
    )


def _not_whole(folder: Path, file: str, reason: str) -> OutputError:
    return OutputError(
        f"{folder} is not a whole run folder: {file} {reason}. Bring the file back, or repeat the run with "
        f"`raydr run {folder / 'scenario.yaml'} --out ANOTHER-FOLDER`."
    )


def _bytes(folder: Path, file: str) -> bytes:
    try:
        return (folder / file).read_bytes()
    except FileNotFoundError:
        raise _not_whole(folder, file, "is missing") from None
    except OSError as error:
        raise _not_whole(folder, file, f"cannot be read ({error.strerror or error})") from error


def _parse(folder: Path, file: str, kind: type[T]) -> T:
    """Parse and check a JSON file (``.json``) or a file of one JSON value per line (``.jsonl``)."""
    from pydantic import TypeAdapter, ValidationError

    content = _bytes(folder, file)
    if file.endswith(".jsonl"):
        content = b"[" + b",".join(line for line in content.splitlines() if line.strip()) + b"]"
    try:
        return TypeAdapter(kind).validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        reason = f"is broken at {where}: {first['msg']}" if where else f"is broken: {first['msg']}"
        raise _not_whole(folder, file, reason) from error


def _parse_scenario(folder: Path, text: str) -> Mapping[str, Any]:
    import yaml

    try:
        scenario = yaml.safe_load(text)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise _not_whole(folder, "scenario.yaml", f"is not valid YAML ({reason})") from error
    if not isinstance(scenario, dict):
        raise _not_whole(folder, "scenario.yaml", "holds no keys")
    return scenario


def _columns(folder: Path, file: str, needed: tuple[str, ...]) -> dict[str, Any]:
    """Read the columns of a parquet file as Arrow arrays, all that are ``needed`` among them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    _bytes(folder, file)
    try:
        table = pq.ParquetFile(folder / file).read()
    except (pa.ArrowException, OSError) as error:
        raise _not_whole(folder, file, f"is not a parquet file ({' '.join(str(error).split())})") from error
    lacking = [name for name in needed if name not in table.column_names]
    if lacking:
        raise _not_whole(
            folder, file, f"lacks the column {lacking[0]!r} (it has: {', '.join(table.column_names)})"
        )
    return {name: table.column(name) for name in table.column_names}


def _coordinates(folder: Path, file: str, columns: Mapping[str, Any]) -> Float64Array:
    axes = [axis for axis in "xyz" if axis in columns]
    try:
        points = np.column_stack([np.asarray(columns[axis].to_numpy(), dtype=np.float64) for axis in axes])
    except (TypeError, ValueError) as error:
        raise _not_whole(folder, file, f"holds coordinates that are not numbers ({error})") from error
    broken = int((~np.isfinite(points)).any(axis=1).sum())
    if broken or not len(points):
        reason = f"has {broken} rows whose place is not finite" if broken else "has no rows"
        raise _not_whole(folder, file, reason)
    return points


def _identities(column: Any) -> Int64Array | tuple[str, ...]:
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        return np.asarray(column.to_numpy(), dtype=np.int64)
    return tuple(str(value) for value in column.to_pylist())


def _read_embedding(
    folder: Path,
) -> tuple[Int64Array | tuple[str, ...], tuple[str, ...], tuple[str, ...] | None, Float64Array]:
    file = "embedding.parquet"
    columns = _columns(folder, file, ("row", "client", "x", "y"))
    labels = None
    if "label" in columns:
        labels = tuple(NO_LABEL if value is None else str(value) for value in columns["label"].to_pylist())
    clients = tuple(str(value) for value in columns["client"].to_pylist())
    return _identities(columns["row"]), clients, labels, _coordinates(folder, file, columns)


def _read_central(folder: Path, rows: Int64Array | tuple[str, ...], dimensions: int) -> Float64Array | None:
    file = "central.parquet"
    if not (folder / file).exists():
        return None
    columns = _columns(folder, file, ("row", "x", "y"))
    if not np.array_equal(np.asarray(_identities(columns["row"])), np.asarray(rows)):
        raise _not_whole(folder, file, "does not hold the rows of embedding.parquet in the same order")
    points = _coordinates(folder, file, columns)
    if points.shape[1] != dimensions:
        reason = f"is a map in {points.shape[1]} dimensions, embedding.parquet in {dimensions}"
        raise _not_whole(folder, file, reason)
    return points
