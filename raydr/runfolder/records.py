"""What a run folder holds: the names of its files and the records in them, for whoever writes one or reads one.

Those of ``ledger.json``, ``rounds.jsonl``, ``notes.json`` and ``data.json`` are the run's own:
:class:`raydr.privacy.ledger.Entry`, :class:`raydr.journal.RoundEnded`, :class:`raydr.methods.outcome.Note` and
:class:`raydr.data.provenance.Provenance`; that of ``privacy.json`` is :class:`raydr.privacy.statement.Statement`, and
that of ``audit.json`` :class:`raydr.attacks.verdicts.Audit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from raydr.journal import Count, Seconds

SCENARIO = "scenario.yaml"
EMBEDDING, CENTRAL = "embedding.parquet", "central.parquet"
SHOWN, SHOWN_COLUMN = "shown.parquet", "column."
"""Where the scenario asks for them: some of the mapped columns as they were read, and how their names begin there."""
HELD_OUT = "held_out.parquet"
"""Where rows that were held out are placed on the run's map."""
PROGRESS, PROGRESS_MAPS = "progress.json", "progress.parquet"
"""Of maps along the way, where the scenario asks for them: metrics by round and name, and places by round and row."""
METRICS, LEDGER, ROUNDS, NOTES = "metrics.json", "ledger.json", "rounds.jsonl", "notes.json"
STRESS = "stress.json"
"""Where the server found the geometry by iterations of its own: the stress of the start and after each of them."""
DATA, ENVIRONMENT, PRIVACY = "data.json", "environment.json", "privacy.json"
FINGERPRINTS = "fingerprints.json"
"""Hashes of what was read, by which it is known again: for the owner of the data, since they follow from every row."""
AUDIT = "audit.json"
"""What attacks recovered, where the run was audited."""
MODEL = "model"
"""A folder."""
JOINED, JOINING = "joined", "joining.json"
"""A folder with a numbered one for each site that joined later, and the record of that in it."""
REPORT, PICTURE = "report.html", "embedding.png"
"""Made from the other files, and again by ``raydr report``."""
MANIFEST = "manifest.json"
"""Sizes and SHA-256 of all files but the report and the picture, by :mod:`raydr.runfolder.manifest`."""
AXES = "xyz"
"""Columns of a map's coordinates, as many as it has dimensions."""
CARD, ARRAYS, ENCODER, SITES = (
    f"{MODEL}/{name}" for name in ("model.json", "arrays.npz", "encoder.safetensors", "sites.npz")
)

RELEASED: Mapping[str, tuple[str, ...] | None] = {
    SCENARIO: None,
    LEDGER: None,
    PRIVACY: None,
    NOTES: None,
    STRESS: None,
    CARD: None,
    ARRAYS: None,
    ENCODER: None,
    ROUNDS: ("round", "objective", "bytes_up", "bytes_down", "asked", "answered", "failed", "moved"),
    DATA: ("columns", "named", "scaling", "mapped", "set_apart", "held_out", "filling", "words"),
}
"""Files of a run folder, whole or some fields of them, that the privacy claim of the run covers."""
KEPT: Mapping[str, str] = {
    EMBEDDING: "row identities, labels and scores by row; where clients keep their places, these too",
    CENTRAL: "a map of all rows in one place",
    SHOWN: "values of rows as they were read",
    HELD_OUT: "rows that no client had",
    PROGRESS: "scores by all rows in one place",
    PROGRESS_MAPS: "places of all rows",
    METRICS: "scores by all rows in one place",
    FINGERPRINTS: "hashes of all rows",
    MANIFEST: "hashes of the other files",
    ENVIRONMENT: "seconds and memory, which depend on the rows",
    AUDIT: "what attacks made of the rows, judged by them",
    SITES: "what each site knows of its own rows",
    REPORT: "made of all the others",
    PICTURE: "places of all rows",
}
"""Files that stay with the owner of the data, and why; so does everything in ``joined``."""

SWEEP, SWEEP_REPORT, FRONTIER = "sweep.yaml", "sweep.html", "frontier.png"
"""What a sweep folder was asked, which makes it one, and its page, which ``raydr report`` makes again; of audited runs
also a picture of utility against leakage."""
TRIALS, POINTS, PARETO = "trials.parquet", "points.parquet", "pareto.parquet"
"""Of a sweep: a row per trial, ordered by point and repeat; a row per point, means and deviations over its repeats that
are done; and the rows of those that no other point beats in all of the sweep's objectives."""

