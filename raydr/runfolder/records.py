"""Names of the files of run and sweep folders, and the records in them.

Other records are defined elsewhere: ``ledger.json`` holds :class:`raydr.privacy.ledger.Entry`, ``rounds.jsonl``
:class:`raydr.journal.RoundEnded`, ``notes.json`` :class:`raydr.methods.outcome.Note`, ``data.json``
:class:`raydr.data.provenance.Provenance`, ``privacy.json`` :class:`raydr.privacy.statement.Statement`, and
``audit.json`` :class:`raydr.attacks.verdicts.Audit`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from raydr.journal import Count, Seconds

SCENARIO = "scenario.yaml"
EMBEDDING, CENTRAL = "embedding.parquet", "central.parquet"
SHOWN, SHOWN_COLUMN = "shown.parquet", "column."
"""Mapped columns as they were read, if the scenario asks for them, and the prefix of their names."""
HELD_OUT = "held_out.parquet"
"""Positions of held-out rows on the run's map."""
PROGRESS, PROGRESS_MAPS = "progress.json", "progress.parquet"
"""Maps during training, if the scenario asks for them: metrics by round and name, positions by round and row."""
METRICS, LEDGER, ROUNDS, NOTES = "metrics.json", "ledger.json", "rounds.jsonl", "notes.json"
STRESS = "stress.json"
"""Stress at the start and after each iteration, if the server computed the geometry iteratively."""
DATA, ENVIRONMENT, PRIVACY = "data.json", "environment.json", "privacy.json"
FINGERPRINTS = "fingerprints.json"
"""Hashes that identify the data that were read. They depend on every row, so they are for the owner of the data."""
AUDIT = "audit.json"
"""The results of the attacks, if the run was audited."""
STABILITY, RELIABILITY = "stability.json", "reliability.parquet"
"""Which places stay on other maps, if the run was repeated for that: counts by map, and columns by row."""
MODEL = "model"
"""Folder of the model."""
JOINED, JOINING = "joined", "joining.json"
"""Folder with a numbered folder for each site that joined later, and the record of the join in it."""
EARLIER = "earlier.json"
"""Comparison with the run that this one repeats with one site more or less."""
REPORT, PICTURE = "report.html", "embedding.png"
"""Page and picture, which ``raydr report`` writes again from the other files."""
MANIFEST = "manifest.json"
"""Sizes and SHA-256 of files, written by :mod:`raydr.runfolder.manifest`."""
AXES = "xyz"
"""Columns of a map's coordinates, as many as it has dimensions."""
VERDICTS = ("reliable", "misplaced", "no structure")
"""Names of verdicts on the places of a map (:mod:`raydr.metrics.verdicts`), by their number."""
QUERY_ROWS, RECOVERED = "query rows", "recovered distances"
"""Where estimates without pooling come from: rows that every site saw, or distances that the server recovered."""
STABILITIES = ("stays", "changes with the seed", "changes without a site")
"""Names of verdicts on whether places stay on other maps (:mod:`raydr.metrics.stability`), by their number."""
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
    DATA: (
        "columns",
        "named",
        "scaling",
        "mapped",
        "set_apart",
        "held_out",
        "filling",
        "words",
        "units",
        "codings",
    ),
}
"""Files of a run folder, or fields of them, that the run's privacy claim covers."""
KEPT: Mapping[str, str] = {
    EMBEDDING: "row names, labels and scores by row, and positions that clients keep",
    CENTRAL: "a map of all rows in one place",
    SHOWN: "values of rows as they were read",
    HELD_OUT: "rows that no client had",
    PROGRESS: "scores from all rows in one place",
    PROGRESS_MAPS: "positions of all rows",
    METRICS: "scores from all rows in one place",
    FINGERPRINTS: "hashes of all rows",
    MANIFEST: "hashes of the other files",
    ENVIRONMENT: "seconds and memory, which depend on the rows",
    AUDIT: "what attacks recovered, compared with the true rows",
    EARLIER: "numbers of rows of another run, and how far rows moved",
    STABILITY: "counts from all rows in one place",
    RELIABILITY: "verdicts on the places of all rows",
    SITES: "what each site knows about its own rows",
    REPORT: "made from all other files",
    PICTURE: "positions of all rows",
}
"""Files that stay with the owner of the data, and why. Everything in ``joined`` stays too."""

SWEEP, SWEEP_REPORT, FRONTIER = "sweep.yaml", "sweep.html", "frontier.png"
"""The sweep file, which marks a sweep folder; its page; and a picture of utility against leakage of audited runs."""
TRIALS, POINTS, PARETO = "trials.parquet", "points.parquet", "pareto.parquet"
"""Tables of a sweep. The first has a row per trial, by point and repeat. The second has a row per point, with means and
standard deviations over finished repeats. The third has the points on the Pareto front of the sweep's objectives."""

