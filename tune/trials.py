"""Trials and their results: rows of ``trials.parquet``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raydr.privacy.ledger import read_entries
from raydr.runfolder import read_audit, records
from raydr.runfolder.manifest import require_unchanged
from raydr.runfolder.records import COSTS, State, TrialRow, trial_name
from raydr.scenarios.schema.reading import read
from raydr.scenarios.schema.scenario import Scenario
from raydr.tune.space import SweepPoint, digest


@dataclass(frozen=True)
class Trial:
    """One run of one point.

    Attributes
    ----------
    point : SweepPoint
    repeat : int
        Number of the repeat, from 0.
    scenario : Scenario
        The scenario with the repeat's seed.
    digest : str
        Digest of everything that determines the results.
    """

    point: SweepPoint
    repeat: int
    scenario: Scenario
    digest: str

    @classmethod
    def of(cls, point: SweepPoint, repeat: int) -> Trial:
        """Return a point's trial; ScenarioError if the point cannot be run."""
        scenario = point.scenario(repeat)
        return cls(point, repeat, scenario, digest(scenario))

    @property
    def name(self) -> str:
        """Name of the trial's folder."""
        return trial_name(self.point.number, self.repeat)


def measures_in(rows: Sequence[TrialRow]) -> list[str]:
    """Return the names of the measures in a table of these rows: metrics in order of appearance, then costs."""
    found = dict.fromkeys(name for row in rows for name in row.measures if name not in COSTS)
    return [*found, *COSTS]


def folder_of(point: int, repeat: int, status: State) -> str | None:
    """Return the run folder of a trial relative to the sweep folder, or None if the trial is not done."""
    return f"{records.TRIAL_FOLDERS}/{trial_name(point, repeat)}" if status == "done" else None


def row_of(
    trial: Trial,
    status: State,
    *,
    error: str | None = None,
    data: str | None = None,
    measures: Mapping[str, float] | None = None,
) -> TrialRow:
    """Return the row of a trial that ended."""
    return TrialRow(
        point=trial.point.number,
        repeat=trial.repeat,
        seed=trial.scenario.seed,
        status=status,
        error=error,
        folder=folder_of(trial.point.number, trial.repeat, status),
        digest=trial.digest,
        data=data,
        values=trial.point.values,
        measures=measures or {},
    )


def row_of_run(trial: Trial, run: Path) -> TrialRow:
    """Return the row of a finished trial, from its run folder."""
    require_unchanged(run)
    read = [source["sha256"] for source in _json(run, records.FINGERPRINTS)]
    return row_of(trial, "done", data=" ".join(read), measures=measures_of(run))


def digest_of_run(run: Path) -> str:
    """Return the digest of the scenario in a run folder."""
    require_unchanged(run, records.SCENARIO)
    return digest(read(run / records.SCENARIO))


def measures_of(run: Path) -> dict[str, float]:
    """Return the metrics and costs of a run by name, without missing ones.

    They are:

    - ``federated.METRIC`` and ``central.METRIC``.
    - ``worst_site.METRIC``: the mean over the rows of the site with the lowest neighbour preservation, on the federated
      map. It is missing if fewer than two sites have values.
    - Bytes up, bytes down, and bytes up per record without protection.
    - ``epsilon`` of the whole run, missing if infinite, and ``epsilon_accounted``.
    - ``leakage``, ``exact`` and ``membership_auc`` of an audited run (:class:`raydr.attacks.verdicts.Audit`).
    - The number of rounds, the last objective, seconds of all stages, and the memory of the largest process.
    """
    metrics, cost, ran = (
        _json(run, name) for name in (records.METRICS, records.PRIVACY, records.ENVIRONMENT)
    )
    entries = read_entries(_json(run, records.LEDGER))
    rounds = (run / records.ROUNDS).read_text().splitlines()
    last = json.loads(rounds[-1]) if rounds else {}
    measures = {
        f"{side}.{name}": value for side in ("federated", "central") for name, value in metrics[side].items()
    }
    sites = metrics.get("sites", [])
    if len(sites) > 1:
        worst = sites[0]["federated"]
        measures |= {f"worst_site.{name}": found["mean"] for name, found in worst.items()}
    measures |= {
        "bytes_up": sum(entry.bytes for entry in entries if entry.direction == "up"),
        "bytes_down": sum(entry.bytes for entry in entries if entry.direction == "down"),
        "bytes_exposed": sum(entry.bytes for entry in entries if entry.exposes_records),
        "epsilon": cost["epsilon"],
        "epsilon_accounted": cost["epsilon_accounted"] or None,
        "rounds": len(rounds),
        "objective": last.get("objective"),
        "seconds": sum(ran["seconds"].values()),
        "peak_memory_bytes": max(ran["peak_memory_bytes"].values(), default=None),
    }
    audit = read_audit(run)
    if audit is not None:
        measures |= {name: getattr(audit, name) for name in ("leakage", "exact", "membership_auc")}
    return {name: float(value) for name, value in measures.items() if value is not None}


def _json(run: Path, name: str) -> Any:
    return json.loads((run / name).read_bytes())
