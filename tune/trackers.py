"""Experiment trackers: optional export of each trial to MLflow or TensorBoard.

A tracker gets a trial's row when the trial ends, and the objective of each of its rounds.
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
    """An experiment tracker."""

    def track(self, row: TrialRow, run: Path) -> None:
        """Log the row of a trial that ended; ``run`` is its run folder, which exists if the trial is done."""


def trackers(name: str, mlflow: str | None, tensorboard: Path | None) -> tuple[Tracker, ...]:
    """Return the requested trackers.

    Parameters
    ----------
    name : str
        Name of the sweep.
    mlflow : str, optional
        Tracking URI of MLflow.
    tensorboard : Path, optional
        Folder for TensorBoard.

    Raises
    ------
    ScenarioError
        If a required package is not installed.
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
    """Tracker with one MLflow run for each trial."""

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
    """Tracker with one TensorBoard folder for each trial."""

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