PRIVATE = (FINGERPRINTS, SITES, TRIALS)
"""Files that only their owner can read (mode 0600); the mode of all others follows the umask: docs/security.md."""
SETTING, DEVIATION = "set.", ".sd"
"""How the column of a swept key begins, and how that of a measure's standard deviation over repeats ends."""
TABLE, TABLE_REPORT = "table.parquet", "table.html"
"""Of a sweep whose points are the cells of a published table: these, beside the paper's numbers, and their page."""
STARTS, COMPOSITION = "starts.txt", "composition.json"
"""A sweep's starts of trials, a line each; and their cost together, where any run is private."""
BEST, TRIAL_FOLDERS = "best.yaml", "trials"
"""Of a sweep: the scenario of its best point, and a folder with the run folder of each trial that is done."""
COSTS = (
    "bytes_up",
    "bytes_down",
    "bytes_exposed",
    "epsilon",
    "epsilon_accounted",
    "leakage",
    "exact",
    "membership_auc",
    "rounds",
    "objective",
    "seconds",
    "peak_memory_bytes",
)
"""Measures of a trial that every table has a column for, beside the metrics that any of its trials has."""
State: TypeAlias = Literal["done", "failed", "stopped"]
TRIAL_STATES: tuple[State, ...] = ("done", "failed", "stopped")
TRIAL_IDENTITY = ("point", "repeat", "seed", "status", "error", "folder", "digest", "data")
"""Columns of trials that are neither a swept key nor a measure."""


def trial_name(point: int, repeat: int) -> str:
    """Name of a trial and of its folder.

    >>> trial_name(3, 1)
    '0003-1'
    """
    return f"{point:04d}-{repeat}"


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """What became of a trial: a row of ``trials.parquet``.

    Attributes
    ----------
    point, repeat, seed : int
    status : {"done", "failed", "stopped"}
    error : str or None
        Why it failed.
    folder : str or None
        Its run folder, seen from the sweep's; None where it is not done.
    digest : str
        Of all that its results follow from.
    data : str or None
        SHA-256 of what was read, of all sources together; None where nothing was.
    values : mapping of dotted key to value
        Of the swept keys that apply.
    measures : mapping of name to float
        Those that there are.
    """

    point: int
    repeat: int
    seed: int
    status: State
    error: str | None = None
    folder: str | None = None
    digest: str
    data: str | None = None
    values: Mapping[str, Any]
    measures: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the trial."""
        return trial_name(self.point, self.repeat)


def is_incomplete(folder: Path) -> bool:
    """Whether a folder's name says that its run is not whole, which that of a whole run never does."""
    return "incomplete" in folder.resolve().name


@dataclass(frozen=True, kw_only=True)
class Measures:
    """Metric values by name for the federated and the pooled-data map, and why any were not computed.

    ``central`` is empty where the run was not compared with the pooled data. Of very many rows ``sampled_rows`` are how
    many of them metrics looked at, and ``standard_errors`` those of the values that are estimates, map by map as the
    values are; neither is in the file where all rows were looked at.
    """

    federated: Mapping[str, float | None]
    central: Mapping[str, float | None] = field(default_factory=dict)
    not_computed: Mapping[str, str]
    standard_errors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    sampled_rows: Count | None = None

    def error(self, which: str, name: str) -> float | None:
        """Standard error of a value of the ``"federated"`` or the ``"central"`` map; None where it is exact."""
        return self.standard_errors.get(which, {}).get(name)


@dataclass(kw_only=True, frozen=True)
class Joining:
    """How a site joined a run: its name, the SHA-256 of the map, its rows, with what, when and how long."""

    site: str
    map: str
    rows: Count
    raydr: str
    started: str
    seconds: Seconds


@dataclass(kw_only=True, frozen=True)
class Environment:
    """Where a run ran and what it cost: its name, versions, machine, peak memory by process, seconds by stage.

    ``device`` is what large products were computed on: ``cpu`` or ``cuda``.

    ``run`` ends with a commitment to the clients' secret, by which a secret is known again.
    """

    run: str
    raydr: str
    python: str
    platform: str
    cpu: str
    cores: Count
    memory_bytes: Count
    packages: Mapping[str, str]
    started: str
    federation: str
    actors: Count
    peak_memory_bytes: Mapping[str, Count]
    seconds: Mapping[str, Seconds]
    device: str = "cpu"