PRIVATE = (FINGERPRINTS, SITES, TRIALS)
"""Files that only their owner can read (mode 0600); other modes follow the umask: docs/security.md."""
SETTING, DEVIATION = "set.", ".sd"
"""Prefix of the column of a swept key, and suffix of the column of a measure's standard deviation over repeats."""
TABLE, TABLE_REPORT = "table.parquet", "table.html"
"""The cells of a published table with raydr's values, for a sweep that reproduces one, and their page."""
STARTS, COMPOSITION = "starts.txt", "composition.json"
"""Starts of a sweep's trials, a line each; and their combined privacy cost, if any run is private."""
BEST, TRIAL_FOLDERS = "best.yaml", "trials"
"""Scenario of a sweep's best point, and the folder with the run folders of its finished trials."""
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
"""Measures with a column in every table of trials, in addition to the metrics of any of its trials."""
SIDES = ("federated", "central", "worst_site")
"""Maps of a measure: ``SIDE.METRIC``. The last is the federated map, for the rows of the worst site alone."""
State: TypeAlias = Literal["done", "failed", "stopped"]
TRIAL_STATES: tuple[State, ...] = ("done", "failed", "stopped")
TRIAL_IDENTITY = ("point", "repeat", "seed", "status", "error", "folder", "digest", "data")
"""Columns of trials that are neither swept keys nor measures."""


def trial_name(point: int, repeat: int) -> str:
    """Return the name of a trial and of its folder.

    >>> trial_name(3, 1)
    '0003-1'
    """
    return f"{point:04d}-{repeat}"


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """Result of a trial: a row of ``trials.parquet``.

    Attributes
    ----------
    point, repeat, seed : int
    status : {"done", "failed", "stopped"}
    error : str or None
        Why it failed.
    folder : str or None
        Run folder relative to the sweep folder; None if the trial is not done.
    digest : str
        Digest of everything that determines the results.
    data : str or None
        SHA-256 of all data that were read; None if nothing was read.
    values : mapping of dotted key to value
        Values of the swept keys that apply.
    measures : mapping of name to float
        The measures that the trial has.
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
        """Name of the trial and of its folder."""
        return trial_name(self.point, self.repeat)


def is_incomplete(folder: Path) -> bool:
    """Return whether a folder's name marks an incomplete run; names of complete runs never do."""
    return "incomplete" in folder.resolve().name


@dataclass(frozen=True, kw_only=True)
class SiteMean:
    """Mean and standard deviation of a metric over the measured rows of a site."""

    mean: Annotated[float, Field(ge=-1, le=1)]
    deviation: Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, kw_only=True)
class SiteMeasures:
    """Metrics of the rows of one site, whose neighbours are rows of all sites.

    Attributes
    ----------
    site : str
        Name of the site.
    rows, measured : int
        Number of its rows, and of those in the means: fewer for a sample of rows.
    federated, central : mapping of str to SiteMean
        Means by metric on the federated and the pooled-data map; ``central`` is empty without that map.
    held_out, unlike : int
        Number of its held-out rows with a novelty, and of those unlike the mapped rows: their p-value is at most 5 %.
    """

    site: str
    rows: Count
    measured: Annotated[int, Field(ge=2, lt=2**63)]
    federated: Mapping[str, SiteMean]
    central: Mapping[str, SiteMean] = field(default_factory=dict)
    held_out: Count = 0
    unlike: Count = 0

    def error(self, which: Literal["federated", "central"], name: str) -> float | None:
        """Return the standard error of a mean over sampled rows; None if all rows of the site are in it."""
        return _sampling_error(getattr(self, which), name, self.measured, self.rows)


@dataclass(frozen=True, kw_only=True)
class PeriodMeasures:
    """Rows of one period, whose neighbours are rows of all periods.

    Attributes
    ----------
    period : str
        Name of the period.
    rows, sites : int
        Number of its rows, and of the sites that hold them.
    measured : int
        Number of its rows in the means: fewer for a sample of rows.
    federated, central : mapping of str to SiteMean
        Means by metric on the federated and the pooled-data map; empty for fewer than 10 measured rows, or without
        that map.
    compared, unlike : int
        Number of its rows that were compared with those of the first period, and of those that are unlike them: their
        p-value is at most 5 % (:mod:`raydr.metrics.drift`). 0 compared rows if they were not compared.
    """

    period: str
    rows: Count
    sites: Count
    measured: Count = 0
    federated: Mapping[str, SiteMean] = field(default_factory=dict)
    central: Mapping[str, SiteMean] = field(default_factory=dict)
    compared: Count = 0
    unlike: Count = 0

    def error(self, which: Literal["federated", "central"], name: str) -> float | None:
        """Return the standard error of a mean over sampled rows; None if all rows of the period are in it."""
        return _sampling_error(getattr(self, which), name, self.measured, self.rows)


