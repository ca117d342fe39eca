"""Trackers of experiments that one may already have: each trial goes to MLflow or TensorBoard too, where asked.

They are told what the ledger says of a trial, when it says it, and the objective of each of its rounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from raydr.errors import ScenarioError
from raydr.extras import lacking
from raydr.runfolder import records
from raydr.runfolder.records import TrialRow


class Tracker(Protocol):
    """Takes a trial in."""

    def track(self, row: TrialRow, run: Path) -> None:
        """Take the row of a trial that ended, whose run folder, if it is done, is ``run``."""


def trackers(name: str, mlflow: str | None, tensorboard: Path | None) -> tuple[Tracker, ...]:
    """Return the trackers that are asked for, none as a rule.

    Parameters
    ----------
    name : str
        Of the sweep.
    mlflow : str, optional
        A tracking URI of MLflow's.
    tensorboard : Path, optional
        A folder of TensorBoard's.

    Raises
    ------
    ScenarioError
        If a package that one needs is not installed.
    """
    found: list[Tracker] = []
    if mlflow is not None:
        missing = lacking("mlflow", "--mlflow")
        if missing is not None:
            raise ScenarioError(f"{missing}.")
        found.append(MLflow(mlflow, name))
    if tensorboard is not None:
        found.append(TensorBoard(tensorboard.expanduser().absolute() / name))
    return tuple(found)


@dataclass(frozen=True)
class MLflow:
    """A run of an MLflow experiment for each trial."""

    uri: str
    experiment: str

    def track(self, row: TrialRow, run: Path) -> None:
        """Log swept keys as parameters, measures as metrics, and the objective by round."""
        import mlflow

        mlflow.set_tracking_uri(self.uri)
        mlflow.set_experiment(self.experiment)
        with mlflow.start_run(run_name=row.name):
            mlflow.log_params({**row.values, "seed": row.seed})
            mlflow.log_metrics(dict(row.measures))
            for round, objective in _objectives(run):
                mlflow.log_metric("objective_by_round", objective, step=round)
            mlflow.set_tags({"status": row.status, "digest": row.digest, "error": row.error or ""})


@dataclass(frozen=True)
class TensorBoard:
    """A folder of TensorBoard's for each trial."""

    folder: Path

    def track(self, row: TrialRow, run: Path) -> None:
        """Write swept keys and measures as hyperparameters, and the objective by round."""
        from tensorboardX import SummaryWriter

        with closing(SummaryWriter(str(self.folder / row.name))) as writer:
            settings = {key: value if isinstance(value, bool | int | float) else str(value) for key, value in
                        row.values.items()}  # fmt: skip
            writer.add_hparams(settings, dict(row.measures), name=".")
            for round, objective in _objectives(run):
                writer.add_scalar("objective", objective, round)


def _objectives(run: Path) -> Iterator[tuple[int, float]]:
    if (run / records.ROUNDS).exists():
        for line in (run / records.ROUNDS).read_text().splitlines():
            ended = json.loads(line)
            if ended["objective"] is not None:
                yield ended["round"], ended["objective"]