def _sampling_error(means: Mapping[str, SiteMean], name: str, measured: int, rows: int) -> float | None:
    if name not in means or measured >= rows:
        return None
    return means[name].deviation * math.sqrt((1.0 - measured / rows) / measured)


@dataclass(frozen=True, kw_only=True)
class IslandColumn:
    """A column in which a group of islands differs from the other rows.

    ``auc`` is the probability that the value of a row of the group is larger than that of another row.
    """

    column: str
    auc: Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, kw_only=True)
class Island:
    """One island of the map.

    Attributes
    ----------
    rows : int
        Number of its rows.
    center : (2,) or (3,) float
        Mean position of its rows on the map.
    group : int
        Group of islands that may be one group of rows, from 0.
    p : float
        The p-value of the group: how likely a table of one cluster leaves valleys as deep.
    separate : bool
        Whether the island alone is a group that is separate from all others.
    differing : int
        Number of columns in which the group differs from the other rows.
    largest : sequence of IslandColumn
        The columns that differ most.
    """

    rows: Count
    center: Sequence[float]
    group: Count
    p: Annotated[float, Field(gt=0, le=1)]
    separate: bool
    differing: Count = 0
    largest: Sequence[IslandColumn] = ()


@dataclass(frozen=True, kw_only=True)
class IslandMeasures:
    """Islands of the federated map, the largest first.

    ``rows`` were examined. ``left_out`` is the number of columns that the test left out, because they have few values.
    """

    rows: Count
    left_out: Count
    found: Sequence[Island]


@dataclass(frozen=True, kw_only=True)
class FidelityEstimate:
    """A metric that was estimated without pooling, the standard error of the draw, and the metric of all rows.

    ``pooled`` is None if the run did not compute it.
    """

    estimate: float
    standard_error: Annotated[float, Field(ge=0)]
    pooled: float | None


@dataclass(frozen=True, kw_only=True)
class FidelityMeasures:
    """Estimates by the name of the metric, from a number of rows."""

    rows: Count
    metrics: Mapping[str, FidelityEstimate]


@dataclass(frozen=True, kw_only=True)
class Measures:
    """Metric values by name for the federated and the pooled-data map, and why some were not computed.

    ``central`` is empty if the run was not compared with the pooled data. With very many rows, metrics are estimated
    from ``sampled_rows`` rows, and ``standard_errors`` has the errors of the estimates, by map and name. Both are
    missing in the file if all rows were used. ``sites`` has the sites with enough rows, the worst first. It is missing
    in the file if no metric is computed by site. ``islands`` are those of the federated map. They are missing in the
    file if they were not looked for. ``fidelity`` has metrics of the federated map that a federation can estimate,
    by where they come from: `QUERY_ROWS` or `RECOVERED`. It is missing in the file if there are none. ``periods`` are
    in their order. They are missing in the file without ``data.time``.
    """

    federated: Mapping[str, float | None]
    central: Mapping[str, float | None] = field(default_factory=dict)
    not_computed: Mapping[str, str]
    standard_errors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    sampled_rows: Count | None = None
    sites: Sequence[SiteMeasures] = ()
    islands: IslandMeasures | None = None
    fidelity: Mapping[str, FidelityMeasures] = field(default_factory=dict)
    periods: Sequence[PeriodMeasures] = ()

    def error(self, which: str, name: str) -> float | None:
        """Return the standard error of a value of the ``"federated"`` or ``"central"`` map; None if it is exact."""
        return self.standard_errors.get(which, {}).get(name)


@dataclass(kw_only=True, frozen=True)
class Joining:
    """Record of a site's join: its name, the SHA-256 of the map, its rows, the raydr version, start and duration."""

    site: str
    map: str
    rows: Count
    raydr: str
    started: str
    seconds: Seconds


@dataclass(kw_only=True, frozen=True)
class Environment:
    """Environment and cost of a run: its name, versions, machine, peak memory by process, seconds by stage.

    ``device`` is where large products were computed: ``cpu`` or ``cuda``. ``core_types`` are the types of processor for
    which the driver's BLAS computed; other types round differently. ``run`` ends with a commitment to the
    clients' secret, which identifies the secret later. ``network_seconds`` is the time of all messages on the lines of
    ``network``, in which the simulation did not wait.
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
    core_types: Sequence[str] = ()
    network_seconds: Seconds | None = None
